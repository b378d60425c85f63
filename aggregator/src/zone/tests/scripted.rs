//! Scripted clients and a scripted controller, advanced in tenths of seconds.

use std::collections::{BTreeMap, HashSet};

use plimsoll_core::decision::Mode;
use plimsoll_core::directive::{
    BucketDirective, KeyDirective, Leader, LimitOwner, Posted, SentLead, Terms, Values,
};
use plimsoll_core::law::Weight;
use plimsoll_core::law::presence::Presences;
use plimsoll_core::names::{KeyId, Name};
use plimsoll_core::quantity::Limit;
use plimsoll_core::report::{Outbox, Tally};

use super::*;
use plimsoll_core::directive::CatalogueNews;

pub(super) const CONTROLLER: InstanceId = InstanceId(200);
const STEP: u64 = 100;

pub(super) fn identity(role: Role, instance: u128) -> Identity {
    Identity {
        instance: InstanceId(instance),
        name: Name::new(&format!("host:{instance}")).unwrap(),
        service: Name::new("shop").unwrap(),
        zone: plimsoll_core::names::Zone::new("a").unwrap(),
        role,
    }
}

pub(super) fn zone() -> Zone {
    aggregator(100)
}

pub(super) fn aggregator(instance: u128) -> Zone {
    let mut zone = Zone::new(
        identity(Role::Aggregator, instance),
        Bounds::default(),
        Parameters::default(),
    );
    zone.on_open(at(0));
    zone
}

pub(super) fn answered() -> Zone {
    let mut zone = zone();
    zone.report(at(0));
    zone.on_directives(at(0), Script::ratio(7).message(1, 1))
        .unwrap();
    zone
}

pub(super) struct Client {
    pub(super) stream: StreamId,
    identity: Identity,
    outbox: Outbox,
    parent: InstanceId,
    pub(super) epoch: Option<Epoch>,
    greeted: bool,
    rps: BTreeMap<Tenant, f64>,
    pub(super) counts: BTreeMap<Tenant, Counts>,
    /// In the order of first counts, which is the order of ids.
    keys: Vec<Key>,
    known: HashSet<Tenant>,
    pub(super) board: Board,
    /// The classes of names that it was told, of the catalogue.
    pub(super) classes: BTreeMap<Tenant, Tenant>,
}

impl Client {
    pub(super) fn new(instance: u128) -> Self {
        let mut outbox = Outbox::default();
        outbox.open();
        outbox.on_answer(InstanceId(100));
        Self {
            stream: StreamId(instance as u64),
            identity: identity(Role::Client, instance),
            outbox,
            parent: InstanceId(100),
            epoch: None,
            greeted: false,
            rps: BTreeMap::new(),
            counts: BTreeMap::from([(tenant("acme"), Counts::ZERO)]),
            keys: Vec::new(),
            known: HashSet::new(),
            board: Board::default(),
            classes: BTreeMap::new(),
        }
    }

    pub(super) fn of(mut self, parent: InstanceId) -> Self {
        self.parent = parent;
        self.outbox.on_answer(parent);
        self
    }

    pub(super) fn offering(mut self, name: &str, rps: f64) -> Self {
        self.offers(name, rps);
        self
    }

    pub(super) fn offers(&mut self, name: &str, rps: f64) {
        self.rps.insert(tenant(name), rps);
        self.counts.entry(tenant(name)).or_default();
    }

    /// Counts the requests of `ms` milliseconds.
    pub(super) fn offer(&mut self, ms: u64) {
        for (tenant, rps) in &self.rps {
            let counts = self.counts.entry(tenant.clone()).or_default();
            counts.offered += (rps * ms as f64 / 1e3).round() as u64;
        }
    }

    pub(super) fn counts(&mut self, name: &str) -> &mut Counts {
        self.counts.entry(tenant(name)).or_default()
    }

    pub(super) fn reconnect(&mut self, stream: u64) {
        self.outbox.open();
        self.outbox.on_answer(self.parent);
        self.stream = StreamId(stream);
        self.greeted = false;
    }

