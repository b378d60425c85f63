//! The current directives after messages of an aggregator, seen through the decisions of the
//! limiter.

mod canary;
mod coherent;
mod cold;
mod guards;
mod kills;
mod model;
mod multi;
mod plans;
mod quotas;
mod reasons;
mod waits;

use super::*;
use crate::BeforePolicy;
use crate::hot::decision::DecideCtx;
use crate::hot::rng::SeededDraws;
use crate::hot::thread_counters::Counters;
use crate::subscription::assignment::EndpointId;
use plimsoll_core::decision::{Coin, Verdict};
use plimsoll_core::directive::{
    BucketDirective, Directives, Epoch, KeyDirective, StaleDirective, Terms, Unlisted, Values,
};
use plimsoll_core::exchange::Child;
use plimsoll_core::kill::{Kill, KillGeneration};
use plimsoll_core::names::{Name, Tenant, Zone};
use plimsoll_core::quantity::{DropRatio, Limit};
use plimsoll_core::report::{Echo, InstanceId, Role};
use plimsoll_core::rollout::{Cohort, Percent};

struct TestClient {
    table: Arc<Table>,
    subscription: Subscription,
    slab: Arc<Counters>,
    draws: SeededDraws,
    seq: u64,
    now: MonoTime,
}

fn api() -> Bucket {
    Bucket::new("api").unwrap()
}

fn now() -> MonoTime {
    MonoTime::from_elapsed(Duration::from_secs(1))
}

fn rate(per_second: f64) -> Rate {
    Rate::new(per_second).unwrap()
}

fn limited(mode: Mode) -> Terms {
    Terms {
        limit: Limit::PerSecond(rate(100.0)),
        mode,
        ..Terms::default()
    }
}

fn enforced_with(limit: Limit) -> Terms {
    Terms {
        limit,
        ..limited(Mode::Enforce)
    }
}

fn ratio(share: impl Into<Option<f64>>) -> Values {
    let units = |share| DropRatio::new((share * f64::from(DropRatio::ONE)) as u32).unwrap();
    Values {
        ratio: share.into().map(units),
        ..Values::default()
    }
}

impl TestClient {
    fn new() -> Self {
        Self::named("host:1")
    }

    fn named(name: &str) -> Self {
        Self::greeted(Self::fresh(name))
    }

    /// A limiter of this decision about buckets without a policy.
    fn before_policy(decision: BeforePolicy) -> Self {
        let mut table = Table::new(100, 0, 7);
        table.before_policy = decision.word();
        Self::greeted(Self::on("host:1", table))
    }

    fn greeted(mut client: Self) -> Self {
        client.table.declare("api").unwrap();
        client.subscription.on_open(now());
        client.subscription.report(now());
        client.answer();
        client
    }

    fn answer(&mut self) {
        let session = self.subscription.sessions.get_mut(ONLY).unwrap();
        session.acknowledge(Echo::default(), Some(InstanceId(2)));
    }

    fn fresh(name: &str) -> Self {
        Self::on(name, Table::new(100, 0, 7))
    }

    fn on(name: &str, table: Table) -> Self {
        let table = Arc::new(table);
        let identity = Identity {
            instance: InstanceId(1),
            name: Name::new(name).unwrap(),
            service: Name::new("shop").unwrap(),
            zone: Zone::new("a").unwrap(),
            role: Role::Client,
        };
        let subscription = Subscription::new(identity, Arc::clone(&table));
        let slab = table.counters.add_shard();
        Self {
            table,
            subscription,
            slab,
            draws: SeededDraws::new(7),
            seq: 0,
            now: now(),
        }
    }

    fn message(&mut self, terms: Terms, keys: &[(&str, Values)]) -> Directives {
        self.seq += 1;
        let key = |(tenant, values): &(&str, Values)| KeyDirective {
            tenant: Tenant::new(tenant).unwrap(),
            values: *values,
        };
        let directive = BucketDirective {
            bucket: api(),
            whole: true,
            terms,
            keys: keys.iter().map(key).collect(),
        };
        Directives {
            lead: Epoch(5).into(),
            seq: self.seq,
            buckets: vec![directive],
            ..Directives::default()
        }
    }

    fn direct(&mut self, terms: Terms, keys: &[(&str, Values)]) {
        let message = self.message(terms, keys);
        self.receive(message).unwrap();
    }

