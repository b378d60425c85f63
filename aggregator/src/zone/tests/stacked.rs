//! Child aggregators: loops and depth, the share that each is sent, and counts across two hops.

use proptest::prelude::*;

use super::tree::Tree;
use super::*;
use plimsoll_core::exchange::Path;
use plimsoll_core::law::presence::Presences;

fn path(ids: &[u128]) -> Path {
    Path(ids.iter().copied().map(InstanceId).collect())
}

fn greeting(instance: u128, ids: &[u128]) -> Report {
    let identity = Some(identity(Role::Aggregator, instance));
    Report {
        seq: 1,
        greeting: identity.into(),
        path: path(ids),
        ..Report::default()
    }
}

fn script() -> Script {
    Script::rates(&[("acme", 900.0), ("default", 0.0)])
}

fn offering(instance: u128, rps: f64) -> Client {
    Client::new(instance).offering("acme", rps)
}

/// An aggregator that has just started does not know how many aggregators are above it, and may have accepted
/// a path that is too long for them.
#[test]
fn reports_carry_no_refusable_path() {
    let mut zone = aggregator(100);
    zone.on_report(at(0), StreamId(1), greeting(1, &[2, 3, 4]))
        .unwrap();
    assert_eq!(zone.report(at(10)).path, Path::default());
    zone.on_directives(
        at(20),
        Directives {
            above: 1,
            ..Script::ratio(7).message(1, 1)
        },
    )
    .unwrap();
    assert_eq!(zone.report(at(30)).path, Path::default());
    let shorter = Report {
        seq: 2,
        path: path(&[2, 3]),
        ..Report::default()
    };
    zone.on_report(at(40), StreamId(1), shorter).unwrap();
    assert_eq!(zone.report(at(50)).path, path(&[1, 2, 3]));
}

/// Neither path contains the other when they greet. The next report shows the loop.
#[test]
fn simultaneous_greeting_loop_is_found() {
    let (mut one, mut other) = (aggregator(1), aggregator(2));
    let greetings = [one.report(at(0)), other.report(at(0))];
    let [from_one, from_other] = greetings;
    other.on_report(at(1), StreamId(1), from_one).unwrap();
    one.on_report(at(1), StreamId(1), from_other).unwrap();
    let report = one.report(at(100));
    assert_eq!(report.path, path(&[2]));
    assert_eq!(
        other.on_report(at(101), StreamId(1), report),
        Err(StreamRejected::Loop)
    );
    other.on_close(at(101), StreamId(1));
    assert_eq!(
        other.report(at(200)).path,
        Path::default(),
        "a disconnected child is no part of the path"
    );
}

#[test]
fn every_report_carries_the_longest_connected_chain() {
    let mut zone = answered();
    for (stream, (child, ids)) in [(1, &[][..]), (2, &[21, 22]), (3, &[31])]
        .into_iter()
        .enumerate()
    {
        zone.on_report(at(0), StreamId(stream as u64), greeting(child, ids))
            .unwrap();
    }
    assert_eq!(zone.report(at(10)).path, path(&[2, 21, 22]));
    assert_eq!(zone.report(at(20)).path, path(&[2, 21, 22]));
    zone.on_close(at(20), StreamId(1));
    assert_eq!(zone.report(at(30)).path, path(&[3, 31]));
    let longer = Report {
        seq: 2,
        path: path(&[11, 12]),
        ..Report::default()
    };
    zone.on_report(at(40), StreamId(0), longer).unwrap();
    assert_eq!(zone.report(at(50)).path, path(&[1, 11, 12]));
    let too_long = Report {
        seq: 3,
        path: path(&[11, 12, 13, 14]),
        ..Report::default()
    };
    let refused = zone.on_report(at(60), StreamId(0), too_long);
    assert_eq!(refused, Err(StreamRejected::TooDeep { aggregators: 6 }));
}

#[test]
fn only_child_aggregators_are_sent_their_depth() {
    let mut zone = answered();
    zone.on_directives(
        at(0),
        Directives {
            above: 1,
            ..Script::ratio(7).message(2, 1)
        },
    )
    .unwrap();
    zone.on_report(at(10), StreamId(1), greeting(1, &[]))
        .unwrap();
    let first = zone.directives(at(10), StreamId(1)).unwrap();
    assert_eq!(
        (first.above, first.report_interval),
        (2, Some(Duration::from_millis(100)))
    );
    assert_eq!(
        first.buckets.len(),
        1,
        "policy is sent without a subscription"
    );
    let terms = &first.buckets[0].terms;
    assert_eq!(
        (terms.presences, terms.clients),
        (Some(Presences::ONE), None)
    );
    let mut client = Client::new(2);
    client.send_report(&mut zone, at(20));
    assert_eq!(zone.directives(at(20), client.stream).unwrap().above, 0);
}