    pub(super) fn report(&mut self, now: MonoTime) -> Report {
        let mut report = Report {
            greeting: (!self.greeted).then(|| self.identity.clone()).into(),
            time: Some(now),
            lead: self.epoch.map(Leader::from).into(),
            subscriptions: vec![bucket()].into(),
            ..Report::default()
        };
        self.greeted = true;
        for tenant in self.counts.keys() {
            if self.known.insert(tenant.clone()) {
                self.keys.push(Key {
                    bucket: bucket(),
                    tenant: tenant.clone(),
                });
            }
        }
        let tally = |id: KeyId| Tally {
            counts: self.counts[&self.keys[id.index()].tenant],
            late: Counts::ZERO,
        };
        self.outbox.fill(&mut report, &self.keys, tally);
        report
    }

    pub(super) fn send_report(&mut self, zone: &mut Zone, now: MonoTime) {
        let report = self.report(now);
        zone.on_report(now, self.stream, report).unwrap();
    }

    pub(super) fn receive(&mut self, zone: &mut Zone, now: MonoTime) -> Option<Directives> {
        let message = zone.directives(now, self.stream)?;
        message.buckets.iter().for_each(|bucket| {
            self.board.apply(bucket);
        });
        for (id, class) in &message.catalogue.keys {
            let tenant = self.keys[id.index()].tenant.clone();
            self.classes.insert(tenant, class.clone());
        }
        Some(message)
    }

    pub(super) fn posted(&self) -> &Posted {
        self.board.get(&bucket()).unwrap()
    }

    pub(super) fn values(&self, name: &str) -> Values {
        self.posted().values(&tenant(name)).unwrap()
    }

    pub(super) fn ratio(&self, name: &str) -> f64 {
        self.values(name).ratio.unwrap().as_f64()
    }

    pub(super) fn guard(&self, name: &str) -> f64 {
        self.values(name).guard.unwrap().per_second()
    }

    pub(super) fn offered(&self, name: &str) -> f64 {
        self.values(name).offered.unwrap().per_second()
    }
}

pub(super) fn per_second(rate: f64) -> Rate {
    Rate::new(rate).unwrap()
}

pub(super) fn ratio_of(share: f64) -> DropRatio {
    DropRatio::new((share * f64::from(DropRatio::ONE)) as u32).unwrap()
}

#[derive(Clone)]
pub(super) struct Script {
    pub(super) epoch: u64,
    pub(super) terms: Terms,
    pub(super) keys: Vec<KeyDirective>,
    pub(super) policy_hash: Option<u64>,
    pub(super) limits: Option<Vec<(Key, Rate)>>,
    /// The hash of the catalogue, and the class of each name in it.
    pub(super) catalogue: Option<(u64, Vec<(&'static str, &'static str)>)>,
}

impl Script {
    pub(super) fn of(keys: &[(&str, Values)]) -> Self {
        let terms = Terms {
            named: true,
            limit: Limit::PerSecond(per_second(1000.0)),
            mode: Mode::Enforce,
            presences: Some(Presences::ONE),
            ..Terms::default()
        };
        let keys = keys.iter().map(|(name, values)| KeyDirective {
            tenant: tenant(name),
            values: *values,
        });
        Self {
            epoch: 1,
            terms,
            keys: keys.collect(),
            policy_hash: None,
            limits: None,
            catalogue: None,
        }
    }

    /// What the catalogue says of names.
    pub(super) fn answer(&self, asked: &[Tenant]) -> CatalogueNews {
        let Some((hash, rows)) = &self.catalogue else {
            return CatalogueNews::default();
        };
        let class = |name: &Tenant| {
            let row = rows.iter().find(|(tenant, _)| *tenant == name.as_str());
            let class = row.map_or_else(Tenant::default_class, |(_, class)| tenant(class));
            (name.clone(), class)
        };
        CatalogueNews {
            hash: Some(*hash),
            names: asked.iter().map(class).collect(),
            ..CatalogueNews::default()
        }
    }

    pub(super) fn ratio(units: u32) -> Self {
        let values = Values {
            ratio: Some(DropRatio::new(units).unwrap()),
            ..Values::default()
        };
        Self::of(&[("acme", values), ("default", values)])
    }

    /// Tenants without values.
    pub(super) fn nothing() -> Self {
        Self::of(&[("acme", Values::default()), ("default", Values::default())])
    }

