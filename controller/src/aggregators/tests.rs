//! Rates and silence of aggregators, as they follow from reports.

use super::*;
use plimsoll_core::names::Tenant;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::Origin;
use plimsoll_core::report::{
    CALLERS_MAX, CALLERS_PER_BUCKET_MAX, Counts, Entry, ReportedNames, Tally,
};

const TICK: Duration = Duration::from_millis(500);

fn place(name: &str) -> AggregatorKey {
    (Zone::new(name).unwrap(), Name::new("aggregator").unwrap())
}

fn aggregators(names: &[&str]) -> Aggregators {
    let mut aggregators = Aggregators::default();
    for (name, instance) in names.iter().zip(1..) {
        assert_eq!(greet(&mut aggregators, name, instance), None);
    }
    aggregators
}

fn greet(aggregators: &mut Aggregators, name: &str, instance: u128) -> Option<InstanceId> {
    let instance = InstanceId(instance);
    aggregators.greet(MonoTime::ZERO, place(name), instance, BTreeMap::new())
}

/// Enters a report with `offered` requests of key 0 over `span_ms`, a quarter of them refused.
fn enter(aggregators: &mut Aggregators, name: &str, span_ms: u64, offered: u64) {
    enter_part(aggregators, name, span_ms, offered, false);
}

/// Enters a report like [`enter`], or an earlier part of one.
fn enter_part(aggregators: &mut Aggregators, name: &str, span_ms: u64, offered: u64, more: bool) {
    let counts = Counts {
        offered,
        dropped: offered / 4,
        ..Counts::ZERO
    };
    let delta = Tally {
        counts,
        late: Counts::ZERO,
    };
    let entry = Entry {
        own: Some(KeyId(0)),
        delta,
        origin: Origin::Observed,
    };
    let entered = Entered {
        span: Some(Duration::from_millis(span_ms)),
        entries: if offered > 0 { vec![entry] } else { Vec::new() },
        ..Entered::default()
    };
    let report = Report {
        time: Some(MonoTime::ZERO),
        more,
        ..Report::default()
    };
    aggregators.enter(&place(name), &report, &entered);
}

fn tick(aggregators: &mut Aggregators) -> Vec<Activity> {
    aggregators.on_tick(TICK, &Parameters::default());
    aggregators.clear_fresh();
    aggregators
        .iter()
        .map(|(_, aggregator)| aggregator.activity)
        .collect()
}

fn rate(aggregators: &Aggregators, name: &str) -> f64 {
    aggregators.get(&place(name)).unwrap().rate(KeyId(0))
}

fn activity(aggregators: &Aggregators, name: &str) -> Activity {
    aggregators.get(&place(name)).unwrap().activity
}

#[track_caller]
fn check_rate(aggregators: &Aggregators, expected: f64) {
    let rate = rate(aggregators, "a");
    assert!((rate - expected).abs() < 1e-6, "{rate}");
}

const COUNTED: Activity = Activity::Counted {
    span: TICK,
    gap: TICK,
};

#[test]
fn complete_report_parts_give_a_rate() {
    let mut aggregators = aggregators(&["a"]);
    enter_part(&mut aggregators, "a", 500, 300, true);
    // A tick between two parts.
    assert_eq!(tick(&mut aggregators), [Activity::Idle]);
    assert_eq!(rate(&aggregators, "a"), 0.0);
    enter(&mut aggregators, "a", 500, 200);
    assert_eq!(tick(&mut aggregators), [COUNTED]);
    assert_eq!(rate(&aggregators, "a"), 1_000.0);
    // The last part of this report never arrives.
    enter_part(&mut aggregators, "a", 500, 9_000, true);
    greet(&mut aggregators, "a", 1);
    enter(&mut aggregators, "a", 500, 500);
    tick(&mut aggregators);
    check_rate(&aggregators, 1_000.0);
}

#[test]
fn rate_uses_report_spans_and_absent_keys() {
    let mut aggregators = aggregators(&["a"]);
    for (span, offered, expected) in [(500, 500, 1_000.0), (250, 500, 2_000.0), (500, 0, 800.0)] {
        enter(&mut aggregators, "a", span, offered);
        aggregators.on_tick(TICK, &Parameters::default());
        let aggregator = aggregators.get(&place("a")).unwrap();
        let span = Duration::from_millis(span);
        assert_eq!(aggregator.activity, Activity::Counted { span, gap: span });
        assert_eq!(aggregator.passed(KeyId(0)), (offered - offered / 4) as f64);
        check_rate(&aggregators, expected);
        aggregators.clear_fresh();
    }
}

