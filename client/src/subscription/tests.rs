//! What a limiter holds after which messages, seen through the decisions it makes.

use super::*;
use plimsoll_core::bucket::{Name, Zone};
use plimsoll_core::directive::{BucketDirective, KeyDirective, Terms, Values};
use plimsoll_core::rate::{Limit, Rate};
use plimsoll_core::ratio::DropRatio;
use plimsoll_core::report::{InstanceId, Role};
use plimsoll_core::verdict::Verdict;
use rand::SeedableRng;
use rand::rngs::SmallRng;

/// A limiter without its feed.
struct Held {
    table: Arc<Table>,
    subscription: Subscription,
    draws: SmallRng,
    seq: u64,
}

fn now() -> MonoTime {
    MonoTime::from_elapsed(Duration::from_secs(1))
}

fn limit() -> Limit {
    Limit::PerSecond(Rate::new(100.0).unwrap())
}

impl Held {
    /// A limiter that has declared the bucket `api`.
    fn new() -> Self {
        let table = Arc::new(Table::new(100, 7));
        table.declare("api").unwrap();
        let identity = Identity {
            instance: InstanceId(1),
            name: Name::new("host:1").unwrap(),
            service: Name::new("shop").unwrap(),
            zone: Zone::new("a").unwrap(),
            role: Role::Client,
        };
        let mut subscription = Subscription::new(identity, Arc::clone(&table));
        subscription.on_open(now());
        subscription.report(now());
        subscription.outbox.on_answer(InstanceId(2));
        Self { table, subscription, draws: SmallRng::seed_from_u64(7), seq: 0 }
    }

    fn message(&mut self, limit: Limit, mode: Mode, keys: &[(&str, Option<f64>)]) -> Directives {
        self.seq += 1;
        let keys = keys.iter().map(|(tenant, ratio)| KeyDirective {
            tenant: Tenant::new(tenant).unwrap(),
            values: Values {
                ratio: ratio.map(|ratio| DropRatio::new((ratio * f64::from(DropRatio::ONE)) as u32).unwrap()),
                ..Values::default()
            },
        });
        let bucket = Bucket::new("api").unwrap();
        let terms = Terms { limit, mode, ..Terms::default() };
        let directive = BucketDirective { bucket, whole: true, terms, keys: keys.collect() };
        Directives { epoch: Some(Epoch(5)), seq: self.seq, buckets: vec![directive], ..Directives::default() }
    }

    fn direct(&mut self, limit: Limit, mode: Mode, keys: &[(&str, Option<f64>)]) {
        let message = self.message(limit, mode, keys);
        self.subscription.on_directives(now(), message).unwrap();
    }

    /// The share of requests of a tenant that is refused.
    fn refused(&mut self, tenant: &str) -> f64 {
        let refused = (0..10_000)
            .filter(|_| self.table.admit("api", tenant, &mut self.draws) != Verdict::Admit)
            .count();
        refused as f64 / 10_000.0
    }

    #[track_caller]
    fn check(&mut self, expected: &[(&str, f64)]) {
        for (tenant, share) in expected {
            let got = self.refused(tenant);
            assert!((got - share).abs() < 0.02, "{tenant}: {got} refused, not {share}");
        }
    }
}

#[test]
fn nothing_held_admits_and_counts() {
    let mut held = Held::new();
    held.check(&[("acme", 0.0)]);
    let counts: Vec<Counts> = held.subscription.counts().into_values().collect();
    assert_eq!(counts.iter().map(|counts| counts.offered).sum::<u64>(), 10_000);
}

#[test]
fn a_tenant_without_a_directive_follows_the_default_class() {
    let mut held = Held::new();
    held.direct(limit(), Mode::Enforce, &[("acme", Some(0.9)), ("default", Some(0.3))]);
    held.check(&[("acme", 0.9), ("stranger", 0.3), ("default", 0.3), ("not a name", 0.3)]);
    held.direct(limit(), Mode::Enforce, &[("acme", Some(0.0)), ("default", Some(1.0))]);
    held.check(&[("acme", 0.0), ("stranger", 1.0)]);
}

#[test]
fn an_absent_ratio_keeps_what_is_held_and_is_never_zero() {
    let mut held = Held::new();
    held.direct(limit(), Mode::Enforce, &[("acme", Some(0.9)), ("default", Some(0.3))]);
    held.direct(limit(), Mode::Enforce, &[("acme", None), ("default", None)]);
    held.check(&[("acme", 0.9), ("stranger", 0.3)]);
}

#[test]
fn a_tenant_that_is_no_longer_listed_falls_back_to_the_default_class() {
    let mut held = Held::new();
    held.direct(limit(), Mode::Enforce, &[("acme", Some(0.9)), ("default", Some(0.3))]);
    held.direct(limit(), Mode::Enforce, &[("default", Some(0.3))]);
    held.check(&[("acme", 0.3)]);
}

#[test]
fn a_limit_without_a_number_clears_every_ratio() {
    for cleared in [Limit::Unknown, Limit::Unlimited] {
        let mut held = Held::new();
        held.direct(limit(), Mode::Enforce, &[("acme", Some(0.9)), ("default", Some(1.0))]);
        held.direct(cleared, Mode::Enforce, &[("acme", None), ("default", None)]);
        held.check(&[("acme", 0.0), ("stranger", 0.0)]);
    }
}

