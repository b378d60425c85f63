//! What aggregators below are told: to each the part of what may pass here that follows from its traffic, as a controller
//! would tell it.

use plimsoll_core::names::Bucket;
use plimsoll_core::directive::{BucketDirective, KeyDirective, Posted, Terms, Values};
use plimsoll_core::law::{Share, Sharing};
use plimsoll_core::law::presence::Presences;
use plimsoll_core::quantity::{Limit, Rate};
use plimsoll_core::quantity::DropRatio;
use plimsoll_core::quantity::MonoTime;

use super::client_directives::told;
use super::{FastLoop, Moment};
use crate::downstream::{Below, Branch, Parts};

/// What is worked out once of a key, for all branches.
struct Shared {
    key: KeyDirective,
    values: Values,
    lane: u32,
    allowed: Option<f64>,
    cap: Option<f64>,
}

impl FastLoop {
    /// Divides what may pass here anew, between the clients, if there are any, and the aggregators below. The parts hold
    /// until the next time, for both, so that together they never make more than the whole. O(K B) for K lanes and B
    /// branches.
    pub(crate) fn share(&mut self, moment: Moment, below: &mut Below) {
        self.beyond.clear();
        if below.is_empty() {
            self.sharing = 1.0;
            self.own = Parts::all(1.0);
            return;
        }
        let (now, parameters) = (moment.now, self.parameters);
        let clients = f64::from(u8::from(moment.clients > 0));
        let presences: Vec<f64> = below.iter().map(|(_, branch)| branch.presence(now)).collect();
        let at_lane = |at: usize| {
            let branches = below.iter().zip(&presences);
            let branches = branches.map(move |((_, branch), presence)| Share {
                presence: *presence,
                offered: branch.traffic.rate(at),
            });
            (Sharing::of(branches.clone()), branches)
        };
        let all: Vec<(Share, Sharing)> = (self.lanes.iter().enumerate())
            .map(|(at, lane)| {
                let own = Share { presence: clients, offered: lane.offered };
                let (beyond, branches) = at_lane(at);
                self.beyond.push(beyond.offered());
                (own, Sharing::of(branches.chain([own])))
            })
            .collect();
        // Of what no traffic is known everyone gets as much.
        let unknown = |presence: f64| Share { presence, offered: 0.0 };
        let nothing = Sharing::of(presences.iter().copied().chain([clients]).map(unknown));
        self.sharing = nothing.presences().max(1.0);
        let own = all.iter().map(|(own, all)| all.part(*own, &parameters));
        self.own.fill(own, nothing.part(unknown(clients), &parameters));
        for (branch, presence) in below.iter_mut().zip(presences) {
            let rates: Vec<f64> = (0..all.len()).map(|at| branch.traffic.rate(at)).collect();
            let parts = rates
                .iter()
                .zip(&all)
                .map(|(offered, (_, all))| all.part(Share { presence, offered: *offered }, &parameters));
            branch.traffic.parts.fill(parts, nothing.part(unknown(presence), &parameters));
        }
    }

    /// What each aggregator below is to be told of a bucket, in their order. While a restart is waited out (`quiet`) no
    /// hold is told, for nobody knows yet how it would have to be divided.
    pub(crate) fn directives_below(
        &mut self,
        bucket: &Bucket,
        posted: &Posted,
        moment: Moment,
        quiet: bool,
        below: &Below,
    ) -> Vec<BucketDirective> {
        let limit = posted.terms().limit;
        let denied = limit == Limit::PerSecond(Rate::ZERO);
        let shared = self.shared(bucket, posted, moment);
        let presences = posted.terms().presences.unwrap_or(Presences::ONE).times(self.sharing);
        let each = below.iter().map(|(_, branch)| {
            let served = branch.is_served(moment.now, &self.parameters);
            let hold = match posted.terms().hold {
                Some(hold) if !quiet && limited(limit) => hold_of(branch, bucket, hold, served, &shared),
                _ => None,
            };
            let terms = Terms { presences: Some(presences), hold, clients: None, ..*posted.terms() };
            let keys = shared
                .iter()
                .map(|shared| if served || denied { shared.for_branch(branch) } else { shared.key.clone() });
            BucketDirective { bucket: bucket.clone(), whole: true, terms, keys: keys.collect() }
        });
        each.collect()
    }

    fn shared(&mut self, bucket: &Bucket, posted: &Posted, moment: Moment) -> Vec<Shared> {
        let now = self.on_grid(moment.now).unwrap_or_default();
        let given =
            limited(posted.terms().limit).then(|| self.given(bucket, posted, Moment { now, ..moment }));
        let mut shared = Vec::new();
        for (at, (tenant, values)) in posted.keys().enumerate() {
            let id = self.buckets.get(bucket).and_then(|members| members.by_tenant.get(tenant)).copied();
            let lane = self.lane_of(id);
            let (allowed, cap) = match &given {
                Some(given) => given.each.get(at).copied().unwrap_or_default(),
                // No limit, or nothing at all.
                None => (values.rate.map(Rate::per_second), values.cap.map(Rate::per_second)),
            };
            let ratio = match allowed {
                Some(allowed) if given.as_ref().is_some_and(|given| given.by_rates) => {
                    self.ratio(lane, now, allowed).or(values.ratio)
                }
                _ => values.ratio,
            };
            let values = Values { ratio, guard: None, offered: None, ..values };
            let entitled = Values { entitlement: values.entitlement, ..Values::default() };
            let key = KeyDirective { tenant: tenant.clone(), values: entitled };
            shared.push(Shared { key, values, lane, allowed, cap });
        }
        shared
    }

    /// The ratio over all that is offered here; `None` where too little is to tell.
    fn ratio(&mut self, lane: u32, now: MonoTime, allowed: f64) -> Option<DropRatio> {
        let parameters = self.parameters;
        let beyond = self.beyond.get(lane as usize).copied().unwrap_or_default();
        let own = self.lanes.get_mut(lane as usize).map_or(0.0, |lane| lane.rate(now, &parameters));
        let offered = own + beyond;
        if offered.max(allowed) * parameters.window.as_secs_f64() < parameters.counts_min {
            return None;
        }
        Some(DropRatio::of_excess(Rate::new(offered).ok()?, Rate::new(allowed).ok()?))
    }
}

impl Shared {
    fn for_branch(&self, branch: &Branch) -> KeyDirective {
        let tenant = self.key.tenant.clone();
        let part = branch.traffic.parts.of(self.lane);
        let of = |whole: Option<f64>| whole.and_then(|whole| told(whole * part));
        KeyDirective { tenant, values: Values { rate: of(self.allowed), cap: of(self.cap), ..self.values } }
    }
}

/// Whether there is something to divide.
fn limited(limit: Limit) -> bool {
    limit.per_second().is_some_and(|limit| limit > Rate::ZERO)
}

/// A branch's part of the hold: that of what may pass now, by which its rates are parts of the rates. Before its traffic is
/// known it keeps the hold that it came with, or has as much as everyone.
fn hold_of(branch: &Branch, bucket: &Bucket, hold: Rate, served: bool, shared: &[Shared]) -> Option<Rate> {
    let parts = &branch.traffic.parts;
    if !served {
        return (!branch.brought(bucket)).then(|| told(hold.per_second() * parts.otherwise())).flatten();
    }
    let (mut whole, mut part) = (0.0, 0.0);
    for shared in shared {
        let allowed = shared.allowed.unwrap_or_default();
        whole += allowed;
        part += allowed * parts.of(shared.lane);
    }
    told(hold.per_second() * if whole > 0.0 { part / whole } else { parts.otherwise() })
}