#[test]
fn silence_is_counted_once_from_its_beginning() {
    let mut aggregators = aggregators(&["a", "b"]);
    let mut silent = Duration::ZERO;
    for step in 1..=10 {
        enter(&mut aggregators, "a", 500, 100);
        if step == 1 {
            enter(&mut aggregators, "b", 500, 100);
        }
        aggregators.on_tick(TICK, &Parameters::default());
        let activity = activity(&aggregators, "b");
        match step {
            1 => assert_eq!(activity, COUNTED),
            2 | 3 => assert_eq!(activity, Activity::Idle, "its report may only be late"),
            4 => assert_eq!(activity, Activity::Silent(3 * TICK), "from its last report"),
            _ => assert_eq!(activity, Activity::Silent(TICK)),
        }
        if let Activity::Silent(more) = activity {
            silent += more;
        }
        aggregators.clear_fresh();
    }
    assert_eq!(silent, 9 * TICK);
    assert_eq!(rate(&aggregators, "b"), 200.0, "its last rate is held");
}

#[test]
fn aggregators_do_not_age_while_none_reports() {
    let mut aggregators = aggregators(&["a", "b"]);
    tick(&mut aggregators);
    for _ in 0..1_000 {
        assert_eq!(tick(&mut aggregators), [Activity::Idle, Activity::Idle]);
    }
    assert!(aggregators.remove_absent(false).is_empty());
}

#[test]
fn rate_after_a_silence_is_not_smoothed() {
    let mut aggregators = aggregators(&["a"]);
    enter(&mut aggregators, "a", 500, 5_000);
    tick(&mut aggregators);
    assert_eq!(rate(&aggregators, "a"), 10_000.0);
    // Smoothing would leave some of the 10,000 a second.
    enter(&mut aggregators, "a", 1_500, 1_500);
    aggregators.on_tick(TICK, &Parameters::default());
    assert_eq!(rate(&aggregators, "a"), 1_000.0);
}

/// Their rates are smoothed over all of the time, and not replaced as after a silence.
#[test]
fn delayed_reports_are_no_silence() {
    let mut aggregators = aggregators(&["a"]);
    enter(&mut aggregators, "a", 500, 5_000);
    tick(&mut aggregators);
    (0..3).for_each(|_| enter(&mut aggregators, "a", 500, 500));
    aggregators.on_tick(TICK, &Parameters::default());
    let (span, gap) = (3 * TICK, TICK);
    let counted = Activity::Counted { span, gap };
    assert_eq!(activity(&aggregators, "a"), counted);
    check_rate(&aggregators, 1_000.0 + 0.4_f64.powi(3) * 9_000.0);
}

#[test]
fn first_greeting_gives_the_first_holds() {
    let mut aggregators = Aggregators::default();
    let bucket = Bucket::new("api").unwrap();
    for (instance, hold) in [(1, Some(600.0)), (1, Some(750.0)), (2, None)] {
        let holds = hold
            .map(|hold| (bucket.clone(), Rate::new(hold).unwrap()))
            .into_iter()
            .collect();
        aggregators.greet(MonoTime::ZERO, place("a"), InstanceId(instance), holds);
        let aggregator = aggregators.get(&place("a")).unwrap();
        assert_eq!(aggregator.first_holds[&bucket], Rate::new(600.0).unwrap());
        assert_eq!(
            aggregator.holds.get(&bucket).map(|hold| hold.per_second()),
            hold
        );
    }
}

#[test]
fn new_process_keeps_the_rates() {
    let mut aggregators = aggregators(&["a"]);
    enter(&mut aggregators, "a", 500, 500);
    aggregators.on_tick(TICK, &Parameters::default());
    aggregators.by_place.get_mut(&place("a")).unwrap().served = true;
    assert_eq!(greet(&mut aggregators, "a", 7), Some(InstanceId(1)));
    assert_eq!(rate(&aggregators, "a"), 1_000.0);
    assert!(aggregators.get(&place("a")).unwrap().served);
    assert_eq!(greet(&mut aggregators, "a", 7), None);
}

#[test]
fn returning_process_reveals_a_shared_name() {
    let mut aggregators = Aggregators::default();
    let place = place("a");
    let in_conflict = |aggregators: &Aggregators, s: u64| {
        aggregators
            .get(&place)
            .unwrap()
            .has_name_conflict(MonoTime::from_elapsed(Duration::from_secs(s)))
    };
    // The time, the process that greets, and whether it shows a conflict.
    for (s, instance, conflict) in [
        (0, 1, false),
        (1, 1, false),
        (2, 2, false),
        (3, 3, false),
        (4, 2, true),
        (5, 2, true),
        (6, 3, true),
    ] {
        let now = MonoTime::from_elapsed(Duration::from_secs(s));
        aggregators.greet(now, place.clone(), InstanceId(instance), BTreeMap::new());
        assert_eq!(
            in_conflict(&aggregators, s),
            conflict,
            "process {instance} at {s}"
        );
    }
    assert!(in_conflict(&aggregators, 65) && !in_conflict(&aggregators, 66));
}

