//! Sums of counts: the controller accepts the roll-ups of an aggregator, regardless of the reports
//! of its two children.

use std::time::Duration;

use plimsoll_aggregator::zone::Bounds;
use plimsoll_core::exchange::{Parent, StreamId};
use plimsoll_core::names::{Bucket, Key, KeyId, Tenant};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{ClientCounts, Counts, Identity, KeyDefinition, Report, Role, Tally};
use plimsoll_policy::ONE_CLASS_TENANTS;
use proptest::collection::vec;
use proptest::prelude::*;

use super::pair::{Pair, identity};

const TENANTS: [&str; 3] = ["default", "acme", "other"];

struct World {
    pair: Pair,
    now: Duration,
    streams: u64,
}

impl World {
    fn new(decisions_per_s_max: u64) -> Self {
        let text =
            "buckets: { api: { limit: 1000, mode: enforce } }\nrollout: { require_gates: false }\n";
        let bounds = Bounds {
            decisions_per_s_max,
            tenants_per_bucket_max: 2,
            ..Bounds::default()
        };
        let pair = Pair::new(text, ONE_CLASS_TENANTS, bounds);
        let mut world = Self {
            pair,
            now: Duration::ZERO,
            streams: 0,
        };
        world.roll_up();
        world
    }

    fn at(&self) -> MonoTime {
        MonoTime::from_elapsed(self.now)
    }

    fn roll_up(&mut self) {
        let now = self.at();
        self.pair.zone.on_tick(now);
        self.pair.roll_up(now);
    }

    /// Returns the requests of all keys that the zone has counted.
    fn counted(&self) -> u128 {
        self.pair
            .zone
            .counts()
            .map(|(_, counts)| u128::from(counts.offered) + u128::from(counts.quota_repeated))
            .sum()
    }
}

/// A child with arbitrary reports.
struct Liar {
    identity: Identity,
    stream: Option<StreamId>,
    seq: u64,
    clients: u32,
    tallies: [Tally; TENANTS.len()],
}

impl Liar {
    fn new(role: Role, instance: u128) -> Self {
        let identity = identity(role, instance);
        Self {
            identity,
            stream: None,
            seq: 0,
            clients: 1,
            tallies: [Tally::ZERO; TENANTS.len()],
        }
    }

    /// Sends a report, on a new stream if the last one was refused.
    fn send(&mut self, world: &mut World, sent: u64, continues: bool) -> bool {
        let mut report = Report {
            time: Some(world.at()),
            clients: ClientCounts {
                connected: self.clients,
                ..ClientCounts::default()
            },
            ..Report::default()
        };
        let stream = *self.stream.get_or_insert_with(|| {
            world.streams += 1;
            self.seq = 0;
            report.greeting.identity = Some(self.identity.clone());
            let bucket = Bucket::new("api").unwrap();
            let definition = |tenant: &str, tally: &Tally| KeyDefinition {
                key: Key {
                    bucket: bucket.clone(),
                    tenant: Tenant::new(tenant).unwrap(),
                },
                base: Counts::ZERO,
                sent: Counts {
                    offered: sent.min(tally.counts.offered),
                    ..Counts::ZERO
                },
                continues,
            };
            let definitions = TENANTS.iter().zip(&self.tallies).zip((0..).map(KeyId));
            report.definitions = definitions
                .map(|((tenant, tally), id)| (id, definition(tenant, tally)))
                .collect();
            StreamId(world.streams)
        });
        self.seq += 1;
        report.seq = self.seq;
        report.tallies = (0..).map(KeyId).zip(self.tallies).collect();
        let is_accepted = world
            .pair
            .zone
            .on_report(world.at(), stream, report)
            .is_ok();
        if !is_accepted {
            world.pair.zone.on_close(world.at(), stream);
            self.stream = None;
        }
        is_accepted
    }
}

#[derive(Clone, Debug)]
struct Step {
    liar: usize,
    ms: u64,
    tenant: usize,
    grows: [u64; 9],
    late: bool,
    clients: u32,
    /// Claim of a new stream about earlier counts.
    sent: u64,
    continues: bool,
    reconnects: bool,
    rolls_up: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let count = || prop_oneof![3 => 0..100u64, 1 => Just(u64::MAX / 2), 1 => any::<u64>()];
    let grows: [_; 9] = std::array::from_fn(|_| count());
    let who = (
        0..2usize,
        0..2_000u64,
        0..TENANTS.len(),
        prop_oneof![0..9u32, any::<u32>()],
    );
    let chances = (
        any::<bool>(),
        any::<bool>(),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.3),
    );
    (who, grows, count(), chances).prop_map(
        |((liar, ms, tenant, clients), grows, sent, (late, continues, reconnects, rolls_up))| {
            Step {
                liar,
                ms,
                tenant,
                grows,
                late,
                clients,
                sent,
                continues,
                reconnects,
                rolls_up,
            }
        },
    )
}

/// Returns the counts after they grew, made consistent: the interesting reports are the ones that
/// pass the checks.
fn grown(held: Tally, step: &Step) -> Tally {
    let mut counts = held.counts.plus(Counts::of_columns(step.grows));
    if !counts.is_consistent() {
        let offered = counts.offered;
        let quota_repeated = counts.quota_repeated.min(u64::MAX - offered);
        counts = Counts {
            offered,
            quota_repeated: quota_repeated.max(held.counts.quota_repeated),
            ..held.counts
        };
        let room = counts.passed() - counts.quota_dropped - counts.would_quota_dropped;
        let column = match (step.late, step.grows[5].is_multiple_of(2)) {
            (true, true) => &mut counts.dropped,
            (true, false) => &mut counts.quota_dropped,
            (false, true) => &mut counts.would_dropped,
            (false, false) => &mut counts.would_quota_dropped,
        };
        *column += room;
    }
    let late = if step.late { counts } else { held.late };
    Tally { counts, late }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn roll_up_survives_any_two_reports(
        steps in vec(step(), 1..60),
        roles in (any::<bool>(), any::<bool>()),
        believed in prop_oneof![Just(1_u64), Just(1_000_000), Just(1_000_000_000)],
    ) {
        let role = |is_aggregator| if is_aggregator { Role::Aggregator } else { Role::Client };
        let mut world = World::new(believed);
        let mut liars = [Liar::new(role(roles.0), 11), Liar::new(role(roles.1), 12)];
        for step in steps {
            world.now += Duration::from_millis(step.ms);
            let liar = &mut liars[step.liar];
            liar.clients = step.clients;
            liar.tallies[step.tenant] = grown(liar.tallies[step.tenant], &step);
            if step.reconnects && let Some(stream) = liar.stream.take() {
                world.pair.zone.on_close(world.at(), stream);
            }
            liar.send(&mut world, step.sent, step.continues);
            if step.rolls_up {
                world.roll_up();
            }
        }
        world.now += Duration::from_secs(40);
        world.roll_up();
        prop_assert!(world.counted() <= u128::from(u64::MAX));
    }
}
