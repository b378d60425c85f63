//! Scripted aggregators that drop requests by the ratios they were sent, and a fleet that runs in steps of
//! 0.5 s.

use super::*;
use plimsoll_core::decision::Mode;
use plimsoll_core::directive::{Directives, Leader, Terms, Values};
use plimsoll_core::kill::KillGeneration;
use plimsoll_core::law::tail::Tail;
use plimsoll_core::names::{KeyId, Name, Zone};
use plimsoll_core::report::{Counts, Greeting, Identity, Outbox, ReportedMode, ReportedNames};

use crate::admin::status::{BucketStatus, Status};

const STEP: Duration = Duration::from_millis(500);

pub(super) fn at(ms: u64) -> MonoTime {
    MonoTime::from_elapsed(Duration::from_millis(ms))
}

/// A process that has saved its epoch.
fn started(now: MonoTime, id: u128, durable: DurableState, policy: Arc<Policy>) -> Brain {
    let mut brain = Brain::new(now, InstanceId(id), durable, policy, Parameters::default());
    save(&mut brain);
    brain
}

pub(super) fn save(brain: &mut Brain) {
    if let Some((number, _)) = brain.unsaved() {
        brain.on_saved(number);
    }
}

/// Behaviour of clients with the requests of a tenant beyond the coin.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Behind {
    Service,
    Wall,
    /// The tenant has used its quota: the store refuses each request that the coin lets through.
    Store,
    /// The tenant has used its quota, and clients refuse from memory, before the coin.
    Memory,
}

struct Traffic {
    key: Key,
    rps: f64,
    behind: Behind,
    counts: Counts,
    /// Fractions of requests and drops that are carried to the next step, so that rates do not drift.
    due: f64,
    owed: f64,
}

pub(super) struct Scripted {
    pub(super) stream: StreamId,
    pub(super) identity: Identity,
    pub(super) outbox: Outbox,
    /// The offset of its clock from the controller's.
    clock: Duration,
    pub(super) greeted: bool,
    pub(super) cut: bool,
    pub(super) in_shadow: bool,
    /// It reports, but without counts.
    pub(super) timeless: bool,
    pub(super) epoch: Option<Epoch>,
    pub(super) board: Board,
    pub(super) kill: KillGeneration,
    pub(super) tail: Option<Tail>,
    /// Names that its next report asks for, and what it was told of them.
    pub(super) asked: Vec<Tenant>,
    pub(super) told: Vec<(Tenant, Tenant)>,
    traffic: Vec<Traffic>,
}

impl Scripted {
    pub(super) fn new(zone: &str, number: u64) -> Self {
        let mut outbox = Outbox::default();
        outbox.open();
        Self {
            stream: StreamId(number),
            identity: Identity {
                instance: InstanceId(u128::from(number)),
                name: Name::new(&format!("{zone}-aggregator")).unwrap(),
                service: Name::new("aggregator").unwrap(),
                zone: Zone::new(zone).unwrap(),
                role: Role::Aggregator,
            },
            outbox,
            clock: Duration::from_secs(1_000),
            greeted: false,
            cut: false,
            in_shadow: false,
            timeless: false,
            epoch: None,
            board: Board::default(),
            kill: KillGeneration::default(),
            tail: None,
            asked: Vec::new(),
            told: Vec::new(),
            traffic: Vec::new(),
        }
    }

    pub(super) fn offering(mut self, tenant: &str, rps: f64) -> Self {
        self.offers(tenant, rps);
        self
    }

    pub(super) fn offers(&mut self, name: &str, rps: f64) {
        let key = Key {
            bucket: bucket(),
            tenant: tenant(name),
        };
        match self.traffic.iter_mut().find(|traffic| traffic.key == key) {
            Some(traffic) => traffic.rps = rps,
            None => self.traffic.push(Traffic {
                key,
                rps,
                behind: Behind::Service,
                counts: Counts::ZERO,
                due: 0.0,
                owed: 0.0,
            }),
        }
    }

    pub(super) fn puts_behind(&mut self, name: &str, behind: Behind) {
        let of_tenant = self
            .traffic
            .iter_mut()
            .filter(|traffic| traffic.key.tenant.as_str() == name);
        of_tenant.for_each(|traffic| traffic.behind = behind);
    }