    fn enforce(&mut self, keys: &[(&str, Values)]) {
        self.direct(limited(Mode::Enforce), keys);
    }

    fn receive(&mut self, message: Directives) -> Result<(), StaleDirective> {
        self.subscription.on_directives(self.now, message)
    }

    fn admit(&mut self, tenant: &str) -> Verdict {
        self.admit_in("api", tenant)
    }

    fn admit_in(&mut self, bucket: &str, tenant: &str) -> Verdict {
        let target = self.table.target_by_names(bucket, tenant).unwrap();
        self.table.decide(
            target,
            DecideCtx {
                counters: self.slab.block(0),
                draws: &mut self.draws,
            },
        )
    }

    fn refused(&mut self, tenant: &str) -> f64 {
        let refused = (0..10_000)
            .filter(|_| self.admit(tenant) != Verdict::Admit)
            .count();
        refused as f64 / 10_000.0
    }

    #[track_caller]
    fn check(&mut self, expected: &[(&str, f64)]) {
        for (tenant, share) in expected {
            let got = self.refused(tenant);
            assert!(
                (got - share).abs() < 0.02,
                "{tenant}: {got} refused, not {share}"
            );
        }
    }

    fn counts(&mut self) -> Counts {
        self.subscription
            .counts()
            .into_values()
            .fold(Counts::ZERO, Counts::plus)
    }
}

#[test]
fn missing_directives_admit_and_count_everything() {
    let mut client = TestClient::new();
    client.check(&[("acme", 0.0)]);
    assert_eq!(
        client.counts(),
        Counts {
            offered: 10_000,
            ..Counts::ZERO
        }
    );
}

#[test]
fn tenant_without_directive_follows_the_default_class() {
    let mut client = TestClient::new();
    client.enforce(&[("acme", ratio(0.9)), ("default", ratio(0.3))]);
    client.check(&[
        ("acme", 0.9),
        ("stranger", 0.3),
        ("default", 0.3),
        ("not a name", 0.3),
    ]);
    client.enforce(&[("acme", ratio(0.0)), ("default", ratio(1.0))]);
    client.check(&[("acme", 0.0), ("stranger", 1.0)]);
}

#[test]
fn absent_ratio_keeps_the_ratio_in_force() {
    let mut client = TestClient::new();
    client.enforce(&[("acme", ratio(0.9)), ("default", ratio(0.3))]);
    client.enforce(&[("acme", ratio(None)), ("default", ratio(None))]);
    client.check(&[("acme", 0.9), ("stranger", 0.3)]);
}

#[test]
fn delisted_tenant_returns_to_the_default_class() {
    let mut client = TestClient::new();
    client.enforce(&[("acme", ratio(0.9)), ("default", ratio(0.3))]);
    client.enforce(&[("default", ratio(0.3))]);
    client.check(&[("acme", 0.3)]);
}

#[test]
fn limit_without_a_number_clears_every_ratio() {
    for cleared in [Limit::Unknown, Limit::Unlimited] {
        let mut client = TestClient::new();
        client.enforce(&[("acme", ratio(0.9)), ("default", ratio(1.0))]);
        client.direct(
            enforced_with(cleared),
            &[("acme", ratio(None)), ("default", ratio(None))],
        );
        client.check(&[("acme", 0.0), ("stranger", 0.0)]);
    }
}

#[test]
fn shadow_and_canary_count_would_drops() {
    for mode in [Mode::Shadow, Mode::Canary] {
        let mut client = TestClient::new();
        client.direct(limited(mode), &[("default", ratio(0.5))]);
        client.check(&[("stranger", 0.0)]);
        let counts = client.counts();
        assert!((4_500..5_500).contains(&counts.would_dropped), "{counts:?}");
        assert_eq!(counts.refused() + counts.would_guard_dropped, 0);
    }
}

#[test]
fn only_cohort_instances_refuse_in_canary() {
    let cohort = Cohort {
        percent: Percent::new(30.0).unwrap(),
        salt: 9,
    };
    let mut enforcing = 0;
    for instance in 0..60 {
        let name = format!("shop-{instance}:8080");
        let mut client = TestClient::named(&name);
        client.direct(
            Terms {
                cohort,
                ..limited(Mode::Canary)
            },
            &[("default", ratio(1.0))],
        );
        let refuses = !client.admit("acme").is_admit();
        assert_eq!(
            refuses,
            cohort.contains(&Name::new(&name).unwrap()),
            "{name}"
        );
        let counts = client.counts();
        assert_eq!(
            (counts.dropped, counts.would_dropped),
            (u64::from(refuses), u64::from(!refuses))
        );
        enforcing += usize::from(refuses);
        client.enforce(&[("default", ratio(1.0))]);
        assert!(!client.admit("acme").is_admit(), "{name}");
    }
    assert!((8..30).contains(&enforcing), "{enforcing} of 60");
}

