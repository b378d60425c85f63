//! Aggregators below another one: who may stand there, what each is told, and what becomes of the books.

use proptest::prelude::*;

use super::tree::Tree;
use super::*;
use plimsoll_core::exchange::Path;
use plimsoll_core::law::presence::Presences;

fn path(ids: &[u128]) -> Path {
    Path::new(ids.iter().copied().map(InstanceId).collect())
}

fn greeting(instance: u128, ids: &[u128]) -> Report {
    let identity = Some(identity(Role::Aggregator, instance));
    Report { seq: 1, identity, path: path(ids), ..Report::default() }
}

/// Of 900 requests/s, with a hold as large.
fn said() -> Said {
    Said::rates(&[("acme", 900.0), ("default", 0.0)])
}

fn offering(instance: u128, rps: f64) -> Client {
    Client::new(instance).offering("acme", rps)
}

#[test]
fn a_loop_and_a_chain_too_long_are_refused_and_say_what_to_do() {
    let too_deep = |aggregators| Err(StreamRejected::TooDeep { aggregators });
    // (the child, those below it, aggregators above this one) and what becomes of it, at the one that is 100
    for (child, ids, above, judged) in [
        (1, &[][..], 0, Ok(false)),
        (1, &[2, 3, 4], 0, Ok(false)),
        (1, &[2, 3, 4, 5], 0, too_deep(6)),
        (1, &[2, 3], 1, Ok(false)),
        (1, &[2, 3, 4], 1, too_deep(6)),
        (100, &[], 0, Err(StreamRejected::Loop)),
        (1, &[2, 100], 0, Err(StreamRejected::Loop)),
    ] {
        let mut zone = answered();
        zone.on_directives(at(0), Directives { above, ..Said::ratio(7).message(2, 1) }).unwrap();
        let got = zone.on_report(at(10), StreamId(1), greeting(child, ids));
        assert_eq!(got, judged, "{child} {ids:?} below {above}");
        if let Err(refused) = got {
            assert_eq!(zone.sessions().connected_count(), 0, "nothing of it was entered");
            assert!(["loop", "too_deep"].contains(&refused.label()));
            assert!(refused.to_string().contains("controller"), "{refused}");
        }
    }
}

/// Neither knows of the other when they greet; the next report of each tells.
#[test]
fn two_that_greet_each_other_at_the_same_moment_find_out() {
    let (mut one, mut other) = (aggregator(1), aggregator(2));
    let greetings = [one.report(at(0)), other.report(at(0))];
    let [from_one, from_other] = greetings;
    other.on_report(at(1), StreamId(1), from_one).unwrap();
    one.on_report(at(1), StreamId(1), from_other).unwrap();
    let report = one.report(at(100));
    assert_eq!(report.path, path(&[2]));
    assert_eq!(other.on_report(at(101), StreamId(1), report), Err(StreamRejected::Loop));
    other.on_close(at(101), StreamId(1));
    assert_eq!(other.report(at(200)).path, Path::default(), "who went away stands below no more");
}

#[test]
fn the_longest_chain_of_those_connected_is_told_with_every_report() {
    let mut zone = answered();
    for (stream, (child, ids)) in [(1, &[][..]), (2, &[21, 22]), (3, &[31])].into_iter().enumerate() {
        zone.on_report(at(0), StreamId(stream as u64), greeting(child, ids)).unwrap();
    }
    assert_eq!(zone.report(at(10)).path, path(&[2, 21, 22]));
    assert_eq!(zone.report(at(20)).path, path(&[2, 21, 22]));
    zone.on_close(at(20), StreamId(1));
    assert_eq!(zone.report(at(30)).path, path(&[3, 31]));
    let longer = Report { seq: 2, path: path(&[11, 12]), ..Report::default() };
    zone.on_report(at(40), StreamId(0), longer).unwrap();
    assert_eq!(zone.report(at(50)).path, path(&[1, 11, 12]));
    let too_long = Report { seq: 3, path: path(&[11, 12, 13, 14]), ..Report::default() };
    let refused = zone.on_report(at(60), StreamId(0), too_long);
    assert_eq!(refused, Err(StreamRejected::TooDeep { aggregators: 6 }));
}

