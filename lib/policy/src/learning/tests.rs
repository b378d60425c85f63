//! Tests of learned limits: tables, attacks, clocks that jump, and a comparison with a slow reference.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{LimitSource, ONE_CLASS_TENANTS, Policy, Source};
use plimsoll_core::report::{Counts, Tally};

fn rate(rps: f64) -> Rate {
    Rate::new(rps).unwrap()
}

fn clean(rps: f64) -> Sample {
    Sample {
        offered: rate(rps),
        clean: true,
    }
}

fn left_out(rps: f64) -> Sample {
    Sample {
        offered: rate(rps),
        clean: false,
    }
}

fn learned(text: &str) -> Learned {
    let text = format!("buckets: {{ b: {{ limit: {{ learned: {{ {text} }} }} }} }}");
    let tenants = Source {
        name: "tenants",
        text: ONE_CLASS_TENANTS,
    };
    let (policy, _) = Policy::read(
        Source {
            name: "policy",
            text: &text,
        },
        tenants,
    )
    .unwrap();
    let bucket = plimsoll_core::names::Bucket::new("b").unwrap();
    let LimitSource::Learned(learned) = policy.bucket(&bucket).unwrap().source.clone() else {
        panic!("{text}")
    };
    learned
}

fn live(
    baseline: &mut Baseline,
    day: i64,
    learned: &Learned,
    sample: impl Fn(usize) -> Option<Sample>,
) {
    baseline.turn(Day(day), Some(learned));
    for at in 0..MINUTES_PER_DAY {
        if let Some(sample) = sample(at) {
            baseline.record(Minute(Day(day).first_minute().0 + at as i64), sample);
        }
    }
}

fn flat(rates: &[f64], learned: &Learned) -> Baseline {
    let mut baseline = Baseline::default();
    for (day, rps) in (0..).zip(rates) {
        live(&mut baseline, day, learned, |_| Some(clean(*rps)));
    }
    baseline.turn(Day(rates.len() as i64), Some(learned));
    baseline
}

fn limit(baseline: &Baseline, learned: &Learned) -> Option<f64> {
    baseline.limit(learned).map(|step| step.limit.per_second())
}

#[track_caller]
fn near(got: Option<f64>, expected: Option<f64>) {
    match (got, expected) {
        (Some(got), Some(expected)) => {
            assert!((got / expected - 1.0).abs() < 1e-6, "{got}, not {expected}")
        }
        _ => assert_eq!(got, expected),
    }
}

/// A day of a shop: 200 requests/s at night, 1,000 at noon.
fn shop(at: usize) -> f64 {
    600.0 - 400.0 * (at as f64 / MINUTES_PER_DAY as f64 * std::f64::consts::TAU).cos()
}

#[test]
fn the_percentile_lies_between_its_neighbours() {
    let cases: [(&[f64], f64, Option<f64>); 8] = [
        (&[], 95.0, None),
        (&[7.0], 95.0, Some(7.0)),
        (&[2.0, 1.0], 50.0, Some(1.5)),
        (&[3.0, 1.0, 2.0], 100.0, Some(3.0)),
        (&[3.0, 1.0, 2.0], 0.0, Some(1.0)),
        (&[10.0, 20.0, 30.0, 40.0], 95.0, Some(38.5)),
        (&[5.0; 9], 95.0, Some(5.0)),
        (&[1.0, 2.0, 3.0, 4.0, 5.0], 25.0, Some(2.0)),
    ];
    for (values, percent, expected) in cases {
        assert_eq!(
            percentile(&mut values.to_vec(), percent),
            expected,
            "{values:?} at {percent}"
        );
    }
}

#[test]
fn three_days_are_enough_and_seven_count() {
    let cases: [(&str, &[f64], Option<f64>); 9] = [
        ("", &[], None),
        ("", &[100.0], None),
        ("", &[100.0, 110.0], None),
        ("", &[100.0, 110.0, 120.0], Some(1.2 * 119.0)),
        // A day at 90: the window is the last three days, 110 and 90 included.
        ("days: 3", &[100.0, 110.0, 120.0, 90.0], Some(1.2 * 119.0)),
        (
            "",
            &[100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 110.0],
            Some(1.2 * 107.0),
        ),
        (
            "headroom: 2, percentile: 50",
            &[100.0, 110.0, 120.0],
            Some(220.0),
        ),
        ("min: 500, max: 900", &[100.0, 110.0, 120.0], Some(500.0)),
        ("min: 5, max: 90", &[100.0, 110.0, 120.0], Some(90.0)),
    ];
    for (text, rates, expected) in cases {
        let learned = learned(text);
        near(limit(&flat(rates, &learned), &learned), expected);
    }
}