#[test]
fn only_enforce_refuses_and_the_others_count_what_would_have_been() {
    for mode in [Mode::Shadow, Mode::Canary] {
        let mut held = Held::new();
        held.direct(limit(), mode, &[("default", Some(0.5))]);
        held.check(&[("stranger", 0.0)]);
        let would_dropped: u64 =
            held.subscription.counts().into_values().map(|counts| counts.would_dropped).sum();
        assert!((4_500..5_500).contains(&would_dropped), "{would_dropped}");
    }
}

#[test]
fn a_kill_is_heard_from_any_message_and_undone_only_by_a_later_generation() {
    let mut held = Held::new();
    held.direct(limit(), Mode::Enforce, &[("acme", Some(1.0)), ("default", Some(1.0))]);
    let with_kill = |held: &mut Held, epoch: u64, generation: u64| {
        let message = held.message(limit(), Mode::Enforce, &[("acme", None), ("default", None)]);
        let message = Directives { epoch: Some(Epoch(epoch)), kill: KillGeneration(generation), ..message };
        held.subscription.on_directives(now(), message)
    };
    // From an older reign: its values are refused, its kill is not.
    with_kill(&mut held, 1, 3).unwrap_err();
    held.check(&[("acme", 0.0), ("stranger", 0.0)]);
    assert_eq!(held.subscription.mode_of(&Bucket::new("api").unwrap()), Some(Mode::Shadow));
    with_kill(&mut held, 5, 2).unwrap();
    held.check(&[("acme", 0.0)]);
    with_kill(&mut held, 5, 4).unwrap();
    held.check(&[("acme", 1.0), ("stranger", 1.0)]);
}

#[test]
fn older_messages_change_nothing_and_are_counted() {
    let mut held = Held::new();
    held.direct(limit(), Mode::Enforce, &[("default", Some(1.0))]);
    let older = held.message(limit(), Mode::Enforce, &[("default", Some(0.0))]);
    let from_older_reign = Directives { epoch: Some(Epoch(4)), ..older.clone() };
    held.subscription.on_directives(now(), from_older_reign.clone()).unwrap_err();
    held.subscription.on_directives(now(), Directives { seq: 1, ..older }).unwrap_err();
    let poisoned = Directives { seq: 9, ..held.message(limit(), Mode::Enforce, &[("default", Some(0.0))]) };
    let too_high = Directives { epoch: Some(Epoch(u64::MAX)), ..poisoned.clone() };
    held.subscription.on_directives(now(), too_high).unwrap_err();
    let too_killed = Directives { kill: KillGeneration(u64::MAX), ..poisoned };
    held.subscription.on_directives(now(), too_killed).unwrap_err();
    // A new stream makes neither of them newer.
    held.subscription.on_open(now());
    held.subscription.on_directives(now(), Directives { seq: 1, ..from_older_reign }).unwrap_err();
    assert_eq!(held.subscription.refused(), 5);
    held.check(&[("stranger", 1.0)]);
}

#[test]
fn what_was_never_asked_for_takes_no_room() {
    let mut held = Held::new();
    let mut message = held.message(limit(), Mode::Enforce, &[("default", Some(1.0))]);
    message.buckets[0].bucket = Bucket::new("other").unwrap();
    held.subscription.on_directives(now(), message).unwrap();
    assert!(held.subscription.board.is_empty());
}

#[test]
fn buckets_are_asked_for_once_a_stream_and_counts_go_on_across_streams() {
    let mut held = Held::new();
    held.check(&[("acme", 0.0)]);
    let report = held.subscription.report(now());
    assert_eq!((report.asked.len(), report.identity), (0, None));
    held.subscription.on_open(now());
    held.check(&[("acme", 0.0)]);
    let greeting = held.subscription.report(now());
    assert_eq!((greeting.seq, greeting.asked.len(), greeting.identity.is_some()), (1, 1, true));
    assert_eq!((greeting.counted_by, greeting.tallies.len()), (Some(InstanceId(2)), 0));
    held.subscription.outbox.on_answer(InstanceId(2));
    let report = held.subscription.report(now());
    let offered: u64 = report.tallies.values().map(|tally| tally.counts.offered).sum();
    let sent: u64 = report.definitions.values().map(|definition| definition.sent.offered).sum();
    assert_eq!((offered, sent), (20_000, 10_000), "nothing starts over, and what was sent is said");
}

#[test]
fn the_stamp_ages_by_this_processs_own_clock() {
    let mut held = Held::new();
    assert_eq!(held.subscription.upstream_age(now()), None);
    let message = held.message(limit(), Mode::Enforce, &[]);
    let message = Directives { upstream_age: Some(Duration::from_secs(7)), ..message };
    held.subscription.on_directives(now(), message).unwrap();
    let age = held.subscription.upstream_age(now() + Duration::from_secs(5));
    assert_eq!(age, Some(Duration::from_secs(12)));
}