#[test]
fn what_those_below_need_to_know_of_the_way_up_is_told_to_them_and_not_to_clients() {
    let mut zone = answered();
    zone.on_directives(at(0), Directives { above: 1, ..Said::ratio(7).message(2, 1) }).unwrap();
    zone.on_report(at(10), StreamId(1), greeting(1, &[])).unwrap();
    let first = zone.directives(at(10), StreamId(1)).unwrap();
    assert_eq!((first.above, first.report_interval), (2, Some(Duration::from_millis(100))));
    assert_eq!(first.buckets.len(), 1, "policy comes before anybody asks");
    let terms = first.buckets[0].terms;
    assert_eq!((terms.presences, terms.clients), (Some(Presences::ONE), None));
    let mut client = Client::new(2);
    client.speak(&mut zone, at(20));
    assert_eq!(zone.directives(at(20), client.stream).unwrap().above, 0);
}

#[test]
fn what_those_below_ask_for_is_asked_of_the_controller_though_they_hear_about_all_there_is() {
    let mut zone = answered();
    let other = Bucket::new("other").unwrap();
    let greeting = Report { asked: vec![other.clone(), bucket()], ..greeting(1, &[]) };
    zone.on_report(at(0), StreamId(1), greeting).unwrap();
    assert_eq!(zone.report(at(10)).asked, [other.clone(), bucket()]);
    zone.on_report(at(10), StreamId(2), self::greeting(2, &[])).unwrap();
    let heard = |zone: &mut Zone, stream| -> Vec<Bucket> {
        let message = zone.directives(at(30), StreamId(stream));
        message.into_iter().flat_map(|message| message.buckets).map(|said| said.bucket).collect()
    };
    assert_eq!(heard(&mut zone, 2), [bucket()]);
    let mut news = Said::ratio(7).message(2, 1);
    news.buckets[0].bucket = other.clone();
    zone.on_directives(at(20), news).unwrap();
    assert_eq!(heard(&mut zone, 1), [bucket(), other.clone()]);
    assert_eq!(heard(&mut zone, 2), [other]);
}

#[test]
fn shares_follow_the_traffic_and_clients_are_one_of_those_who_share() {
    let below = vec![offering(1, 1_200.0), offering(2, 300.0)];
    let mut tree = Tree::new(said(), below, vec![offering(3, 1_500.0)]);
    tree.run(10.0);
    for (lower, share) in [(0, 0.4), (1, 0.1)] {
        let part = 900.0 * (0.9 * share + 0.1 / 3.0);
        let values = tree.values(lower, "acme");
        for told in [values.rate.unwrap().per_second(), values.cap.unwrap().per_second()] {
            assert!((told - part).abs() < 9.0, "{lower}: {told} instead of {part}");
        }
        assert!((tree.hold(lower).unwrap() - part).abs() < 9.0);
        assert_eq!(values.entitlement, Some(entitled(1.0)));
        let ratio = values.ratio.unwrap().as_f64();
        assert!((ratio - 0.7).abs() < 0.01, "over all that comes: {ratio}");
        let terms = *tree.lowers[lower].zone.board().get(&bucket()).unwrap().terms();
        assert_eq!(terms.presences.map(Presences::thousandths), Some(3_000));
        assert!(!tree.lowers[lower].zone.is_on_hold(&bucket(), tree.now()));
    }
    let part = 900.0 * (0.9 * 0.5 + 0.1 / 3.0);
    let client = &tree.clients[0];
    assert!((client.guard("acme") - 1.5 * part).abs() < 20.0, "{}", client.guard("acme"));
    assert!((client.offered("acme") - 1_500.0).abs() < 75.0, "{}", client.offered("acme"));
    assert!((client.ratio("acme") - (1.0 - part / 1_500.0)).abs() < 0.01, "{}", client.ratio("acme"));
    assert_eq!(client.posted().terms().clients, Some(1), "aggregators share no guard");
}

