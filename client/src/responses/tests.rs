//! Tests of recorded responses: their codes, durations and cohorts, and the gate of events.

use super::*;
use plimsoll_core::stats::Bin;

const MS: Duration = Duration::from_millis(1);
const CONTROL: Cohort = Cohort {
    side: Side::Control,
    in_canary: false,
};
const OWN: Cohort = Cohort {
    side: Side::Canary,
    in_canary: true,
};

fn snapshot(responses: &Responses, bucket: usize) -> Option<(Vec<(String, u64)>, Durations)> {
    let all = responses
        .snapshots(bucket)
        .into_iter()
        .find(|(label, _)| label.is_empty())?
        .1;
    Some((all.codes, all.durations))
}

fn histogram(durations: &[Duration]) -> Histogram {
    let mut histogram = Histogram::default();
    durations
        .iter()
        .for_each(|duration| histogram.add(Bin::of(*duration), 1));
    histogram
}

fn to(responses: &Responses, bucket: u32, cohort: Cohort) -> Recorder {
    Recorder {
        cohort,
        ..responses.recorder(bucket)
    }
}

#[test]
fn responses_are_reported_once_by_side() {
    let responses = Responses::new(2, 4);
    let mut reported = Reported::default();
    assert_eq!(
        responses.since(1, Side::Control, &mut reported),
        (0, Histogram::default())
    );
    assert_eq!(snapshot(&responses, 1), None);
    for (took, ending) in [
        (MS, Ending::Status(200)),
        (MS * 9, Ending::Status(503)),
        (MS * 9, Ending::Error),
        (MS, Ending::Aborted),
        (MS, Ending::Status(404)),
    ] {
        to(&responses, 1, CONTROL).ended(took, Some(ending));
    }
    to(&responses, 1, CONTROL).refused(Ending::Status(429));
    let all = histogram(&[MS, MS * 9, MS * 9, MS, MS]);
    assert_eq!(responses.since(1, Side::Control, &mut reported), (3, all));
    assert_eq!(
        responses.since(1, Side::Control, &mut reported),
        (0, Histogram::default())
    );
    to(&responses, 1, CONTROL).ended(MS * 3, Some(Ending::Status(201)));
    assert_eq!(
        responses.since(1, Side::Control, &mut reported),
        (0, histogram(&[MS * 3]))
    );
    assert_eq!(
        responses.since(1, Side::Canary, &mut Reported::default()),
        (0, Histogram::default())
    );

    let (codes, durations) = snapshot(&responses, 1).unwrap();
    let due = [
        ("200", 1),
        ("201", 1),
        ("404", 1),
        ("429", 1),
        ("503", 1),
        ("error", 1),
        ("aborted", 1),
    ];
    assert_eq!(codes, due.map(|(code, count)| (code.to_owned(), count)));
    assert_eq!(
        (durations.count, durations.sum),
        (6, 0.024),
        "a refusal has no duration"
    );
    let up_to = |s: f64| {
        durations
            .buckets
            .iter()
            .find(|(edge, _)| *edge == s)
            .unwrap()
            .1
    };
    assert_eq!(
        [up_to(0.002), up_to(0.005), up_to(0.01), up_to(60.0)],
        [3, 4, 6, 6]
    );
    to(&responses, 9, CONTROL).ended(MS, Some(Ending::Error));
    to(&responses, 0, CONTROL).ended(MS, Some(Ending::Status(7)));
    assert_eq!(
        snapshot(&responses, 0).unwrap().0,
        [("error".to_owned(), 1)]
    );
}

#[test]
fn refusal_is_no_failure_whatever_its_status() {
    let responses = Responses::new(1, 4);
    let mut reported = Reported::default();
    for ending in [429, 503, 500]
        .map(Ending::Status)
        .into_iter()
        .chain([8, 14, 99].map(Ending::Grpc))
    {
        to(&responses, 0, CONTROL).refused(ending);
    }
    assert_eq!(
        responses.since(0, Side::Control, &mut reported),
        (0, Histogram::default())
    );
    to(&responses, 0, CONTROL).ended(MS, Some(Ending::Status(503)));
    assert_eq!(
        responses.since(0, Side::Control, &mut reported),
        (1, histogram(&[MS]))
    );
    let (codes, _) = snapshot(&responses, 0).unwrap();
    assert!(
        codes.contains(&("503".to_owned(), 2)),
        "metrics have the status of refusals, too: {codes:?}"
    );
}