    /// Lets its clients decide over `time`: by the ratio they were sent, or else so that the zone keeps to
    /// its hold.
    pub(super) fn passes(&mut self, time: Duration) {
        let offered: f64 = self.traffic.iter().map(|traffic| traffic.rps).sum();
        let on_hold = self
            .hold()
            .map_or(0.0, |hold| (1.0 - hold / offered).max(0.0));
        for at in 0..self.traffic.len() {
            let ratio = self
                .ratio(self.traffic[at].key.tenant.as_str())
                .unwrap_or(on_hold);
            let traffic = &mut self.traffic[at];
            traffic.due += traffic.rps * time.as_secs_f64();
            let requests = traffic.due.floor();
            traffic.due -= requests;
            if traffic.behind == Behind::Memory {
                traffic.counts.quota_repeated += requests as u64;
                continue;
            }
            let ratio = if traffic.behind == Behind::Wall {
                1.0
            } else {
                ratio
            };
            traffic.owed += requests * ratio;
            let refused = traffic.owed.floor().min(requests);
            traffic.owed -= refused;
            traffic.counts.offered += requests as u64;
            let counts = &mut traffic.counts;
            let column = if self.in_shadow {
                &mut counts.would_dropped
            } else {
                &mut counts.dropped
            };
            *column += refused as u64;
            if traffic.behind == Behind::Store {
                counts.quota_dropped += (requests - refused) as u64;
            }
        }
    }

    pub(super) fn report(&mut self, now: MonoTime) -> Report {
        let holds = self.hold().map(|hold| (bucket(), Rate::new(hold).unwrap()));
        let mut report = Report {
            greeting: Greeting {
                identity: (!self.greeted).then(|| self.identity.clone()),
                holds: holds.into_iter().filter(|_| !self.greeted).collect(),
                ..Greeting::default()
            },
            time: Some(now + self.clock),
            lead: self.epoch.map(Leader::from).into(),
            kills: self.kill.into(),
            modes: self.directed().filter(|_| !self.greeted).collect(),
            names: ReportedNames {
                tails: self
                    .tail
                    .iter()
                    .map(|tail| {
                        let class = Key {
                            bucket: bucket(),
                            tenant: Tenant::default_class(),
                        };
                        (class, tail.clone())
                    })
                    .collect(),
                asked: std::mem::take(&mut self.asked),
                ..ReportedNames::default()
            },
            ..Report::default()
        };
        self.greeted = true;
        if self.timeless {
            self.outbox.fill(&mut report, &[], |_| Tally::ZERO);
            report.time = None;
            return report;
        }
        let keys: Vec<Key> = self
            .traffic
            .iter()
            .map(|traffic| traffic.key.clone())
            .collect();
        let traffic = &self.traffic;
        let tally = |id: KeyId| Tally {
            counts: traffic[id.index()].counts,
            late: Counts::ZERO,
        };
        self.outbox.fill(&mut report, &keys, tally);
        report
    }

    fn directed(&self) -> impl Iterator<Item = (Bucket, ReportedMode)> {
        let mode = |terms: &Terms| ReportedMode {
            directed: Some(terms.mode),
            unapplied: 0,
        };
        self.board
            .iter()
            .map(move |(bucket, posted)| (bucket.clone(), mode(posted.terms())))
    }

    pub(super) fn exchange(&mut self, brain: &mut Brain, now: MonoTime) {
        let report = self.report(now);
        brain.on_report(now, self.stream, report).unwrap();
        save(brain);
        self.receive(brain, now);
    }

    pub(super) fn receive(&mut self, brain: &mut Brain, now: MonoTime) -> Option<Directives> {
        let directives = brain.directives(now, self.stream)?;
        self.epoch = self.epoch.max(directives.lead.epoch());
        self.kill.merge(directives.kills.fleet);
        self.outbox.on_echo(directives.echo);
        directives
            .parent
            .into_iter()
            .for_each(|parent| self.outbox.on_answer(parent));
        for bucket in &directives.buckets {
            self.board.apply(bucket);
        }
        self.told.extend(directives.catalogue.names.iter().cloned());
        Some(directives)
    }

    pub(super) fn reconnects(&mut self) {
        self.outbox.open();
        self.greeted = false;
        self.stream.0 += 1_000;
    }

    pub(super) fn values(&self, tenant_name: &str) -> Option<Values> {
        self.board.get(&bucket())?.values(&tenant(tenant_name))
    }

    pub(super) fn ratio(&self, tenant: &str) -> Option<f64> {
        Some(self.values(tenant)?.ratio?.as_f64())
    }

