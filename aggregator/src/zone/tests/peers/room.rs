//! Children that ask for more buckets and tenants than they need: buckets of the policy always have
//! room, and buckets that children ask for leave when idle.

use super::*;
use plimsoll_core::directive::BucketDirective;
use plimsoll_core::names::KeyId;
use plimsoll_core::report::{Books, Counts, KeyDefinition, SubscriptionChanges};

use crate::zone::tests::scripted::CONTROLLER;

fn named(name: &str) -> Bucket {
    Bucket::new(name).unwrap()
}

fn junk(number: usize) -> Bucket {
    named(&format!("junk{number}"))
}

fn ask(zone: &mut Zone, now: u64, instance: u128, buckets: impl IntoIterator<Item = Bucket>) {
    ask_as(zone, now, Role::Client, instance, buckets);
}

fn ask_as(
    zone: &mut Zone,
    now: u64,
    role: Role,
    instance: u128,
    buckets: impl IntoIterator<Item = Bucket>,
) {
    let identity = Some(identity(role, instance));
    let report = Report {
        seq: 1,
        greeting: identity.into(),
        subscriptions: buckets.into_iter().collect::<Vec<_>>().into(),
        ..Report::default()
    };
    zone.on_report(at(now), StreamId(instance as u64), report)
        .unwrap();
}

fn directed(seq: u64, buckets: &[Bucket], is_named: bool) -> Directives {
    let mut message = Script::ratio(7).message(seq, 0);
    let mut of_bucket = message.buckets.remove(0);
    of_bucket.terms.named = is_named;
    let each = buckets.iter().map(|bucket| BucketDirective {
        bucket: bucket.clone(),
        ..of_bucket.clone()
    });
    Directives {
        buckets: each.collect(),
        ..message
    }
}

fn unprotected(zone: &Zone) -> usize {
    zone.room.refused.iter().count()
}

#[test]
fn junk_buckets_leave_room_for_policy_buckets() {
    let mut zone = aggregator(100);
    zone.on_open(at(0));
    for child in 1..=20 {
        let from = child as usize * 10_000;
        ask(&mut zone, 0, child, (from..from + 10_000).map(junk));
    }
    assert!(zone.counters().rejected > 100_000 && unprotected(&zone) > 0);
    let late: Vec<Bucket> = (0..10_000)
        .map(|number| named(&format!("policy{number}")))
        .collect();
    zone.on_directives(at(10), directed(1, &late, true))
        .unwrap();
    ask(&mut zone, 20, 99, late.iter().take(1_024).cloned());
    assert!(
        late.iter().all(|bucket| zone.board.get(bucket).is_some()),
        "all of the policy is held"
    );
    let message = zone.directives(at(20), StreamId(99)).unwrap();
    assert_eq!(message.buckets.len(), 1_024, "each is enforced");
    assert!(
        !zone
            .room
            .refused
            .iter()
            .any(|(bucket, _)| bucket.as_str().starts_with("policy"))
    );
}

#[test]
fn one_child_leaves_siblings_room() {
    for (role, most) in [(Role::Client, 1_024), (Role::Aggregator, 5_000)] {
        let mut zone = aggregator(100);
        zone.on_open(at(0));
        ask_as(&mut zone, 0, role, 1, (0..20_000).map(junk));
        assert_eq!(
            zone.report(at(0)).subscriptions.added.len(),
            most,
            "{role:?}"
        );
        ask(&mut zone, 1, 2, ["orders", "search"].map(named));
        assert_eq!(
            zone.report(at(1)).subscriptions.added,
            ["orders", "search"].map(named)
        );
        assert!(zone.knows(&named("orders")));
    }
}

#[test]
fn surplus_names_are_refused_and_shown() {
    let mut zone = aggregator(100);
    ask(&mut zone, 0, 1, (0..1_024).map(junk));
    let more = |seq, buckets: Vec<Bucket>| Report {
        seq,
        subscriptions: buckets.into(),
        ..Report::default()
    };
    zone.on_report(at(10), StreamId(1), more(2, vec![named("late"), junk(7)]))
        .unwrap();
    assert_eq!(unprotected(&zone), 1);
    assert_eq!(zone.room.refused.take_unlogged(), [named("late")]);
    assert_eq!(zone.counters().rejected, 1);
    // A policy that names it gives it room.
    zone.on_open(at(20));
    zone.on_directives(at(20), directed(1, &[named("late")], true))
        .unwrap();
    assert_eq!(
        (unprotected(&zone), zone.room.refused.take_unlogged()),
        (0, vec![])
    );
    zone.on_report(at(30), StreamId(1), more(3, vec![named("late")]))
        .unwrap();
    assert_eq!(unprotected(&zone), 0);
}

struct Confirmed {
    zone: Zone,
    books: Books,
    ids: Vec<Key>,
    counted: BTreeMap<Key, u64>,
    seq: u64,
    now: u64,
    unsubscribed: Vec<Bucket>,
}