#[test]
fn peak_needs_sixty_clean_minutes() {
    let learned = learned("");
    for (minutes, peaks) in [(59, 0), (60, 1)] {
        let mut baseline = Baseline::default();
        live(&mut baseline, 0, &learned, |at| {
            (at < minutes).then(|| clean(100.0))
        });
        baseline.turn(Day(1), Some(&learned));
        assert_eq!(baseline.peaks().len(), peaks, "{minutes} clean minutes");
    }
}

#[test]
fn new_bounds_apply_without_relearning() {
    let free = learned("");
    let mut baseline = flat(&[1000.0, 1000.0, 1000.0], &free);
    let tight = learned("max: 100");
    near(limit(&baseline, &tight), Some(100.0));
    near(limit(&baseline, &free), Some(1200.0));
    live(&mut baseline, 3, &tight, |_| Some(clean(1000.0)));
    baseline.turn(Day(4), Some(&tight));
    near(limit(&baseline, &tight), Some(100.0));
    near(limit(&baseline, &free), Some(960.0));
}

#[test]
fn zero_limit_can_be_learned_away() {
    let nothing = learned("max: 0");
    let mut baseline = flat(&[100.0, 100.0, 100.0], &nothing);
    assert_eq!(limit(&baseline, &nothing), Some(0.0));
    let some = learned("");
    live(&mut baseline, 3, &some, |_| Some(clean(100.0)));
    baseline.turn(Day(4), Some(&some));
    near(limit(&baseline, &some), Some(120.0));
}

/// Ten times the traffic for 20 days, beginning and ending at any hour: traffic above the limit makes its
/// minute unclean, by drops in enforce and by would-drops in shadow.
#[test]
fn long_attack_moves_the_limit_a_fifth() {
    let learned = learned("until_history: 1500");
    for (from, to) in [
        (0, 1440),
        (700, 1440),
        (480, 1200),
        (60, 1380),
        (200, 260),
        (0, 1370),
    ] {
        let mut baseline = Baseline::default();
        for day in 0..40 {
            live(&mut baseline, day, &learned, |at| {
                let attacked = (10..30).contains(&day) && (from..to).contains(&at);
                let offered = shop(at) * if attacked { 10.0 } else { 1.0 };
                Some(Sample {
                    offered: rate(offered),
                    clean: offered <= 1196.0,
                })
            });
            if let Some(limit) = limit(&baseline, &learned) {
                near(
                    Some(limit),
                    Some(1.2 * 990.0 * if limit < 1188.0 { 1.0 } else { limit / 1188.0 }),
                );
                assert!(
                    (950.0..=1426.0).contains(&limit),
                    "day {day} of {from}..{to}: {limit}"
                );
            }
        }
    }
}

#[test]
fn jumping_clock_clears_nothing() {
    let learned = learned("days: 1");
    for jump in [-10_000, -90, -1, 1, 2, 90, 10_000, i64::from(i32::MAX)] {
        let mut baseline = flat(&[100.0, 100.0, 100.0], &learned);
        // The jump cuts the day off, a few hours pass, and the clock is set right again.
        for day in [3, 3 + jump, 3] {
            live(&mut baseline, day, &learned, |at| {
                (at < 200).then(|| clean(200.0))
            });
        }
        baseline.turn(Day(4), Some(&learned));
        let now = limit(&baseline, &learned).unwrap();
        assert!(
            (120.0..=120.0 * 1.44 + 1e-6).contains(&now),
            "{jump}: {now}"
        );
        // The clock jumps back and forth every hour: each day moves the limit once.
        for day in [4, 5, 4, 5, 4, 5, 4, 5, 4, 5] {
            live(&mut baseline, day, &learned, |at| {
                (at < 200).then(|| clean(200.0))
            });
        }
        assert!(
            limit(&baseline, &learned).unwrap() <= 120.0 * 1.2_f64.powi(4) + 1e-6,
            "{jump}"
        );
        assert!(baseline.peaks().len() >= 3);
    }
    let mut baseline = Baseline::default();
    for day in [i64::MAX, i64::MIN, 0] {
        baseline.turn(Day(day), Some(&learned));
        baseline.record(Day(day).first_minute(), clean(1.0));
        baseline.record(Minute(i64::MAX), clean(1.0));
        baseline.record(Minute(i64::MIN), clean(1.0));
    }
}

