//! Evidence from one hostile client does not decide the rollout of the fleet.

use std::time::Duration;

use plimsoll_aggregator::zone::Bounds;
use plimsoll_core::decision::Mode;
use plimsoll_core::exchange::{Parent, StreamId};
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{CohortKey, Evidence, Outcomes, Report, Role, Side};
use plimsoll_core::stats::{Bin, Histogram};
use plimsoll_policy::ONE_CLASS_TENANTS;

use super::pair::{Pair, identity};

const HONEST: u64 = 20;

/// A controller in canary, and a zone of clients that only report evidence.
struct World {
    pair: Pair,
    now: Duration,
    seq: u64,
}

impl World {
    fn new(max_drop_ratio: f64) -> Self {
        Self::of(&format!("canary: {{ max_drop_ratio: {max_drop_ratio} }}"))
    }

    fn of(rollout: &str) -> Self {
        let policy = format!(
            "buckets: {{ api: {{ limit: 1000, mode: canary }} }}\n\
             rollout: {{ require_gates: false, min_samples: 1, {rollout} }}\n"
        );
        let pair = Pair::new(&policy, ONE_CLASS_TENANTS, Bounds::default());
        let mut world = Self {
            pair,
            now: Duration::ZERO,
            seq: 0,
        };
        (0..20).for_each(|_| world.pass(&Outcomes::default(), &Outcomes::default()));
        world
    }

    /// Advances half a second. Each honest client and the hostile client report these outcomes.
    fn pass(&mut self, honest: &Outcomes, hostile: &Outcomes) {
        self.now += Duration::from_millis(500);
        self.seq += 1;
        let now = MonoTime::from_elapsed(self.now);
        let bucket = Bucket::new("api").unwrap();
        for client in 0..=HONEST {
            let outcomes = if client == HONEST { hostile } else { honest };
            let cohort = CohortKey {
                bucket: bucket.clone(),
                mode: Mode::Canary,
                side: Side::Canary,
            };
            let mut evidence = Evidence::default();
            if !outcomes.is_empty() {
                evidence.add(&cohort, outcomes, 1);
            }
            let report = Report {
                seq: self.seq,
                greeting: (self.seq == 1)
                    .then(|| identity(Role::Client, client.into()))
                    .into(),
                time: Some(now),
                subscriptions: if self.seq == 1 {
                    vec![bucket.clone()]
                } else {
                    Vec::new()
                }
                .into(),
                evidence,
                ..Report::default()
            };
            self.pair
                .zone
                .on_report(now, StreamId(client), report)
                .unwrap();
        }
        self.pair.zone.on_tick(now);
        self.pair.roll_up(now);
    }

    /// Returns the mode that the zone was sent, after a minute of these outcomes.
    fn mode_after_a_minute(&mut self, honest: &Outcomes, hostile: &Outcomes) -> Option<Mode> {
        (0..120).for_each(|_| self.pass(honest, hostile));
        let now = MonoTime::from_elapsed(self.now);
        let message = self.pair.zone.directives(now, StreamId(0))?;
        message.buckets.first().map(|bucket| bucket.terms.mode)
    }
}

/// The maximum claim that is not cut as impossible, and a larger claim.
const CLAIMS: [u64; 2] = [400_000, 1_000_000_000];

#[test]
fn claimed_failures_count_by_client_weight() {
    for claimed in CLAIMS {
        let honest = Outcomes {
            offered: 100,
            ..Outcomes::default()
        };
        let hostile = Outcomes {
            offered: claimed,
            refused: claimed,
            ..Outcomes::default()
        };
        // 500 of 2,500 count as refused.
        let mode = World::new(0.25).mode_after_a_minute(&honest, &hostile);
        assert_eq!(
            mode,
            Some(Mode::Canary),
            "{claimed} refusals end the canary"
        );
        let mode = World::new(0.15).mode_after_a_minute(&honest, &hostile);
        assert_eq!(
            mode,
            (claimed < 1_000_000_000)
                .then_some(Mode::Shadow)
                .or(Some(Mode::Canary))
        );
    }
}

#[test]
fn unobserved_claim_replaces_no_reported_latency() {
    let slow = {
        let mut latency = Histogram::default();
        latency.add(Bin::of(Duration::from_secs(2)), 1);
        latency
    };
    let honest = Outcomes {
        offered: 100,
        ..Outcomes::default()
    };
    let behind_proxy = Outcomes {
        unobserved: 100,
        ..honest.clone()
    };
    let observing = Outcomes {
        latency: slow,
        ..honest.clone()
    };
    let claimed = Outcomes {
        offered: 400_000,
        unobserved: 400_000,
        ..Outcomes::default()
    };
    for (of, other, mode) in [
        // Only the canary is observed, so its gate waits, and one client cannot end that.
        (&observing, &claimed, Mode::Canary),
        (&behind_proxy, &observing, Mode::Canary),
        (&behind_proxy, &behind_proxy, Mode::Enforce),
        (&honest, &honest, Mode::Canary),
    ] {
        let mut world =
            World::of("auto_promote: true, canary: { min_hours: 0.005, window_min: 1 }");
        assert_eq!(
            world.mode_after_a_minute(of, other),
            Some(mode),
            "{of:?} and {other:?}"
        );
    }
}