#[test]
fn decisions_use_the_directed_coin() {
    // Of 1,000 requests at one half, an evenly spread coin is at most 2 off; an independent one is 16 off at
    // one standard deviation.
    let strays = |coin| {
        let mut client = TestClient::new();
        client.direct(
            Terms {
                coin,
                ..limited(Mode::Enforce)
            },
            &[("default", ratio(0.5))],
        );
        let runs: Vec<u64> = (0..20)
            .map(|_| {
                (0..1_000)
                    .map(|_| u64::from(client.admit("acme").is_admit()))
                    .sum::<u64>()
                    .abs_diff(500)
            })
            .collect();
        runs.into_iter().max().unwrap()
    };
    assert!(strays(Coin::Dithered) <= 2);
    assert!(
        strays(Coin::Coherent) > 10,
        "a request without a trace is decided independently"
    );
}

#[test]
fn tenants_without_keys_share_a_coin() {
    let mut client = TestClient::new();
    client.enforce(&[("default", ratio(0.99))]);
    let admitted = (0..90)
        .filter(|n| client.admit(&format!("once-{n}")).is_admit())
        .count();
    assert!(
        admitted <= 2,
        "{admitted} of 90 tenants, with one request each, at 1 %"
    );
}

#[test]
fn only_a_later_generation_ends_kills() {
    let mut client = TestClient::new();
    client.enforce(&[("acme", ratio(1.0)), ("default", ratio(1.0))]);
    let with_kill = |client: &mut TestClient, epoch: u64, generation: u64, known: u64| {
        let kill = Kill {
            fleet: KillGeneration(known),
            bucket: KillGeneration(0),
        };
        let terms = Terms {
            kill,
            ..limited(Mode::Enforce)
        };
        let message = client.message(terms, &[("acme", ratio(None)), ("default", ratio(None))]);
        let message = Directives {
            lead: Epoch(epoch).into(),
            kills: KillGeneration(generation).into(),
            ..message
        };
        client.receive(message)
    };
    // From an older epoch: its directives are stale, its kill is not.
    with_kill(&mut client, 1, 3, 0).unwrap_err();
    client.check(&[("acme", 0.0), ("stranger", 0.0)]);
    assert_eq!(client.subscription.mode_of(&api()), Some(Mode::Shadow));
    with_kill(&mut client, 5, 2, 2).unwrap();
    client.check(&[("acme", 0.0)]);
    // The end of the kill does not bring back a mode that was decided before it.
    with_kill(&mut client, 5, 4, 2).unwrap();
    client.check(&[("acme", 0.0)]);
    with_kill(&mut client, 5, 4, 4).unwrap();
    client.check(&[("acme", 1.0), ("stranger", 1.0)]);
}

#[test]
fn stale_messages_change_nothing_and_are_counted() {
    let mut client = TestClient::new();
    client.enforce(&[("default", ratio(1.0))]);
    let older = client.message(limited(Mode::Enforce), &[("default", ratio(0.0))]);
    let from_older_epoch = Directives {
        lead: Epoch(4).into(),
        ..older.clone()
    };
    client.receive(from_older_epoch.clone()).unwrap_err();
    client.receive(Directives { seq: 1, ..older }).unwrap_err();
    let poisoned = Directives {
        seq: 9,
        ..client.message(limited(Mode::Enforce), &[("default", ratio(0.0))])
    };
    let too_high = Directives {
        lead: Epoch(u64::MAX).into(),
        ..poisoned.clone()
    };
    client.receive(too_high).unwrap_err();
    let too_killed = Directives {
        kills: KillGeneration(u64::MAX).into(),
        ..poisoned
    };
    client.receive(too_killed).unwrap_err();
    // A new stream does not make an old epoch valid.
    client.subscription.on_open(now());
    client
        .receive(Directives {
            seq: 1,
            ..from_older_epoch
        })
        .unwrap_err();
    assert_eq!(client.subscription.rejected, 5);
    client.check(&[("stranger", 1.0)]);
}

