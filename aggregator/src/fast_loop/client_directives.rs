//! What clients are told: the ratio and the guard of each key, by what the controller gave the zone and what was just
//! offered.

use plimsoll_core::names::{Bucket, DEFAULT_TENANT};
use plimsoll_core::directive::{BucketDirective, KeyDirective, Posted, Terms, Values};
use plimsoll_core::law::{Claimant, Class, divide_hold, fast_ratio};
use plimsoll_core::directive::OnSilence;
use plimsoll_core::law::presence::Presences;
use plimsoll_core::quantity::{Limit, Rate};
use plimsoll_core::quantity::DropRatio;
use plimsoll_core::quantity::MonoTime;

use super::{FastLoop, Moment};

/// What may pass of each key, clients and aggregators below together.
pub(super) struct Given {
    pub(super) on_hold: bool,
    /// Ratios follow from rates, not from the directive.
    pub(super) by_rates: bool,
    /// By the keys that have a directive, in their order: what may pass, and what the guards leave room for, in
    /// requests/s.
    pub(super) each: Vec<(Option<f64>, Option<f64>)>,
}

impl FastLoop {
    /// What the zone's clients are to be told of a bucket. O(K log K) for K keys with directives.
    pub(crate) fn directive(&mut self, bucket: &Bucket, posted: &Posted, moment: Moment) -> BucketDirective {
        let terms = Terms { presences: None, hold: None, clients: Some(moment.clients), ..*posted.terms() };
        let keys = match posted.terms().limit {
            Limit::Unlimited | Limit::Unknown => plain(posted, Values::default()),
            Limit::PerSecond(Rate::ZERO) => {
                let nothing = Some(Rate::ZERO);
                let ratio = Some(DropRatio::ALL);
                plain(posted, Values { ratio, guard: nothing, offered: nothing, ..Values::default() })
            }
            Limit::PerSecond(_) => {
                let now = self.on_grid(moment.now).unwrap_or_default();
                self.keys(bucket, posted, Moment { now, ..moment })
            }
        };
        BucketDirective { bucket: bucket.clone(), whole: true, terms, keys }
    }

    /// What may pass of each key, as of a moment on the grid.
    pub(super) fn given(&mut self, bucket: &Bucket, posted: &Posted, moment: Moment) -> Given {
        let on_hold = self.is_on_hold(bucket, moment.led);
        let terms = posted.terms();
        let keeps_ratio = on_hold
            && terms.on_silence == OnSilence::Ratio
            && posted.own(DEFAULT_TENANT).is_some_and(|values| values.ratio.is_some());
        if let Some(hold) = terms.hold.filter(|_| on_hold && !keeps_ratio) {
            let held = self.divide(bucket, posted, hold, moment.now);
            let each = held.into_iter().map(|held| (Some(held), Some(held))).collect();
            return Given { on_hold, by_rates: true, each };
        }
        let per_second = |rate: Option<Rate>| rate.map(Rate::per_second);
        let told = posted.keys().map(|(_, values)| (per_second(values.rate), per_second(values.cap)));
        Given { on_hold, by_rates: !on_hold, each: told.collect() }
    }

    fn keys(&mut self, bucket: &Bucket, posted: &Posted, moment: Moment) -> Vec<KeyDirective> {
        let given = self.given(bucket, posted, moment);
        let Some(members) = self.buckets.get(bucket) else { return Vec::new() };
        let mut keys = Vec::new();
        for ((tenant, values), (allowed, cap)) in posted.keys().zip(given.each) {
            let own = self.lane_of(members.by_tenant.get(tenant).copied());
            // With aggregators below, the clients have a part of what may pass, and their traffic is what it is for.
            let part = self.own.of(own);
            let (allowed, cap) = (allowed.map(|allowed| allowed * part), cap.map(|cap| cap * part));
            let lane = self.lanes.get_mut(own as usize);
            let parameters = &self.parameters;
            let (window, offered, factor) = match lane {
                Some(lane) => {
                    lane.cap = cap.unwrap_or_default();
                    let tells = lane.used && lane.young_until.is_none_or(|until| until <= moment.now);
                    (tells.then_some(&mut lane.window), lane.offered, lane.slack.factor())
                }
                None => (None, 0.0, parameters.slack_min),
            };
            let ratio = match allowed {
                Some(allowed) if given.by_rates => {
                    Some(fast_ratio(window, moment.now, allowed, given.on_hold, values.ratio, parameters))
                }
                _ => values.ratio,
            };
            let values = Values {
                ratio,
                guard: cap.and_then(|cap| told(cap * factor)),
                offered: told(offered),
                ..Values::default()
            };
            keys.push(KeyDirective { tenant: tenant.clone(), values });
        }
        keys
    }

    /// The zone's own division of what it lives on, by the keys that have a directive, in their order.
    fn divide(&mut self, bucket: &Bucket, posted: &Posted, hold: Rate, now: MonoTime) -> Vec<f64> {
        let parameters = self.parameters;
        let (ways, lanes, beyond) = (&self.ways, &mut self.lanes, &self.beyond);
        let Some(members) = self.buckets.get(bucket) else { return Vec::new() };
        let mut claimants: Vec<Claimant> = posted
            .keys()
            .map(|(tenant, values)| {
                let way = members.by_tenant.get(tenant).and_then(|id| ways.get(id.index()));
                let lane = way.and_then(|way| lanes.get_mut(way.own as usize));
                let beyond = way.and_then(|way| beyond.get(way.own as usize)).copied().unwrap_or_default();
                let entitlement = values.entitlement;
                let declared = entitlement.is_none_or(|entitlement| entitlement.declared);
                Claimant {
                    offered: lane.map_or(0.0, |lane| lane.rate(now, &parameters)) + beyond,
                    weight: entitlement.map_or(1.0, |entitlement| entitlement.weight.get()),
                    floor: entitlement.map_or(0.0, |entitlement| entitlement.floor.per_second()),
                    tenant_limit: entitlement
                        .and_then(|entitlement| entitlement.tenant_limit)
                        .map_or(f64::INFINITY, Rate::per_second),
                    class: match (tenant.is_default_class(), declared) {
                        (true, _) => Class::Default,
                        (false, true) => Class::Listed,
                        (false, false) => Class::Unlisted,
                    },
                }
            })
            .collect();
        let presences = posted.terms().presences.map_or(1.0, Presences::as_f64);
        divide_hold(&mut self.division, hold.per_second(), presences, &mut claimants, &parameters)
    }
}

/// A rate as it travels, in thousandths, so that a figure that fades away for ever is not told for ever.
pub(super) fn told(per_second: f64) -> Option<Rate> {
    Rate::new((per_second * 1e3).round() / 1e3).ok()
}

/// The same values for every key that has a directive.
fn plain(posted: &Posted, values: Values) -> Vec<KeyDirective> {
    posted.keys().map(|(tenant, _)| KeyDirective { tenant: tenant.clone(), values }).collect()
}