#[test]
fn child_subscriptions_reach_the_controller() {
    let mut zone = answered();
    let other = Bucket::new("other").unwrap();
    let greeting = Report {
        subscriptions: vec![other.clone(), bucket()].into(),
        ..greeting(1, &[])
    };
    zone.on_report(at(0), StreamId(1), greeting).unwrap();
    assert_eq!(
        zone.report(at(10)).subscriptions.added,
        std::slice::from_ref(&other),
        "the policy names the first one"
    );
    zone.on_report(at(10), StreamId(2), self::greeting(2, &[]))
        .unwrap();
    let received = |zone: &mut Zone, stream| -> Vec<Bucket> {
        let message = zone.directives(at(30), StreamId(stream));
        message
            .into_iter()
            .flat_map(|message| message.buckets)
            .map(|directive| directive.bucket)
            .collect()
    };
    assert_eq!(received(&mut zone, 2), [bucket()]);
    let mut news = Script::ratio(7).message(2, 1);
    news.buckets[0].bucket = other.clone();
    zone.on_directives(at(20), news).unwrap();
    assert_eq!(received(&mut zone, 1), [bucket(), other.clone()]);
    assert_eq!(received(&mut zone, 2), [other]);
}

/// Reports of child aggregators arrive in bursts. Their effect on single tenths of seconds moves no ratio.
#[test]
fn ratios_stay_level_between_child_reports() {
    let below = vec![offering(1, 1_200.0), offering(2, 600.0)];
    let mut tree = Tree::new(script(), below, vec![offering(3, 900.0)]);
    tree.run(10.0);
    for busy in [0.0, 0.99] {
        // An overloaded aggregator asks for reports once a second.
        tree.upper.schedule.on_load(Load {
            busy,
            late: Duration::ZERO,
        });
        tree.run(5.0);
        let mut seen: Vec<f64> = Vec::new();
        for _ in 0..50 {
            tree.run(0.1);
            seen.extend([0, 1].map(|lower| tree.values(lower, "acme").rate.unwrap().per_second()));
            let clients = tree
                .lowers
                .iter()
                .flat_map(|lower| &lower.clients)
                .chain(&tree.clients);
            let ratios = clients.map(|client| client.ratio("acme"));
            assert!(
                ratios.clone().all(|ratio| (ratio - 2.0 / 3.0).abs() < 0.04),
                "{:?}",
                ratios.collect::<Vec<_>>()
            );
        }
        let of = |lower: usize| seen.iter().skip(lower).step_by(2).copied();
        for lower in [0, 1] {
            let (least, most) = (
                of(lower).fold(f64::MAX, f64::min),
                of(lower).fold(0.0, f64::max),
            );
            assert!(most - least <= 0.02 * most, "{lower}: {least} to {most}");
        }
    }
}

#[test]
fn child_aggregators_live_on_hold_parts() {
    let below = vec![offering(1, 900.0), offering(2, 900.0)];
    let mut tree = Tree::new(script(), below, Vec::new());
    tree.run(10.0);
    tree.controller = None;
    tree.run(3.1);
    assert!(tree.upper.is_on_hold(&bucket(), tree.now()));
    tree.run(2.0);
    let now = tree.now();
    assert!(
        tree.lowers
            .iter()
            .all(|lower| lower.zone.is_on_hold(&bucket(), now))
    );
    // The parts of the hold follow the traffic.
    tree.lowers[0].clients[0].offers("acme", 2_700.0);
    tree.run(10.0);
    let holds: Vec<f64> = (0..2).map(|lower| tree.hold(lower).unwrap()).collect();
    assert!(
        (holds[0] - 900.0 * (0.9 * 0.75 + 0.05)).abs() < 9.0,
        "{holds:?}"
    );
    assert!(holds.iter().sum::<f64>() <= 900.0 + 0.01, "{holds:?}");
    let passing =
        |lower: usize, rps: f64| rps * (1.0 - tree.lowers[lower].clients[0].ratio("acme"));
    let passing = passing(0, 2_700.0) + passing(1, 900.0);
    assert!((passing - 900.0).abs() < 20.0, "{passing}");
    assert!(tree.upper.upstream.freshness.age(now).unwrap() >= Duration::from_secs(5));
    for lower in &tree.lowers {
        assert!(
            lower.zone.upstream.freshness.age(tree.now())
                >= tree.upper.upstream.freshness.age(tree.now()),
            "ages add up"
        );
    }
}