#[test]
fn directive_without_a_subscription_takes_no_room() {
    let mut client = TestClient::new();
    let mut message = client.message(limited(Mode::Enforce), &[("default", ratio(1.0))]);
    message.buckets[0].bucket = Bucket::new("other").unwrap();
    client.receive(message).unwrap();
    let Subscription {
        directives,
        enforcement,
        ..
    } = &client.subscription;
    assert_eq!(directives.snapshot(&[], &enforcement.kills).buckets, []);
}

#[test]
fn subscriptions_repeat_per_stream_while_counts_continue() {
    let mut client = TestClient::new();
    client.check(&[("acme", 0.0)]);
    let report = client.subscription.report(now());
    assert_eq!(
        (report.subscriptions.added.len(), report.greeting.identity),
        (0, None)
    );
    client.subscription.on_open(now());
    client.check(&[("acme", 0.0)]);
    let greeting = client.subscription.report(now());
    assert_eq!(
        (
            greeting.seq,
            greeting.subscriptions.added.len(),
            greeting.greeting.identity.is_some()
        ),
        (1, 1, true)
    );
    assert_eq!((greeting.definitions.len(), greeting.tallies.len()), (0, 0));
    client.answer();
    let report = client.subscription.report(now());
    let offered: u64 = report
        .tallies
        .iter()
        .map(|(_, tally)| tally.counts.offered)
        .sum();
    let sent: u64 = report
        .definitions
        .values()
        .map(|definition| definition.sent.offered)
        .sum();
    assert_eq!(
        (offered, sent),
        (20_000, 10_000),
        "totals continue, and the definitions say how much was sent"
    );
    let counted = report
        .definitions
        .values()
        .filter(|definition| definition.sent.offered > 0);
    assert!(counted.clone().count() > 0 && counted.clone().all(|definition| definition.continues));
}

#[test]
fn new_policy_renews_the_subscriptions() {
    let mut client = TestClient::new();
    client.subscription.report(now());
    for (hash, subscribed) in [(1, 0), (1, 0), (2, 1), (2, 0)] {
        let mut message = client.message(limited(Mode::Enforce), &[]);
        message.lead.policy_hash = Some(hash);
        client.receive(message).unwrap();
        assert_eq!(
            client.subscription.report(now()).subscriptions.added.len(),
            subscribed,
            "{hash}"
        );
    }
}

#[test]
fn controller_state_ages_by_the_local_clock() {
    let mut client = TestClient::new();
    assert_eq!(client.subscription.upstream_age(now()), None);
    let message = client.message(limited(Mode::Enforce), &[]);
    let message = Directives {
        upstream_age: Some(Duration::from_secs(7)),
        ..message
    };
    client.receive(message).unwrap();
    let age = client
        .subscription
        .upstream_age(now() + Duration::from_secs(5));
    assert_eq!(age, Some(Duration::from_secs(12)));
}

#[test]
fn unknown_bucket_suggests_the_nearest() {
    let (mut client, api) = (TestClient::new(), api());
    assert_eq!(
        (
            client.table.problems.list(),
            client.subscription.mode_of(&api)
        ),
        (vec![], None)
    );
    let nearest = Bucket::new("apis").unwrap();
    let unlisted = |nearest| Terms {
        unlisted: Some(Unlisted::new(nearest)),
        ..Terms::default()
    };
    client.direct(unlisted(Some(&nearest)), &[]);
    let problem = SetupProblem::UnknownBucket {
        bucket: "api".to_owned(),
        nearest: Some("apis".to_owned()),
    };
    assert_eq!(client.table.problems.list(), std::slice::from_ref(&problem));
    for word in ["`api`", "did you mean `apis`", "policy"] {
        assert!(problem.to_string().contains(word), "{problem}");
    }
    assert_eq!(client.subscription.mode_of(&api), None);
    assert!(client.admit("acme").is_admit());

    // A limit that is just not known yet, and one of a controller that does not send which buckets it lists.
    client.direct(
        Terms {
            limit: Limit::Unknown,
            ..Terms::default()
        },
        &[],
    );
    assert_eq!(
        (
            client.table.problems.list(),
            client.subscription.mode_of(&api)
        ),
        (vec![], Some(Mode::Shadow))
    );
}