/// The reports of those below come in lumps; what they say of single tenths of seconds moves nobody's ratio.
#[test]
fn ratios_do_not_pulse_whatever_those_below_report() {
    let below = vec![offering(1, 1_200.0), offering(2, 600.0)];
    let mut tree = Tree::new(said(), below, vec![offering(3, 900.0)]);
    tree.run(10.0);
    for busy in [0.0, 0.99] {
        // A busy one asks for reports once a second.
        tree.upper.on_load(Load { busy, late: Duration::ZERO });
        tree.run(5.0);
        let mut seen: Vec<f64> = Vec::new();
        for _ in 0..50 {
            tree.run(0.1);
            seen.extend([0, 1].map(|lower| tree.values(lower, "acme").rate.unwrap().per_second()));
            let clients = tree.lowers.iter().flat_map(|lower| &lower.clients).chain(&tree.clients);
            let ratios = clients.map(|client| client.ratio("acme"));
            assert!(
                ratios.clone().all(|ratio| (ratio - 2.0 / 3.0).abs() < 0.04),
                "{:?}",
                ratios.collect::<Vec<_>>()
            );
        }
        let of = |lower: usize| seen.iter().skip(lower).step_by(2).copied();
        for lower in [0, 1] {
            let (least, most) = (of(lower).fold(f64::MAX, f64::min), of(lower).fold(0.0, f64::max));
            assert!(most - least <= 0.02 * most, "{lower}: {least} to {most}");
        }
    }
}

#[test]
fn a_limit_of_zero_denies_and_none_at_all_clears() {
    let mut tree = Tree::new(said(), vec![offering(1, 500.0)], Vec::new());
    tree.run(3.0);
    let with = |limit: plimsoll_core::quantity::Limit| {
        let mut said = said();
        said.terms.limit = limit;
        Some(said)
    };
    tree.controller = with(plimsoll_core::quantity::Limit::PerSecond(Rate::ZERO));
    tree.run(1.0);
    assert_eq!(tree.lowers[0].clients[0].ratio("acme"), 1.0);
    tree.controller = with(plimsoll_core::quantity::Limit::Unlimited);
    tree.run(1.0);
    let values = tree.values(0, "acme");
    assert_eq!((values.ratio, values.rate, values.cap), (None, None, None));
    assert_eq!(values.entitlement, Some(entitled(1.0)));
    assert_eq!(tree.lowers[0].clients[0].values("acme").ratio, None);
}

#[test]
fn while_the_controller_is_silent_those_below_live_on_parts_of_the_one_hold() {
    let below = vec![offering(1, 900.0), offering(2, 900.0)];
    let mut tree = Tree::new(said(), below, Vec::new());
    tree.run(10.0);
    tree.controller = None;
    tree.run(3.1);
    assert!(tree.upper.is_on_hold(&bucket(), tree.now()));
    tree.run(2.0);
    let now = tree.now();
    assert!(tree.lowers.iter().all(|lower| lower.zone.is_on_hold(&bucket(), now)));
    // The traffic moves, and the hold with it.
    tree.lowers[0].clients[0].offers("acme", 2_700.0);
    tree.run(10.0);
    let holds: Vec<f64> = (0..2).map(|lower| tree.hold(lower).unwrap()).collect();
    assert!((holds[0] - 900.0 * (0.9 * 0.75 + 0.05)).abs() < 9.0, "{holds:?}");
    assert!(holds.iter().sum::<f64>() <= 900.0 + 0.01, "{holds:?}");
    let passing = |lower: usize, rps: f64| rps * (1.0 - tree.lowers[lower].clients[0].ratio("acme"));
    let passing = passing(0, 2_700.0) + passing(1, 900.0);
    assert!((passing - 900.0).abs() < 20.0, "{passing}");
    assert!(tree.upper.upstream_age(now).unwrap() >= Duration::from_secs(5));
    for lower in &tree.lowers {
        assert!(lower.zone.upstream_age(tree.now()) >= tree.upper.upstream_age(tree.now()), "ages add up");
    }
}

