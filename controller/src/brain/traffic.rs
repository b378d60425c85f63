//! A record of the traffic of the last minutes, and the trial of a changed policy on it: guardrails and forecasts judge
//! the effect of a change so.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::decision::Mode;
use plimsoll_core::names::{Bucket, Key, Tenant};
use plimsoll_core::quantity::{Limit, MonoTime};
use plimsoll_policy::{Forecast, Offered, Policy, Regime, forecast, reasons_to_hold};

use super::Brain;
use crate::state::DurableState;

/// Interval of the moments.
const EVERY: Duration = Duration::from_secs(10);
/// Number of moments kept: five minutes, less if policies were offered in them.
pub(crate) const MOMENTS_MAX: usize = 30;
/// Maximum number of keys of one moment: the keys with the most traffic. The others count as the
/// class `default` of their bucket.
pub(crate) const TRAFFIC_KEYS_MAX: usize = 2_000;
/// Requests/s below which a key is left out.
const RATE_MIN: f64 = 0.01;

#[derive(Debug, Default)]
pub(super) struct TrafficRecord {
    moments: VecDeque<Arc<Offered>>,
    last: Option<MonoTime>,
}

/// The current policy and an offered one, with all that their effects are judged by. It is apart from the brain: to judge
/// many tenants takes longer than a decision may.
#[derive(Debug)]
pub(crate) struct Trial {
    moments: Vec<Arc<Offered>>,
    /// The time of day at which boosts count; the earliest one before the first tick of any process.
    unix_s: i64,
    current: Tried,
    offered: Tried,
}

/// A policy with the limits and the stages that it has or would have.
#[derive(Debug)]
struct Tried {
    policy: Arc<Policy>,
    limits: BTreeMap<Bucket, Limit>,
    stages: BTreeMap<String, Mode>,
}

// === impl Trial ===

impl Trial {
    /// The reasons of guardrails to hold the offered policy back.
    pub(crate) fn reasons(&self) -> Vec<String> {
        self.judge(|before, after, moments| reasons_to_hold(before, after, moments, self.unix_s))
    }

    /// What the offered policy would refuse, beside what the current one refuses.
    pub(crate) fn forecast(&self) -> Forecast {
        self.judge(|before, after, moments| forecast(before, after, moments, self.unix_s))
    }

    fn judge<T>(&self, judge: impl FnOnce(&Regime<'_>, &Regime<'_>, Vec<&Offered>) -> T) -> T {
        let moments = self.moments.iter().map(Arc::as_ref).collect();
        self.current.with_regime(|before| {
            self.offered
                .with_regime(|after| judge(before, after, moments))
        })
    }
}

impl Tried {
    fn with_regime<T>(&self, f: impl FnOnce(&Regime<'_>) -> T) -> T {
        f(&Regime {
            policy: &self.policy,
            limit: &|bucket| self.limits.get(bucket).copied().unwrap_or(Limit::Unknown),
            stage: &|entry| self.stages.get(entry).copied().unwrap_or(Mode::Shadow),
        })
    }
}

// === impl TrafficRecord ===

impl TrafficRecord {
    pub(super) fn restored(saved: &Offered) -> Self {
        Self {
            moments: VecDeque::from([Arc::new(saved.clone())]),
            last: None,
        }
    }

    fn is_due(&self, now: MonoTime) -> bool {
        self.last.is_none_or(|last| now.since(last) >= EVERY)
    }

    fn add(&mut self, now: MonoTime, offered: Offered) {
        self.last = Some(now);
        self.moments.push_back(Arc::new(offered));
        while self.moments.len() > MOMENTS_MAX {
            self.moments.pop_front();
        }
    }

    fn busiest(&self) -> Offered {
        let total = |offered: &&Arc<Offered>| {
            offered
                .values()
                .flat_map(|tenants| tenants.values())
                .sum::<f64>()
        };
        let busiest = self
            .moments
            .iter()
            .max_by(|one, other| total(one).total_cmp(&total(other)));
        busiest
            .map(|busiest| Offered::clone(busiest))
            .unwrap_or_default()
    }
}

// === impl Brain ===

impl Brain {
    pub(super) fn tick_traffic(&mut self, now: MonoTime) {
        if self.policies.traffic.is_due(now) {
            self.record_traffic(now);
        }
    }

    /// Adds a moment to the record of traffic. The state has the busiest moment, for the next
    /// start; it causes no save.
    pub(super) fn record_traffic(&mut self, now: MonoTime) {
        let offered = self.offered();
        self.policies.traffic.add(now, offered);
        self.durable.traffic = self.policies.traffic.busiest();
    }

