//! Directives for clients: the ratio and the guard of each key, from the rates of the controller and the
//! latest traffic.

use plimsoll_core::directive::{BucketDirective, KeyDirective, OnSilence, Posted, Terms, Values};
use plimsoll_core::law::presence::Presences;
use plimsoll_core::law::{Claimant, Class, divide_hold, fast_ratio};
use plimsoll_core::names::{Bucket, DEFAULT_TENANT};
use plimsoll_core::quantity::{DropRatio, Limit, MonoTime, Rate};

use super::{Context, FastLoop};

/// The rates that may pass, for clients and child aggregators together.
pub(super) struct Allowances {
    pub(super) on_hold: bool,
    /// True if ratios follow from the rates here, false if they are those of the directive.
    pub(super) by_rates: bool,
    /// For each key with a directive, in their order: the allowed rate and the cap of the guards, in
    /// requests/s.
    pub(super) by_key: Vec<(Option<f64>, Option<f64>)>,
}

impl FastLoop {
    /// The directive of a bucket for clients. O(K log K) for K keys with directives.
    pub(crate) fn directive(
        &mut self,
        bucket: &Bucket,
        posted: &Posted,
        context: Context,
    ) -> BucketDirective {
        let terms = Terms {
            presences: None,
            hold: None,
            headroom: None,
            clients: Some(context.clients),
            ..*posted.terms()
        };
        let keys = match posted.terms().limit {
            Limit::Unlimited | Limit::Unknown => same_for_all(posted, Values::default()),
            Limit::PerSecond(Rate::ZERO) => {
                let nothing = Some(Rate::ZERO);
                let ratio = Some(DropRatio::ALL);
                same_for_all(posted, Values { ratio, guard: nothing, offered: nothing, ..Values::default() })
            }
            Limit::PerSecond(_) => {
                let now = self.clock.on_grid(context.now).unwrap_or_default();
                self.keys(bucket, posted, Context { now, ..context })
            }
        };
        BucketDirective { bucket: bucket.clone(), whole: true, terms, keys }
    }

    /// The allowances of a bucket at a time on the grid.
    pub(super) fn allowances(&mut self, bucket: &Bucket, posted: &Posted, context: Context) -> Allowances {
        let on_hold = self.is_on_hold(bucket, context.led);
        let terms = posted.terms();
        let keeps_ratio = on_hold
            && terms.on_silence == OnSilence::Ratio
            && posted.own(DEFAULT_TENANT).is_some_and(|values| values.ratio.is_some());
        if let Some(hold) = terms.hold.filter(|_| on_hold && !keeps_ratio) {
            let rates = self.divide(bucket, posted, hold, context.now);
            let by_key = rates.into_iter().map(|rate| (Some(rate), Some(rate))).collect();
            return Allowances { on_hold, by_rates: true, by_key };
        }
        let per_second = |rate: Option<Rate>| rate.map(Rate::per_second);
        let by_key = posted.keys().map(|(_, values)| (per_second(values.rate), per_second(values.cap)));
        Allowances { on_hold, by_rates: !on_hold, by_key: by_key.collect() }
    }

    fn keys(&mut self, bucket: &Bucket, posted: &Posted, context: Context) -> Vec<KeyDirective> {
        let allowances = self.allowances(bucket, posted, context);
        debug_assert!(self.buckets.contains_key(bucket), "{bucket} has directives and no keys");
        let Some(bucket_keys) = self.buckets.get(bucket) else { return Vec::new() };
        let mut keys = Vec::new();
        for ((tenant, values), (allowed, cap)) in posted.keys().zip(allowances.by_key) {
            let slot = self.slot_of(bucket_keys.by_tenant.get(tenant).copied());
            // With child aggregators the clients have a share of what may pass, for their own traffic.
            let share = self.client_shares.of(slot);
            let (allowed, cap) = (allowed.map(|allowed| allowed * share), cap.map(|cap| cap * share));
            let parameters = &self.parameters;
            let (window, offered, factor) = match self.rates.get_mut(slot as usize) {
                Some(rates) => {
                    rates.cap = cap.unwrap_or_default();
                    let is_known = rates.used && rates.young_until.is_none_or(|until| until <= context.now);
                    (is_known.then_some(&mut rates.window), rates.offered, rates.slack.factor())
                }
                None => (None, 0.0, parameters.slack_min),
            };
            let ratio = match allowed {
                Some(allowed) if allowances.by_rates => Some(fast_ratio(
                    window,
                    context.now,
                    allowed,
                    allowances.on_hold,
                    values.ratio,
                    parameters,
                )),
                _ => values.ratio,
            };
            let values = Values {
                ratio,
                guard: cap.and_then(|cap| rounded(cap * factor)),
                offered: rounded(offered),
                ..Values::default()
            };
            keys.push(KeyDirective { tenant: tenant.clone(), values });
        }
        keys
    }

    /// Divides the hold between the keys that have a directive. The result is in their order.
    fn divide(&mut self, bucket: &Bucket, posted: &Posted, hold: Rate, now: MonoTime) -> Vec<f64> {
        let parameters = self.parameters;
        let Some(bucket_keys) = self.buckets.get(bucket) else { return Vec::new() };
        let by_tenant = &bucket_keys.by_tenant;
        let slots = posted.keys().map(|(tenant, _)| self.slot_of(by_tenant.get(tenant).copied()));
        let slots: Vec<u32> = slots.collect();
        let mut claimants: Vec<Claimant> = posted
            .keys()
            .zip(slots)
            .map(|((tenant, values), slot)| {
                let own = self.rates.get_mut(slot as usize).map_or(0.0, |rates| rates.rate(now, &parameters));
                let entitlement = values.entitlement;
                let declared = entitlement.is_none_or(|entitlement| entitlement.declared);
                Claimant {
                    offered: own + self.aggregator_rates.get(slot as usize).copied().unwrap_or_default(),
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

/// A rate in thousandths of requests/s, as directives carry it: a rate that fades towards zero reaches it and
/// is not sent for ever.
pub(super) fn rounded(per_second: f64) -> Option<Rate> {
    Rate::new((per_second * 1e3).round() / 1e3).ok()
}

/// Gives every key that has a directive equal values.
fn same_for_all(posted: &Posted, values: Values) -> Vec<KeyDirective> {
    posted.keys().map(|(tenant, _)| KeyDirective { tenant: tenant.clone(), values }).collect()
}