impl Confirmed {
    fn new() -> Self {
        let mut zone = aggregator(100);
        zone.on_open(at(0));
        let (books, counted) = (Books::new(CONTROLLER, 1_000_000), BTreeMap::new());
        let mut confirmed = Self {
            zone,
            books,
            ids: Vec::new(),
            counted,
            seq: 0,
            now: 0,
            unsubscribed: Vec::new(),
        };
        confirmed.pass(1);
        confirmed
    }

    fn direct(&mut self, buckets: &[Bucket], is_named: bool) {
        self.seq += 1;
        self.zone
            .on_directives(at(self.now), directed(self.seq, buckets, is_named))
            .unwrap();
    }

    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds * 10 {
            self.now += 100;
            let now = at(self.now);
            self.zone.on_tick(now);
            if !self.now.is_multiple_of(500) {
                continue;
            }
            let report = self.zone.report(now);
            self.unsubscribed
                .extend(report.subscriptions.ended.iter().cloned());
            let ids = &mut self.ids;
            let own = |key: &Key| {
                ids.push(key.clone());
                Some(KeyId(ids.len() as u32 - 1))
            };
            for entry in self.books.enter(now, &report, own).unwrap().entries {
                let key = self.ids[entry.own.unwrap().index()].clone();
                *self.counted.entry(key).or_default() += entry.delta.counts.offered;
            }
            self.seq += 1;
            let mut message = directed(self.seq, &[], false);
            message.echo = Echo {
                covered: report.seq,
                confirmed: report.seq,
            };
            self.zone.on_directives(now, message).unwrap();
        }
    }
}

fn count(seq: u64, instance: Option<u128>, bucket: &Bucket, offered: u64, defines: bool) -> Report {
    let counts = Counts {
        offered,
        ..Counts::ZERO
    };
    let key = Key {
        bucket: bucket.clone(),
        tenant: Tenant::default_class(),
    };
    let definition = KeyDefinition {
        key,
        base: Counts::ZERO,
        sent: Counts::ZERO,
        continues: false,
    };
    let tally = plimsoll_core::report::Tally {
        counts,
        late: Counts::ZERO,
    };
    Report {
        seq,
        greeting: instance
            .map(|instance| identity(Role::Client, instance))
            .into(),
        time: Some(at(seq * 100)),
        subscriptions: vec![bucket.clone()].into(),
        definitions: defines
            .then_some((KeyId(0), definition))
            .into_iter()
            .collect(),
        tallies: std::iter::once((KeyId(0), tally)).collect(),
        ..Report::default()
    }
}

#[test]
fn idle_asked_buckets_leave_without_losing_counts() {
    let mut scene = Confirmed::new();
    let bucket = junk(1);
    let key = Key {
        bucket: bucket.clone(),
        tenant: Tenant::default_class(),
    };
    for (round, stream) in [(0, 1), (1, 2), (2, 3)] {
        let now = at(scene.now);
        let others = 50 + stream as u128;
        ask(&mut scene.zone, scene.now, others, (100..600).map(junk));
        let first = Report {
            time: None,
            tallies: Default::default(),
            ..count(1, Some(stream as u128), &bucket, 0, true)
        };
        scene.zone.on_report(now, StreamId(stream), first).unwrap();
        for seq in 2..=4 {
            scene
                .zone
                .on_report(
                    now,
                    StreamId(stream),
                    count(seq, None, &bucket, 10 * seq, false),
                )
                .unwrap();
        }
        scene.pass(40);
        assert!(
            scene.zone.knows(&bucket) && scene.zone.keys() == 501,
            "{}",
            scene.zone.keys()
        );
        assert_eq!(
            scene.counted[&key],
            40 * (round + 1),
            "each request counts once"
        );
        scene.zone.on_close(at(scene.now), StreamId(stream));
        scene.zone.on_close(at(scene.now), StreamId(50 + stream));
        scene.unsubscribed.clear();
        scene.pass(160);
        assert_eq!(scene.zone.keys(), 0, "the room is free");
        assert!(!scene.zone.knows(&bucket));
        assert_eq!(scene.zone.known_buckets().count(), 0);
        scene.unsubscribed.sort_unstable();
        scene.unsubscribed.dedup();
        assert_eq!(scene.unsubscribed.len(), 501, "the parent drops them, too");
        assert_eq!(scene.counted[&key], 40 * (round + 1));
    }
    assert!(scene.zone.keys.lines.keys().len() < 600, "ids are reused");
}

#[test]
fn directive_for_a_dropped_bucket_is_ignored() {
    let mut scene = Confirmed::new();
    scene.direct(&[junk(1)], false);
    assert!(!scene.zone.knows(&junk(1)), "nobody asked for it");
    scene.direct(&[named("a")], true);
    scene.pass(300);
    assert!(scene.zone.board.get(&named("a")).is_some());
    scene.direct(&[named("a")], false);
    scene.pass(150);
    assert!(!scene.zone.knows(&named("a")));
}