#[test]
fn a_minute_counts_once() {
    let learned = learned("");
    let mut baseline = Baseline::default();
    for rps in [100.0, 900.0] {
        live(&mut baseline, 0, &learned, |at| {
            (at < 100).then(|| clean(rps))
        });
    }
    live(&mut baseline, 0, &learned, |at| {
        (at < 100).then(|| left_out(1.0))
    });
    assert_eq!(baseline.minutes(), (100, 0));
    baseline.turn(Day(1), Some(&learned));
    assert_eq!(baseline.peaks().next().unwrap().rate, rate(100.0));
}

#[test]
fn a_restored_history_continues_unchanged() {
    let learned = learned("");
    let rates = [100.0, 130.0, 120.0, 150.0, 90.0];
    let whole = flat(&rates, &learned);
    let mut restarted = Baseline::default();
    for (day, rps) in (0..).zip(rates) {
        live(&mut restarted, day, &learned, |at| {
            (at < 720).then(|| clean(rps))
        });
        // The samples of the present day are added again.
        let json = serde_json::to_string(&restarted.closed()).unwrap();
        restarted = Baseline::restore(serde_json::from_str(&json).unwrap());
        live(&mut restarted, day, &learned, |_| Some(clean(rps)));
    }
    restarted.turn(Day(5), Some(&learned));
    assert_eq!(restarted, whole);
}

#[test]
fn peaks_are_recorded_before_learning() {
    let learned = learned("");
    let mut baseline = Baseline::default();
    for day in 0..4 {
        baseline.turn(Day(day), None);
        for at in 0..100 {
            baseline.record(Minute(Day(day).first_minute().0 + at), clean(100.0));
        }
    }
    assert_eq!(baseline.limit(&learned), None);
    assert!(baseline.learn(Some(&learned)));
    near(limit(&baseline, &learned), Some(120.0));
    assert!(!baseline.learn(Some(&learned)));
    // A limit that is not learned anymore is dropped, so that it is not taken for fresh later.
    baseline.turn(Day(4), None);
    assert_eq!(baseline.limit(&learned), None);
}

#[test]
fn imported_days_are_inserted_by_date() {
    let learned = learned("days: 3");
    let day = |rps: f64, minutes: usize| {
        let mut samples = DaySamples::default();
        (0..minutes as i64).for_each(|at| samples.record(Minute(at), clean(rps)));
        samples
    };
    let mut baseline = flat(&[0.0, 0.0, 0.0, 0.0, 0.0, 100.0], &learned);
    assert_eq!(
        baseline.peaks().len(),
        1,
        "days on which nobody asked have no peak"
    );
    let cases = [
        (3, 300.0, 100, false, Filed::Added),
        (1, 100.0, 59, false, Filed::TooFew),
        (4, 200.0, 60, false, Filed::Added),
        (5, 900.0, 100, false, Filed::Kept),
        (5, 150.0, 100, true, Filed::Replaced),
    ];
    for (at, rps, minutes, replace, expected) in cases {
        assert_eq!(
            baseline.file(Day(at), &day(rps, minutes), replace, &learned),
            expected,
            "day {at}"
        );
    }
    assert!(baseline.learn(Some(&learned)));
    let peaks: Vec<(i64, f64)> = baseline
        .peaks()
        .map(|peak| (peak.day.0, peak.rate.per_second()))
        .collect();
    assert_eq!(peaks, [(3, 300.0), (4, 200.0), (5, 150.0)]);
    near(limit(&baseline, &learned), Some(1.2 * 290.0));
    for at in 0..200 {
        baseline.file(Day(-at), &day(10.0, 60), false, &learned);
    }
    assert_eq!(baseline.peaks().len(), DAYS_MAX);
    assert_eq!(
        baseline.file(Day(-500), &day(1.0, 60), false, &learned),
        Filed::TooOld
    );
    assert_eq!(
        baseline.peaks().last().unwrap().day,
        Day(5),
        "what is newest stays"
    );
}