/// A parent cannot tell a dead child from a disconnected one.
#[test]
fn disconnected_share_is_held_then_released() {
    let below = vec![offering(1, 900.0), offering(2, 900.0)];
    let mut tree = Tree::new(script(), below, Vec::new());
    tree.run(10.0);
    tree.disconnect(0);
    let rate = |tree: &Tree| tree.values(1, "acme").rate.unwrap().per_second();
    for (seconds, due) in [(20.0, 450.0), (25.0, 600.0), (20.0, 900.0)] {
        tree.run(seconds);
        assert!(
            (rate(&tree) - due).abs() < 12.0,
            "{} instead of {due}",
            rate(&tree)
        );
    }
    assert!(
        (tree.hold(0).unwrap() - 450.0).abs() < 9.0,
        "the disconnected child keeps its hold"
    );
    tree.connect(0);
    tree.run(5.0);
    assert!((rate(&tree) - 450.0).abs() < 12.0, "{}", rate(&tree));
    let now = tree.now();
    let farewell = tree.lowers[0].zone.report(now);
    let farewell = Report {
        leaving: true,
        ..farewell
    };
    tree.upper
        .on_report(now, tree.lowers[0].stream, farewell)
        .unwrap();
    tree.lowers[0].cut = true;
    tree.run(1.0);
    assert!(
        (rate(&tree) - 900.0).abs() < 9.0,
        "free at once: {}",
        rate(&tree)
    );
}

/// The first report of a child carries counts without a rate.
#[test]
fn new_child_holds_until_traffic_is_known() {
    for brings in [None, Some(300.0)] {
        let mut tree = Tree::new(script(), vec![offering(1, 900.0)], Vec::new());
        tree.run(5.0);
        let mut newcomer = greeting(7, &[]);
        newcomer.greeting.holds = brings
            .map(|hold| (bucket(), per_second(hold)))
            .into_iter()
            .collect();
        tree.upper
            .on_report(tree.now(), StreamId(1), newcomer)
            .unwrap();
        let first = tree.upper.directives(tree.now(), StreamId(1)).unwrap();
        let values = first.buckets[0].keys[0].values;
        assert_eq!((values.ratio, values.rate, values.cap), (None, None, None));
        let hold = first.buckets[0].terms.hold.map(Rate::per_second);
        assert_eq!(hold, if brings.is_some() { None } else { Some(450.0) });
        tree.run(6.0);
        let values = tree
            .upper
            .directives(tree.now(), StreamId(1))
            .unwrap()
            .buckets[0]
            .keys[0]
            .values;
        assert!(values.rate.is_some(), "the wait is bounded");
    }
}

#[test]
fn restarted_child_learns_its_client_number() {
    let mut tree = Tree::new(
        script(),
        vec![offering(1, 900.0), offering(2, 900.0)],
        Vec::new(),
    );
    tree.run(10.0);
    tree.disconnect(0);
    tree.run(1.0);
    // Another process with the same name.
    let named = Identity {
        instance: InstanceId(7),
        ..identity(Role::Aggregator, 1_001)
    };
    let greeting = Report {
        seq: 1,
        greeting: Some(named).into(),
        ..Report::default()
    };
    tree.upper
        .on_report(tree.now(), StreamId(1), greeting)
        .unwrap();
    let first = tree.upper.directives(tree.now(), StreamId(1)).unwrap();
    assert_eq!(first.children, Some(1));
    let rate = first.buckets[0].keys[0].values.rate.unwrap().per_second();
    assert!(
        (rate - 450.0).abs() < 12.0,
        "the traffic of the old process is taken over: {rate}"
    );
    assert!(tree.upper.is_superseded(tree.lowers[0].stream));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// The parts add up to the whole under any traffic.
    #[test]
    fn child_parts_sum_to_the_whole(
        offered in prop::collection::vec(0.0..5_000.0_f64, 1..5),
        own in prop::option::of(0.0..5_000.0_f64),
        away in any::<bool>(),
    ) {
        let below = offered.iter().zip(1..).map(|(rps, instance)| offering(instance, *rps)).collect();
        let clients = own.map(|rps| offering(99, rps)).into_iter().collect();
        let mut tree = Tree::new(script(), below, clients);
        tree.run(4.0);
        if away {
            tree.controller = None;
            tree.run(6.0);
        }
        let sum = |of: &dyn Fn(usize) -> f64| (0..offered.len()).map(of).sum::<f64>();
        let caps = sum(&|lower| tree.values(lower, "acme").cap.unwrap().per_second());
        let rates = sum(&|lower| tree.values(lower, "acme").rate.unwrap().per_second());
        let holds = sum(&|lower| tree.hold(lower).unwrap());
        // On hold a zone without excess has a margin for noise, with child aggregators as without.
        let whole = if away { 900.0 + plimsoll_core::law::parameters::margin(900.0) } else { 900.0 };
        let clients = tree.clients.first().map_or(0.0, |client| client.guard("acme") / 1.5);
        prop_assert!(holds <= 900.0 + 0.01, "holds of {}", holds);
        prop_assert!(rates + clients <= whole + 0.01, "rates of {} and {}", rates, clients);
        prop_assert!(caps + clients <= whole + 0.01, "caps of {} and {}", caps, clients);
        if own.is_none() && !away {
            prop_assert!((rates - 900.0).abs() < 0.01 && (holds - 900.0).abs() < 0.01, "{} {}", rates, holds);
        }
    }
}