#[test]
fn grpc_codes_are_labelled_as_failures() {
    let responses = Responses::new(1, 4);
    for code in 0..=20 {
        to(&responses, 0, CONTROL).ended(MS, None);
        (0..=code).for_each(|_| to(&responses, 0, CONTROL).count(Ending::Grpc(code)));
    }
    let (codes, durations) = snapshot(&responses, 0).unwrap();
    let count = |label: &str| {
        codes
            .iter()
            .find(|(code, _)| code == label)
            .map_or(0, |code| code.1)
    };
    let counts = [
        "grpc_ok",
        "grpc_cancelled",
        "grpc_unavailable",
        "grpc_unauthenticated",
    ]
    .map(count);
    assert_eq!(counts, [1, 2, 15, 17]);
    // A code that gRPC does not define counts as UNKNOWN, as at a caller.
    assert_eq!(
        (count("grpc_unknown"), codes.len()),
        (3 + 18 + 19 + 20 + 21, LABELS.len())
    );
    assert_eq!(durations.count, 21);
    let failed = [2, 4, 12, 13, 14, 15]
        .map(|code| code + 1)
        .iter()
        .sum::<u64>()
        + 18
        + 19
        + 20
        + 21;
    assert_eq!(
        responses
            .since(0, Side::Control, &mut Reported::default())
            .0,
        failed
    );
}

#[test]
fn refusals_are_logged_every_ten_seconds() {
    let responses = Responses::new(2, 4);
    let seconds = |at| Duration::from_secs_f64(at);
    let mut logged = 0;
    for (at, refusals, suppressed) in [
        (0.0, 1, Some(0)),
        (5.0, 1, None),
        (9.99, 3, None),
        (10.0, 1, Some(4)),
        (15.0, 1, None),
        (90.0, 1, Some(1)),
        (99.0, 1, None),
        (100.0, 2, Some(2)),
    ] {
        (0..refusals).for_each(|n| {
            let side = [Side::Control, Side::Canary][n % 2];
            let in_canary = n > 1;
            to(&responses, 1, Cohort { side, in_canary }).refused(Ending::Status(429));
        });
        assert_eq!(responses.event(1, seconds(at)), suppressed, "{at} s");
        logged += suppressed.map_or(0, |suppressed| suppressed + 1);
    }
    assert_eq!(logged, 11, "each refusal is a part of one event");
    to(&responses, 0, CONTROL).refused(Ending::Status(429));
    assert_eq!(
        responses.event(0, seconds(100.0)),
        Some(0),
        "each bucket has events of its own"
    );
    assert_eq!(responses.event(7, seconds(100.0)), None);
}

#[test]
fn bucket_keeps_its_first_name() {
    let responses = Responses::new(1, 4);
    assert_eq!(responses.name(0), None);
    ["orders", "other"]
        .into_iter()
        .for_each(|name| responses.set_name(0, name));
    responses.set_name(7, "outside");
    assert_eq!(
        (responses.name(0), responses.name(7)),
        (Some("orders"), None)
    );
}

#[test]
fn cohort_is_settable_by_bucket() {
    let responses = Responses::new(1, 4);
    assert_eq!(responses.cohort(0), CONTROL);
    responses.set_cohort(0, OWN);
    responses.set_cohort(7, OWN);
    assert_eq!((responses.cohort(0), responses.cohort(7)), (OWN, CONTROL));
    responses.set_cohort(0, CONTROL);
    assert_eq!(responses.cohort(0), CONTROL);
}

#[test]
fn canary_responses_have_a_cohort() {
    let responses = Responses::new(1, 4);
    let sides = [Side::Control, Side::Canary];
    let cohorts = [false, true].map(|in_canary| sides.map(|side| Cohort { side, in_canary }));
    for (n, cohort) in cohorts.into_iter().flatten().enumerate() {
        responses.set_cohort(0, cohort);
        (0..=n).for_each(|_| responses.recorder(0).ended(MS, Some(Ending::Status(500))));
    }
    let counts: Vec<(&str, u64)> = responses
        .snapshots(0)
        .into_iter()
        .map(|(label, all)| (label, all.codes[0].1))
        .collect();
    assert_eq!(counts, [("", 3), ("control", 3), ("canary", 4)]);
    // Gates see the sides in every mode.
    let failed = sides.map(|side| responses.since(0, side, &mut Reported::default()).0);
    assert_eq!(failed, [4, 6]);
}