#[test]
fn sample_has_offered_rate_and_cleanness() {
    let counts = |offered, dropped, would_dropped| Counts {
        offered,
        dropped,
        would_dropped,
        ..Counts::ZERO
    };
    let tally = |counts| Tally {
        counts,
        late: Counts::ZERO,
    };
    let minute = Duration::from_secs(60);
    // Few refusals say nothing about the demand, regardless of what refuses. A quiet bucket has one
    // request of thirty.
    for (counted, expected) in [
        (counts(6_000, 0, 0), clean(100.0)),
        (counts(6_000, 300, 0), clean(100.0)),
        (counts(6_000, 301, 0), left_out(100.0)),
        (counts(6_000, 0, 300), clean(100.0)),
        (counts(6_000, 0, 301), left_out(100.0)),
        (counts(30, 1, 0), clean(0.5)),
        (counts(30, 2, 0), left_out(0.5)),
    ] {
        let found = Sample::of(tally(counted), minute, false);
        assert_eq!(found, Some(expected), "{counted:?}");
    }
    let cases = [
        (
            tally(Counts {
                guard_dropped: 150,
                ..counts(6_000, 150, 0)
            }),
            minute,
            false,
            Some(clean(100.0)),
        ),
        (
            tally(Counts {
                guard_dropped: 151,
                ..counts(6_000, 150, 0)
            }),
            minute,
            false,
            Some(left_out(100.0)),
        ),
        (
            tally(counts(6_000, 0, 0)),
            minute,
            true,
            Some(left_out(100.0)),
        ),
        // Late counts are not part of the rate.
        (
            Tally {
                late: counts(3_000, 0, 0),
                ..tally(counts(6_000, 0, 0))
            },
            minute,
            false,
            Some(clean(50.0)),
        ),
        // Nor are requests that were sent again, late or not.
        (
            Tally {
                late: Counts {
                    retried: 1_000,
                    ..counts(3_000, 0, 0)
                },
                counts: Counts {
                    retried: 1_600,
                    ..counts(6_000, 0, 0)
                },
            },
            minute,
            false,
            Some(clean(40.0)),
        ),
        // No requests give no sample, and not a rate of zero.
        (Tally::ZERO, minute, false, None),
        (
            tally(counts(6_000, 0, 0)),
            Duration::from_secs(44),
            false,
            None,
        ),
        (
            tally(counts(6_000, 0, 0)),
            Duration::from_secs(91),
            false,
            None,
        ),
        (tally(counts(6_000, 0, 0)), Duration::ZERO, false, None),
    ];
    for (counted, span, killed, expected) in cases {
        assert_eq!(
            Sample::of(counted, span, killed),
            expected,
            "{counted:?} in {span:?}"
        );
    }
}

#[test]
fn extreme_rates_stay_rates() {
    let learned = learned("headroom: 100");
    for rps in [1e12, f64::MIN_POSITIVE, 1e-300, 1e11, 1.0] {
        let baseline = flat(&[rps; 4], &learned);
        if let Some(step) = baseline.limit(&learned) {
            assert!(step.limit <= Rate::MAX);
        }
    }
}

#[test]
fn memory_is_bounded() {
    let learned = learned("");
    let mut baseline = Baseline::default();
    for day in 0..200 {
        baseline.turn(Day(day), Some(&learned));
        for at in 0..60 {
            baseline.record(Minute(Day(day).first_minute().0 + at), clean(1.0));
        }
    }
    assert_eq!(baseline.peaks().len(), DAYS_MAX);
    let bytes =
        size_of::<Baseline>() + DAYS_MAX.next_power_of_two() * size_of::<Peak>() + 2_048 * 4;
    assert!(bytes <= 10_752, "{bytes}");
}

/// One day of the reference: the day, and its minutes with their offered rates and whether they are clean.
type SlowDay = (i64, Vec<(usize, f64, bool)>);