fn report_callers(aggregators: &mut Aggregators, name: &str, callers: &[(&str, &str, f64)]) {
    let of = |(bucket, tenant, rate): &(&str, &str, f64)| {
        let key = Key {
            bucket: Bucket::new(bucket).unwrap(),
            tenant: Tenant::new(tenant).unwrap(),
        };
        (key, Rate::new(*rate).unwrap())
    };
    let report = Report {
        time: Some(MonoTime::ZERO),
        names: ReportedNames {
            callers: callers.iter().map(of).collect(),
            ..ReportedNames::default()
        },
        ..Report::default()
    };
    aggregators.enter(&place(name), &report, &Entered::default());
}

fn callers(aggregators: &Aggregators, bucket: &str) -> Vec<(String, f64)> {
    let callers = aggregators.callers(&Bucket::new(bucket).unwrap(), |_| true);
    let named = callers.into_iter();
    named
        .map(|(tenant, rate)| (tenant.to_string(), rate))
        .collect()
}

fn pass(aggregators: &mut Aggregators, seconds: u32) {
    for _ in 0..2 * seconds {
        tick(aggregators);
        aggregators.age_callers(TICK, &Parameters::default());
    }
}

#[test]
fn callers_are_summed_over_zones() {
    let mut aggregators = aggregators(&["a", "b"]);
    let (jo, al, flo) = ("jo%~free", "al", "flo");
    let named = |all: &[(&str, f64)]| -> Vec<(String, f64)> {
        let own = all.iter();
        own.map(|(name, rate)| ((*name).to_owned(), *rate))
            .collect()
    };
    let at_a = [("api", jo, 30.0), ("web", al, 9.0), ("api", al, 20.0)];
    report_callers(&mut aggregators, "a", &at_a);
    report_callers(
        &mut aggregators,
        "b",
        &[("api", al, 25.0), ("api", flo, 1.0)],
    );
    let of_both = named(&[(al, 45.0), (jo, 30.0), (flo, 1.0)]);
    assert_eq!(callers(&aggregators, "api"), of_both);
    assert_eq!(callers(&aggregators, "web"), named(&[(al, 9.0)]));
    assert_eq!(callers(&aggregators, "none"), []);
    let of_plan = aggregators.callers(&Bucket::new("api").unwrap(), |name| {
        name.plan() == Some("free")
    });
    assert_eq!(of_plan, [(Tenant::new(jo).unwrap(), 30.0)]);
    report_callers(&mut aggregators, "a", &[]);
    assert_eq!(callers(&aggregators, "api"), of_both, "empty is unchanged");

    let many: Vec<String> = (0..CALLERS_MAX).map(|name| format!("n{name:03}")).collect();
    let many: Vec<_> = many
        .iter()
        .map(|name| ("api", name.as_str(), 7.0))
        .collect();
    report_callers(&mut aggregators, "a", &many);
    let busiest = callers(&aggregators, "api");
    assert_eq!(busiest.len(), CALLERS_PER_BUCKET_MAX);
    assert_eq!(busiest[..2], named(&[(al, 25.0), ("n000", 7.0)]));
}

#[test]
fn silent_and_old_lists_are_not_shown() {
    let mut aggregators = aggregators(&["a", "b"]);
    for (name, rate) in [("a", 30.0), ("b", 12.0)] {
        report_callers(&mut aggregators, name, &[("api", "jo", rate)]);
    }
    // The second at which the lists are looked at, whether b has reported until then, and the rate.
    let mut now = 0;
    for (at, b_reports, expected) in [
        (1, true, Some(42.0)),
        (6, false, Some(30.0)),
        (7, true, Some(42.0)),
        (30, true, Some(42.0)),
        (31, true, None),
    ] {
        for _ in now..at {
            report_callers(&mut aggregators, "a", &[]);
            if b_reports {
                report_callers(&mut aggregators, "b", &[]);
            }
            pass(&mut aggregators, 1);
        }
        now = at;
        let shown = callers(&aggregators, "api");
        assert_eq!(shown.first().map(|(_, rate)| *rate), expected, "at {at} s");
    }
}