    /// Collects what the effect of an offered policy is judged by.
    pub(crate) fn trial(&self, offered: &Arc<Policy>) -> Trial {
        let moments: Vec<Arc<Offered>> = self.policies.traffic.moments.iter().cloned().collect();
        let tried = |policy: Arc<Policy>, durable: &DurableState| {
            let exact = policy.exact_buckets().map(|(bucket, _)| bucket);
            let buckets = exact.chain(moments.iter().flat_map(|offered| offered.keys()));
            let limits = buckets.map(|bucket| (bucket.clone(), self.limits.of(&policy, bucket)));
            let stages = durable.stages.iter();
            Tried {
                limits: limits.collect(),
                stages: stages
                    .map(|(entry, stage)| (entry.clone(), stage.stage))
                    .collect(),
                policy,
            }
        };
        let mut durable = self.durable.clone();
        durable.on_policy(offered);
        let offered = tried(self.rows.list_in(Arc::clone(offered)), &durable);
        let current = tried(Arc::clone(&self.policies.in_force), &self.durable);
        // Before the first tick, boosts count as they did at the last tick before the restart.
        let unix_s = self.clock.unix_s.or(self.durable.ticked_s);
        Trial {
            unix_s: unix_s.unwrap_or(i64::MIN),
            current,
            offered,
            moments,
        }
    }

    fn offered(&self) -> Offered {
        let rate = |id| -> f64 {
            let rates = self.downstream.aggregators.iter();
            rates
                .map(|(_, aggregator)| aggregator.presence() * aggregator.rate(id))
                .sum()
        };
        let rated = self.keys.iter().map(|(id, key)| (rate(id), key));
        by_bucket(rated.filter(|(rate, _)| *rate >= RATE_MIN).collect())
    }
}

/// Returns the rates by bucket and tenant. The rates of keys beyond the maximum are added up in the
/// class `default` of their bucket.
fn by_bucket(mut rates: Vec<(f64, &Key)>) -> Offered {
    if rates.len() > TRAFFIC_KEYS_MAX {
        rates.select_nth_unstable_by(TRAFFIC_KEYS_MAX, |one, other| other.0.total_cmp(&one.0));
    }
    let mut offered = Offered::new();
    for (at, (rate, key)) in rates.into_iter().enumerate() {
        let tenant = if at < TRAFFIC_KEYS_MAX {
            key.tenant.clone()
        } else {
            Tenant::default_class()
        };
        *offered
            .entry(key.bucket.clone())
            .or_default()
            .entry(tenant)
            .or_default() += rate;
    }
    offered
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::names::Bucket;

    fn of(rate: f64) -> Offered {
        let tenants = [(Tenant::new("acme").unwrap(), rate)].into();
        [(Bucket::new("api").unwrap(), tenants)].into()
    }

    #[test]
    fn record_knows_five_minutes_and_the_busiest() {
        let mut record = TrafficRecord::restored(&of(1_000.0));
        let at = |moment: u32| MonoTime::from_elapsed(EVERY * moment);
        assert!(record.is_due(at(0)));
        record.add(at(0), of(500.0));
        assert!(!record.is_due(MonoTime::from_elapsed(EVERY - Duration::from_millis(1))));
        assert_eq!(
            record.busiest(),
            of(1_000.0),
            "the saved traffic counts as one moment"
        );
        for moment in 1..=MOMENTS_MAX as u32 {
            assert!(record.is_due(at(moment)));
            record.add(at(moment), of(f64::from(moment)));
        }
        assert_eq!(
            (record.moments.len(), record.busiest()),
            (MOMENTS_MAX, of(MOMENTS_MAX as f64))
        );
    }

    #[test]
    fn lighter_keys_count_as_the_default_class() {
        let key = |number: usize| Key {
            bucket: Bucket::new("api").unwrap(),
            tenant: Tenant::new(&format!("t{number}")).unwrap(),
        };
        let keys: Vec<Key> = (0..10_000).map(key).collect();
        let rate = |number: usize| if number == 9_999 { 50.0 } else { 1.0 };
        let offered = by_bucket(
            keys.iter()
                .enumerate()
                .map(|(number, key)| (rate(number), key))
                .collect(),
        );
        let tenants = &offered[&keys[0].bucket];
        assert_eq!(tenants.len(), TRAFFIC_KEYS_MAX + 1);
        assert_eq!(tenants[&keys[9_999].tenant], 50.0);
        assert_eq!(tenants[&Tenant::default_class()], 8_000.0);
        assert_eq!(
            tenants.values().sum::<f64>(),
            10_049.0,
            "no request is left out"
        );
    }
}