    /// Rates with equal caps, and their sum as the hold.
    pub(super) fn rates(rates: &[(&str, f64)]) -> Self {
        let values = |rate: f64| Values {
            ratio: Some(DropRatio::NONE),
            rate: Some(per_second(rate)),
            cap: Some(per_second(rate)),
            entitlement: Some(entitled(1.0)),
            ..Values::default()
        };
        let keys: Vec<(&str, Values)> = rates
            .iter()
            .map(|(name, rate)| (*name, values(*rate)))
            .collect();
        Self::of(&keys).holding(rates.iter().map(|(_, rate)| rate).sum())
    }

    pub(super) fn holding(mut self, hold: f64) -> Self {
        self.terms.hold = Some(per_second(hold));
        self
    }

    pub(super) fn with(mut self, name: &str, change: impl Fn(&mut Values)) -> Self {
        let key = self
            .keys
            .iter_mut()
            .find(|key| key.tenant.as_str() == name)
            .unwrap();
        change(&mut key.values);
        self
    }

    /// The directive of a controller that has no counts yet: policy without values.
    pub(super) fn without_values(mut self) -> Self {
        self.terms.hold = None;
        for key in &mut self.keys {
            key.values = Values {
                entitlement: key.values.entitlement,
                ..Values::default()
            };
        }
        self
    }

    pub(super) fn message(&self, seq: u64, covered: u64) -> Directives {
        let directive = BucketDirective {
            bucket: bucket(),
            whole: true,
            terms: self.terms.clone(),
            keys: self.keys.clone(),
        };
        Directives {
            lead: SentLead {
                leader: Some(Epoch(self.epoch).into()),
                policy_hash: self.policy_hash,
                ..SentLead::default()
            },
            seq,
            echo: Echo {
                covered,
                confirmed: covered,
            },
            upstream_age: Some(Duration::ZERO),
            parent: (seq == 1).then_some(CONTROLLER),
            limits: self.limits.clone(),
            buckets: vec![directive],
            ..Directives::default()
        }
    }
}

pub(super) fn entitled(weight: f64) -> Entitlement {
    Entitlement {
        weight: Weight::new(weight).unwrap(),
        floor: Rate::ZERO,
        tenant_limit: None,
        limit_owner: LimitOwner::Bucket,
    }
}

pub(super) struct Scene {
    pub(super) zone: Zone,
    pub(super) clients: Vec<Client>,
    /// `None` while the controller is silent.
    pub(super) controller: Option<Script>,
    seq: u64,
    /// The busiest names in reports with any, with the time of each report.
    pub(super) callers: Vec<(u64, Vec<(Key, Rate)>)>,
    pub(super) now: u64,
    /// Lead of every other tick in milliseconds.
    pub(super) early: u64,
}

impl Scene {
    pub(super) fn new(script: Script, clients: Vec<Client>) -> Self {
        Self {
            zone: zone(),
            clients,
            controller: Some(script),
            seq: 0,
            callers: Vec::new(),
            now: 0,
            early: 0,
        }
    }

    pub(super) fn now(&self) -> MonoTime {
        at(self.now)
    }

    pub(super) fn reconnect(&mut self, script: Script) {
        self.zone.on_open(self.now());
        self.seq = 0;
        self.controller = Some(script);
    }

    /// Advances in tenths of a second: clients report, the zone ticks, and it rolls up every half second.
    pub(super) fn run(&mut self, seconds: f64) {
        for _ in 0..(seconds * 10.0).round() as u64 {
            self.now += STEP;
            let now = self.now();
            for client in &mut self.clients {
                client.offer(STEP);
                client.send_report(&mut self.zone, now);
            }
            let early = if self.now.is_multiple_of(2 * STEP) {
                self.early
            } else {
                0
            };
            self.zone.on_tick(at(self.now - early));
            if self.now.is_multiple_of(500) {
                self.roll_up();
            }
            for client in &mut self.clients {
                client.receive(&mut self.zone, now);
            }
        }
    }

    pub(super) fn roll_up(&mut self) {
        let now = self.now();
        let report = self.zone.report(now);
        if !report.names.callers.is_empty() {
            self.callers.push((self.now, report.names.callers.clone()));
        }
        if let Some(script) = &self.controller {
            self.seq += 1;
            let message = Directives {
                catalogue: script.answer(&report.names.asked),
                ..script.message(self.seq, report.seq)
            };
            self.zone.on_directives(now, message).unwrap();
        }
    }

    pub(super) fn is_on_hold(&self) -> bool {
        self.zone.is_on_hold(&bucket(), self.now())
    }
}