/// The formulas in their plain, slow form.
fn slow(days: &[SlowDay], p: f64, count: usize, headroom: f64, min: f64, max: f64) -> Option<f64> {
    let quantile = |values: &[f64]| -> f64 {
        let mut sorted = values.to_vec();
        sorted.sort_by(|a, b| a.partial_cmp(b).unwrap());
        let h = (sorted.len() - 1) as f64 * p / 100.0;
        let (low, high) = (sorted[h.floor() as usize], sorted[h.ceil() as usize]);
        low * (1.0 - h.fract()) + high * h.fract()
    };
    let mut peaks: Vec<(i64, f64)> = Vec::new();
    let mut limit: Option<f64> = None;
    for (day, minutes) in days {
        let mut first = std::collections::BTreeMap::new();
        for (minute, offered, clean) in minutes {
            first.entry(*minute).or_insert((*offered, *clean));
        }
        let clean: Vec<f64> = first
            .values()
            .filter(|(_, clean)| *clean)
            .map(|(offered, _)| *offered)
            .collect();
        if clean.len() < 60 || peaks.iter().any(|(known, _)| known == day) {
            continue;
        }
        let peak = quantile(&clean);
        let typical = |peaks: &[(i64, f64)]| {
            let last: Vec<f64> = peaks
                .iter()
                .rev()
                .take(count)
                .map(|(_, peak)| *peak)
                .collect();
            (peaks.len() >= 3).then(|| quantile(&last))
        };
        let left_out = first.len() - clean.len();
        if left_out as f64 * 100.0 > first.len() as f64 * (100.0 - p)
            && typical(&peaks).is_none_or(|typical| peak < typical)
        {
            continue;
        }
        peaks.push((*day, peak));
        if let Some(typical) = typical(&peaks) {
            let target = (headroom * typical).max(min).min(max);
            limit = Some(limit.map_or(target, |before: f64| {
                target.max(before * 0.8).min(before * 1.2)
            }));
        }
    }
    limit.map(|limit| limit.max(min).min(max))
}

fn days() -> impl Strategy<Value = Vec<SlowDay>> {
    // Rates that an `f32` holds exactly, so that only the order of operations may differ.
    let minute = (0_usize..1440, 1_u32..4_000, prop::bool::weighted(0.96));
    let minute = minute.prop_map(|(at, eighths, clean)| (at, f64::from(eighths) / 8.0, clean));
    let day = (0_i64..12, prop::collection::vec(minute, 0..120));
    prop::collection::vec(day, 0..14).prop_map(|mut days| {
        // Two days in a row with the same date are one.
        days.dedup_by_key(|(day, _)| *day);
        days
    })
}

proptest! {
    #[test]
    fn learned_limit_matches_the_slow_reference(
        days in days(), p in 1_u32..=100, count in 1_usize..10, headroom in 0.5_f64..3.0, min in 0_u32..100, max in 100_u32..900,
    ) {
        let text = format!("percentile: {p}, days: {count}, headroom: {headroom}, min: {min}, max: {max}");
        let learned = learned(&text);
        let mut baseline = Baseline::default();
        for (day, minutes) in &days {
            baseline.turn(Day(*day), Some(&learned));
            for (at, offered, is_clean) in minutes {
                let sample = Sample { offered: rate(*offered), clean: *is_clean };
                baseline.record(Minute(Day(*day).first_minute().0 + *at as i64), sample);
            }
        }
        baseline.turn(Day(999), Some(&learned));
        let expected = slow(&days, p.into(), count, headroom, min.into(), max.into());
        match (limit(&baseline, &learned), expected) {
            (Some(got), Some(expected)) => {
                prop_assert!((got - expected).abs() <= 1e-9 * expected.max(1.0), "{got}, not {expected}");
            }
            (got, expected) => prop_assert_eq!(got, expected),
        }
    }

    #[test]
    fn no_day_order_breaks_the_invariants(
        events in prop::collection::vec((-5_i64..5, 0_i64..1440, any::<f64>(), any::<bool>()), 0..400),
    ) {
        let learned = learned("days: 2, min: 10, max: 5000");
        let mut baseline = Baseline::default();
        for (day, at, offered, clean) in events {
            let before = limit(&baseline, &learned);
            baseline.turn(Day(day), Some(&learned));
            let after = limit(&baseline, &learned);
            if let Some(before) = before {
                let after = after.expect("never unlearned");
                prop_assert!(after >= before * 0.8 - 1e-9 && after <= before * 1.2 + 1e-9);
            }
            // Invalid rates cannot be built.
            if let Ok(offered) = Rate::new(offered) {
                for minute in 0..90 {
                    baseline.record(Minute(Day(day).first_minute().0 + (at + minute) % 1440), Sample { offered, clean });
                }
            }
            prop_assert!(after.is_none_or(|after| (10.0..=5000.0).contains(&after)));
        }
    }
}