/// Nobody can tell one that died from one that is cut off.
#[test]
fn the_part_of_one_that_went_away_is_left_to_it_and_then_given_to_the_others() {
    let below = vec![offering(1, 900.0), offering(2, 900.0)];
    let mut tree = Tree::new(said(), below, Vec::new());
    tree.run(10.0);
    tree.parts(0);
    let rate = |tree: &Tree| tree.values(1, "acme").rate.unwrap().per_second();
    for (seconds, due) in [(20.0, 450.0), (25.0, 600.0), (20.0, 900.0)] {
        tree.run(seconds);
        assert!((rate(&tree) - due).abs() < 12.0, "{} instead of {due}", rate(&tree));
    }
    assert!((tree.hold(0).unwrap() - 450.0).abs() < 9.0, "what it lives on meanwhile");
    tree.joins(0);
    tree.run(5.0);
    assert!((rate(&tree) - 450.0).abs() < 12.0, "{}", rate(&tree));
    let now = tree.now();
    let farewell = tree.lowers[0].zone.report(now);
    let farewell = Report { leaving: true, ..farewell };
    tree.upper.on_report(now, tree.lowers[0].stream, farewell).unwrap();
    tree.lowers[0].cut = true;
    tree.run(1.0);
    assert!((rate(&tree) - 900.0).abs() < 9.0, "free at once: {}", rate(&tree));
}

/// Its first report says how much there was, not how fast it comes.
#[test]
fn one_that_is_new_lives_on_its_hold_until_it_has_shown_its_traffic() {
    for brings in [None, Some(300.0)] {
        let mut tree = Tree::new(said(), vec![offering(1, 900.0)], Vec::new());
        tree.run(5.0);
        let mut newcomer = greeting(7, &[]);
        newcomer.holds = brings.map(|hold| (bucket(), per_second(hold))).into_iter().collect();
        tree.upper.on_report(tree.now(), StreamId(1), newcomer).unwrap();
        let first = tree.upper.directives(tree.now(), StreamId(1)).unwrap();
        let values = first.buckets[0].keys[0].values;
        assert_eq!((values.ratio, values.rate, values.cap), (None, None, None));
        let hold = first.buckets[0].terms.hold.map(Rate::per_second);
        assert_eq!(hold, if brings.is_some() { None } else { Some(450.0) });
        tree.run(6.0);
        let values = tree.upper.directives(tree.now(), StreamId(1)).unwrap().buckets[0].keys[0].values;
        assert!(values.rate.is_some(), "it is not waited for for ever");
    }
}

#[test]
fn the_books_balance_through_two_hops() {
    let below = vec![offering(1, 1_000.0), offering(2, 370.0).offering("corner", 40.0)];
    let mut tree = Tree::new(said(), below, vec![offering(3, 500.0)]);
    tree.run(20.0);
    tree.parts(1);
    tree.run(4.0);
    tree.joins(1);
    tree.run(3.0);
    let clients = tree.lowers.iter_mut().flat_map(|lower| &mut lower.clients).chain(&mut tree.clients);
    for client in clients {
        client.offers("acme", 0.0);
        client.offers("corner", 0.0);
    }
    tree.run(2.0);
    assert_eq!(tree.counted.values().sum::<u64>(), tree.decided());
    assert_eq!(tree.unconfirmed, 0);
}