#[test]
fn invented_tenants_leave_room_for_listed_ones() {
    let bounds = Bounds {
        keys_max: 50,
        tenants_per_bucket_max: 20,
        ..Bounds::default()
    };
    let mut zone = Zone::new(
        identity(Role::Aggregator, 100),
        bounds,
        Parameters::default(),
    );
    zone.on_open(at(0));
    let mut client = Client::new(1);
    for number in 0..500 {
        client.counts(&format!("invented{number}")).offered += 100;
    }
    client.send_report(&mut zone, at(0));
    assert!(zone.keys() <= 50, "{}", zone.keys());
    let listed: Vec<String> = (0..100).map(|number| format!("listed{number}")).collect();
    let keys: Vec<(&str, f64)> = listed.iter().map(|name| (name.as_str(), 1.0)).collect();
    let script = listed.iter().fold(Script::rates(&keys), |script, name| {
        script.with(name, |values| values.entitlement = Some(entitled(1.0)))
    });
    zone.on_directives(at(10), script.message(1, 0)).unwrap();
    for name in &listed {
        client.counts(name).offered += 1;
    }
    client.send_report(&mut zone, at(100));
    let held = |zone: &Zone| {
        zone.counts()
            .filter(|(key, _)| key.tenant.as_str().starts_with("listed"))
            .count()
    };
    assert_eq!(held(&zone), 100, "each has a key of its own");
    for tenth in 2..300 {
        for number in 0..500 {
            client.counts(&format!("invented{number}")).offered += 100;
        }
        listed
            .iter()
            .for_each(|name| client.counts(name).offered += 1);
        client.send_report(&mut zone, at(tenth * 100));
        zone.on_tick(at(tenth * 100));
    }
    assert_eq!(held(&zone), 100, "invented ones evict none of them");
}

#[test]
fn abandoned_names_leave_room_for_others() {
    let of_round = |round: usize| (round * 1_024..(round + 1) * 1_024).map(junk);
    let mut zone = aggregator(100);
    zone.on_open(at(0));
    ask(&mut zone, 0, 1, of_round(0));
    for round in 1..11 {
        let report = Report {
            seq: 1 + round as u64,
            subscriptions: SubscriptionChanges {
                ended: of_round(round - 1).collect(),
                added: of_round(round).collect(),
            },
            ..Report::default()
        };
        zone.on_report(at(round as u64), StreamId(1), report)
            .unwrap();
    }
    for round in 11..22 {
        let greeting = Report {
            seq: 100 + round as u64,
            greeting: Some(Identity {
                instance: InstanceId(round as u128),
                ..identity(Role::Client, 1)
            })
            .into(),
            subscriptions: of_round(round).collect::<Vec<_>>().into(),
            ..Report::default()
        };
        zone.on_report(at(round as u64), StreamId(round as u64), greeting)
            .unwrap();
    }
    assert!(zone.known_buckets().count() <= 10_000);
    zone.on_close(at(25), StreamId(21));
    (1..=2_000).for_each(|tenth| {
        zone.on_tick(at(100 * tenth));
    });
    for child in 2..9 {
        let (instance, buckets) = (1_000 + child as u128, of_round(100 + child));
        ask(&mut zone, 200_030, instance, buckets);
    }
    ask(&mut zone, 200_031, 2_000, [named("orders")]);
    assert!(zone.knows(&named("orders")) && !zone.room.refused.contains(&named("orders")));
}

#[test]
fn policy_bucket_outlives_hours_of_parent_silence() {
    let mut scene = Confirmed::new();
    scene.direct(&["a", "b"].map(named), true);
    ask(&mut scene.zone, scene.now, 1, [named("a")]);
    scene.pass(70);
    let held = |zone: &Zone| ["a", "b"].map(|name| zone.board.get(&named(name)).is_some());
    // Connections are accepted, and what answers knows no epoch: a proxy, or a parent without a controller.
    for round in 0..720 {
        scene.now += 10_000;
        scene.zone.on_open(at(scene.now));
        if round % 2 == 0 {
            let silent = Directives {
                seq: 1,
                ..Directives::default()
            };
            scene.zone.on_directives(at(scene.now), silent).unwrap();
        }
        scene.zone.on_tick(at(scene.now));
        scene.zone.report(at(scene.now));
    }
    assert_eq!(held(&scene.zone), [true; 2]);
    // One stays silent on the same connection.
    for _ in 0..60 {
        scene.now += 10_000;
        scene.zone.on_tick(at(scene.now));
        scene.zone.report(at(scene.now));
    }
    assert_eq!(held(&scene.zone), [true; 2]);
    // The controller that returns names one of them: the other is held for children from there on.
    scene.zone.on_open(at(scene.now));
    scene.books.open();
    scene.direct(&[named("a")], true);
    scene.pass(110);
    assert_eq!(held(&scene.zone), [true; 2]);
    scene.pass(40);
    assert_eq!(held(&scene.zone), [true, false]);
}