    pub(super) fn rate(&self, tenant: &str) -> Option<f64> {
        Some(self.values(tenant)?.rate?.per_second())
    }

    pub(super) fn hold(&self) -> Option<f64> {
        Some(self.board.get(&bucket())?.terms().hold?.per_second())
    }

    pub(super) fn mode(&self) -> Mode {
        self.board.get(&bucket()).unwrap().terms().mode
    }

    pub(super) fn counts(&self, name: &str) -> Counts {
        let of_tenant = self
            .traffic
            .iter()
            .find(|traffic| traffic.key.tenant.as_str() == name);
        of_tenant.map_or(Counts::ZERO, |traffic| traffic.counts)
    }
}

pub(super) struct Fleet {
    pub(super) brain: Brain,
    pub(super) zones: Vec<Scripted>,
    now: Duration,
    pub(super) unix_s: i64,
}

impl Fleet {
    pub(super) fn new(policy: Arc<Policy>, zones: Vec<Scripted>) -> Self {
        Self::restored(DurableState::first_start(), policy, zones)
    }

    pub(super) fn restored(
        durable: DurableState,
        policy: Arc<Policy>,
        zones: Vec<Scripted>,
    ) -> Self {
        Self {
            brain: started(MonoTime::ZERO, 9_999, durable, policy),
            zones,
            now: Duration::ZERO,
            unix_s: 0,
        }
    }

    /// Replaces the controller by a new process with the saved state. Every aggregator opens a new stream.
    pub(super) fn restarts(&mut self) {
        self.restarts_with(Arc::clone(self.brain.policy()));
    }

    /// Replaces the controller by a new one without its state.
    pub(super) fn loses_state(&mut self, durable: DurableState) {
        let policy = Arc::clone(self.brain.policy());
        self.brain = started(self.now(), 7_777, durable, policy);
        self.zones.iter_mut().for_each(Scripted::reconnects);
    }

    pub(super) fn restarts_with(&mut self, policy: Arc<Policy>) {
        let durable = self.brain.durable().clone();
        self.brain = started(self.now(), 8_888, durable, policy);
        self.zones.iter_mut().for_each(Scripted::reconnects);
    }

    pub(super) fn now(&self) -> MonoTime {
        MonoTime::from_elapsed(self.now)
    }

    pub(super) fn run(&mut self, seconds: f64) {
        let end = self.now + Duration::from_secs_f64(seconds);
        while self.now < end {
            self.now += STEP;
            let now = self.now();
            for zone in &mut self.zones {
                zone.passes(STEP);
                if !zone.cut {
                    zone.exchange(&mut self.brain, now);
                }
            }
            self.tick();
        }
    }

    /// An aggregator leaves cleanly.
    pub(super) fn leaves(&mut self, zone: usize) {
        let now = self.now();
        let zone = &mut self.zones[zone];
        let farewell = Report {
            leaving: true,
            ..zone.report(now)
        };
        let left = self.brain.on_report(now, zone.stream, farewell);
        left.unwrap();
    }

    pub(super) fn status(&self) -> Status {
        Status::of(&self.brain, self.now())
    }

    pub(super) fn bucket_status(&self) -> BucketStatus {
        self.status().buckets.remove(&bucket()).unwrap()
    }

    pub(super) fn tick(&mut self) {
        let now = self.now();
        self.brain
            .on_tick(now, self.unix_s + self.now.as_secs() as i64);
        save(&mut self.brain);
        for zone in self.zones.iter_mut().filter(|zone| !zone.cut) {
            zone.receive(&mut self.brain, now);
        }
    }

    pub(super) fn passing(&mut self, seconds: f64, tenants: &[&str]) -> Vec<f64> {
        let passed = |fleet: &Self, name: &str| -> u64 {
            fleet
                .zones
                .iter()
                .map(|zone| zone.counts(name).passed())
                .sum()
        };
        let before: Vec<u64> = tenants.iter().map(|name| passed(self, name)).collect();
        self.run(seconds);
        let rate = |(name, before)| (passed(self, name) - before) as f64 / seconds;
        tenants.iter().copied().zip(before).map(rate).collect()
    }

    pub(super) fn balance(&self) -> f64 {
        self.brain.buckets.states[&bucket()].balance.tokens()
    }

    pub(super) fn presences(&self) -> f64 {
        self.zones[0]
            .board
            .get(&bucket())
            .unwrap()
            .terms()
            .presences
            .unwrap()
            .as_f64()
    }
}