/// What was under way when it died is given up by name, and nothing is counted twice.
#[test]
fn the_books_balance_when_the_one_in_the_middle_is_replaced() {
    let below = vec![offering(1, 1_000.0), offering(2, 500.0)];
    let mut tree = Tree::new(said(), below, Vec::new());
    tree.run(10.2);
    tree.replace_upper(101);
    tree.run(1.0);
    assert!(tree.upper.is_warming_up(), "those below held directives: this is a restart");
    tree.run(9.0);
    assert!(!tree.upper.is_warming_up());
    let (counted, decided) = (tree.counted.values().sum::<u64>(), tree.decided());
    let unconfirmed = tree.unconfirmed + tree.upper.counters().unconfirmed;
    assert!(counted <= decided, "{counted} of {decided}");
    // What is under way takes a roll-up and what it waits for.
    assert!(decided <= counted + unconfirmed + 1_500, "{counted} and {unconfirmed} of {decided}");
    assert!(unconfirmed <= 1_500 * 2, "two roll-ups: {unconfirmed}");
    let rate = |lower: usize| tree.values(lower, "acme").rate.unwrap().per_second();
    assert!((rate(0) - 900.0 * (0.9 * 2.0 / 3.0 + 0.05)).abs() < 12.0, "{}", rate(0));
    assert!((rate(0) + rate(1) - 900.0).abs() < 0.01);
}

#[test]
fn one_that_restarts_below_learns_how_many_clients_it_had() {
    let mut tree = Tree::new(said(), vec![offering(1, 900.0), offering(2, 900.0)], Vec::new());
    tree.run(10.0);
    tree.parts(0);
    tree.run(1.0);
    // The same place, another process.
    let named = Identity { instance: InstanceId(7), ..identity(Role::Aggregator, 1_001) };
    let greeting = Report { seq: 1, identity: Some(named), ..Report::default() };
    tree.upper.on_report(tree.now(), StreamId(1), greeting).unwrap();
    let first = tree.upper.directives(tree.now(), StreamId(1)).unwrap();
    assert_eq!(first.children, Some(1));
    let rate = first.buckets[0].keys[0].values.rate.unwrap().per_second();
    assert!((rate - 450.0).abs() < 12.0, "it takes over what was known of its place: {rate}");
    assert!(tree.upper.is_superseded(tree.lowers[0].stream));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever comes from where: what the parts add up to is the whole.
    #[test]
    fn the_parts_of_rates_caps_and_holds_make_up_the_whole(
        offered in prop::collection::vec(0.0..5_000.0_f64, 1..5),
        own in prop::option::of(0.0..5_000.0_f64),
        away in any::<bool>(),
    ) {
        let below = offered.iter().zip(1..).map(|(rps, instance)| offering(instance, *rps)).collect();
        let clients = own.map(|rps| offering(99, rps)).into_iter().collect();
        let mut tree = Tree::new(said(), below, clients);
        tree.run(4.0);
        if away {
            tree.controller = None;
            tree.run(6.0);
        }
        let sum = |of: &dyn Fn(usize) -> f64| (0..offered.len()).map(of).sum::<f64>();
        let caps = sum(&|lower| tree.values(lower, "acme").cap.unwrap().per_second());
        let rates = sum(&|lower| tree.values(lower, "acme").rate.unwrap().per_second());
        let holds = sum(&|lower| tree.hold(lower).unwrap());
        // On hold who gets all it asks for has a margin for chance, here as without anybody below.
        let whole = if away { 900.0 + Parameters::default().margin(900.0) } else { 900.0 };
        let clients = tree.clients.first().map_or(0.0, |client| client.guard("acme") / 1.5);
        prop_assert!(holds <= 900.0 + 0.01, "holds of {}", holds);
        prop_assert!(rates + clients <= whole + 0.01, "rates of {} and {}", rates, clients);
        prop_assert!(caps + clients <= whole + 0.01, "caps of {} and {}", caps, clients);
        if own.is_none() && !away {
            prop_assert!((rates - 900.0).abs() < 0.01 && (holds - 900.0).abs() < 0.01, "{} {}", rates, holds);
        }
    }
}
