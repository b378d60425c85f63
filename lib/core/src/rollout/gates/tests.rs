//! The truth table of the gates: each input below, at, above, absent, not a number, stale and with too few
//! samples.

use super::*;
use crate::rollout::Bound;
use crate::rollout::query_gate::Answer;
use proptest::option;
use proptest::prelude::*;

const DAY: Duration = Duration::from_secs(86_400);
const HOUR: Duration = Duration::from_secs(3_600);
const SHORTEST: Duration = Duration::from_nanos(1);
const SAMPLES: u64 = 1_000;

fn reading(value: f64) -> Reading {
    Reading {
        value: Some(value),
        samples: SAMPLES,
    }
}

fn good() -> Observed {
    Observed {
        with_data: DAY * 7,
        drop_ratio: reading(0.000_9),
        canary_p99: reading(0.204_9),
        control_p99: reading(0.2),
        has_latencies: true,
        unobserved: 0,
        stale: None,
        queries: vec![
            extra("tickets", Bound::AtMost(20.0), 20.0),
            extra("budget", Bound::AtLeast(0.1), 0.1),
        ],
    }
}

fn extra(name: &str, bound: Bound, value: f64) -> QueryGateState {
    QueryGateState {
        name: Name::new(name).unwrap(),
        bound,
        answer: answer(value, 0),
    }
}

fn answer(value: f64, age_s: u64) -> Answer {
    let [age, good_for] = [age_s, 90].map(Duration::from_secs);
    Answer::Number {
        value,
        age,
        good_for,
    }
}

fn missing() -> Answer {
    Answer::Missing("the query yields no series".to_owned())
}

fn stale() -> Option<StaleZone> {
    Some(StaleZone {
        zone: "eu-1a".to_owned(),
        age: Duration::from_secs(61),
    })
}

fn only_stale() -> Observed {
    Observed {
        stale: stale(),
        ..Observed::default()
    }
}

fn judged(observed: &Observed) -> [&'static str; 2] {
    let shadow = leave_shadow(&ShadowGate::default(), SAMPLES, observed);
    let canary = leave_canary(&CanaryGate::default(), SAMPLES, observed);
    [shadow.as_str(), canary.as_str()]
}

fn texts(judgement: &Judgement) -> Vec<String> {
    let reasons = judgement.reasons().iter();
    reasons.map(ToString::to_string).collect()
}

type Change = fn(&mut Observed);

const PASS: &str = "pass";
const FAIL: &str = "fail";
const OPEN: &str = "inconclusive";

#[test]
fn each_gate_input_is_judged_by_kind() {
    let table: [(Change, [&str; 2]); 35] = [
        (|_| {}, [PASS, PASS]),
        // The time with data: none, enough for the canary alone, and a moment too short.
        (|o| o.with_data = Duration::ZERO, [OPEN, OPEN]),
        (|o| o.with_data = HOUR * 48, [OPEN, PASS]),
        (|o| o.with_data = HOUR * 48 - SHORTEST, [OPEN, OPEN]),
        // The ratio: at and above the most of the canary and of shadow.
        (|o| o.drop_ratio = reading(0.0), [PASS, PASS]),
        (|o| o.drop_ratio = reading(0.001), [PASS, PASS]),
        (|o| o.drop_ratio = reading(0.001_001), [PASS, FAIL]),
        (|o| o.drop_ratio = reading(0.005), [PASS, FAIL]),
        (|o| o.drop_ratio = reading(0.005_001), [FAIL, FAIL]),
        // The ratio: absent, of nothing, no number, and of too few, good or bad.
        (|o| o.drop_ratio.value = None, [OPEN, OPEN]),
        (|o| o.drop_ratio = Reading::share(0, 0), [OPEN, OPEN]),
        (|o| o.drop_ratio = reading(f64::NAN), [OPEN, OPEN]),
        (|o| o.drop_ratio = reading(f64::INFINITY), [OPEN, OPEN]),
        (|o| o.drop_ratio.samples = SAMPLES - 1, [OPEN, OPEN]),
        (|o| o.drop_ratio = Reading::share(999, 999), [OPEN, OPEN]),
        // The canary's p99: faster, slower by more than the most, absent, no number, and of too few.
        (|o| o.canary_p99 = reading(0.1), [PASS, PASS]),
        (|o| o.canary_p99 = reading(0.205_1), [PASS, FAIL]),
        (|o| o.canary_p99.value = None, [PASS, OPEN]),
        (|o| o.canary_p99 = reading(f64::NAN), [PASS, OPEN]),
        (|o| o.canary_p99 = reading(f64::INFINITY), [PASS, OPEN]),
        (|o| o.canary_p99.samples = SAMPLES - 1, [PASS, OPEN]),
        // The control's p99, likewise.
        (|o| o.control_p99 = reading(0.3), [PASS, PASS]),
        (|o| o.control_p99 = reading(0.199), [PASS, FAIL]),
        (|o| o.control_p99.value = None, [PASS, OPEN]),
        (|o| o.control_p99 = reading(f64::NAN), [PASS, OPEN]),
        (|o| o.control_p99.samples = 0, [PASS, OPEN]),
        (|o| o.stale = stale(), [OPEN, FAIL]),
        (|o| o.queries.clear(), [PASS, PASS]),
        (|o| *o = Observed::default(), [OPEN, OPEN]),
        (|o| *o = only_stale(), [OPEN, FAIL]),
        // A value known to be bad fails the gate, regardless of unknown values.
        (
            |o| (o.queries[0].answer, o.queries[1].answer) = (answer(21.0, 0), missing()),
            [FAIL, FAIL],
        ),
        (
            |o| (o.drop_ratio, o.with_data) = (reading(0.1), Duration::ZERO),
            [FAIL, FAIL],
        ),
        (
            |o| (o.drop_ratio, o.control_p99.value) = (reading(0.1), None),
            [FAIL, FAIL],
        ),
        (
            |o| (o.canary_p99, o.drop_ratio.value) = (reading(0.9), None),
            [OPEN, FAIL],
        ),
        (
            |o| (o.canary_p99, o.with_data) = (reading(0.9), Duration::ZERO),
            [OPEN, FAIL],
        ),
    ];
    for (change, due) in table {
        let mut observed = good();
        change(&mut observed);
        assert_eq!(judged(&observed), due, "{observed:?}");
    }
}

/// Tickets have a most, and the budget has a least.
#[test]
fn extra_gates_count_in_both_stages() {
    const TICKETS: usize = 0;
    const BUDGET: usize = 1;
    for (query, answer, due) in [
        (TICKETS, answer(20.0, 0), PASS),
        (TICKETS, answer(-5.0, 0), PASS),
        (TICKETS, answer(20.000_1, 0), FAIL),
        (BUDGET, answer(0.1, 0), PASS),
        (BUDGET, answer(1e300, 0), PASS),
        (BUDGET, answer(0.099, 0), FAIL),
        (BUDGET, answer(-0.1, 0), FAIL),
        (TICKETS, Answer::Awaited, OPEN),
        (BUDGET, Answer::Awaited, OPEN),
        (TICKETS, missing(), OPEN),
        (BUDGET, missing(), OPEN),
        (TICKETS, answer(f64::NAN, 0), OPEN),
        (BUDGET, answer(f64::NAN, 0), OPEN),
        (TICKETS, answer(f64::INFINITY, 0), OPEN),
        (BUDGET, answer(f64::INFINITY, 0), OPEN),
        // As old as may be, and older: good, then bad.
        (TICKETS, answer(0.0, 90), PASS),
        (TICKETS, answer(0.0, 91), OPEN),
        (TICKETS, answer(21.0, 90), FAIL),
        (TICKETS, answer(21.0, 91), OPEN),
    ] {
        let mut observed = good();
        observed.queries[query].answer = answer;
        assert_eq!(judged(&observed), [due; 2], "{observed:?}");
    }
}

#[test]
fn reasons_name_the_value_and_its_bound() {
    let observed = Observed {
        with_data: HOUR * 36,
        drop_ratio: Reading::share(12, 1_000),
        canary_p99: reading(0.212),
        control_p99: reading(0.2),
        stale: stale(),
        queries: vec![
            extra("tickets", Bound::AtMost(20.0), 31.5),
            extra("budget", Bound::AtLeast(0.1), -2.0),
        ],
        ..good()
    };
    let canary = leave_canary(&CanaryGate::default(), SAMPLES, &observed);
    assert_eq!(
        texts(&canary),
        [
            "zone eu-1a has sent no report for 61 s",
            "drop ratio of the canary cohort 1.200 % exceeds the maximum of 0.1 %",
            "p99 of the canary cohort is 12.0 ms above the control cohort's, more than the maximum of 5 ms",
            "tickets is 31.5, above the maximum of 20",
            "budget is -2, below the minimum of 0.1",
        ]
    );
    let unknown = [
        Answer::Awaited,
        missing(),
        answer(f64::NAN, 0),
        answer(1e300, 95),
    ];
    let queries = unknown.map(|answer| QueryGateState {
        answer,
        ..extra("tickets", Bound::AtMost(1e20), 0.0)
    });
    let shadow = leave_shadow(
        &ShadowGate::default(),
        SAMPLES,
        &Observed {
            queries: queries.into(),
            ..good()
        },
    );
    assert_eq!(
        texts(&shadow),
        [
            "tickets has no answer yet",
            "tickets is unknown: the query yields no series",
            "tickets is not a number: NaN",
            "tickets has an answer 95 s old, older than the maximum of 90 s",
        ]
    );
    let nothing = leave_canary(&CanaryGate::default(), SAMPLES, &Observed::default());
    assert_eq!(
        texts(&nothing),
        [
            "drop ratio of the canary cohort is unknown",
            "p99 of the canary cohort is unknown",
            "p99 of the control cohort is unknown",
            "0 s with data of the 2 d due",
        ]
    );
    let few = Observed {
        drop_ratio: Reading::share(0, 12),
        ..good()
    };
    let shadow = leave_shadow(
        &ShadowGate::default(),
        SAMPLES,
        &Observed {
            with_data: HOUR * 36,
            ..few
        },
    );
    assert_eq!(
        texts(&shadow),
        [
            "would-drop ratio has 12 samples of the 1000 due",
            "1.5 d with data of the 7 d due"
        ]
    );
}

/// Evidence of a fleet behind proxies: it passes both gates, and no instance reports a latency.
fn unobserved() -> Observed {
    let silent = Reading::default();
    Observed {
        canary_p99: silent,
        control_p99: silent,
        has_latencies: false,
        unobserved: 1,
        ..good()
    }
}

#[test]
fn gate_without_latency_rests_on_refusals() {
    // No instance observes responses: the gate rests on refusals, time, zones and extra gates.
    let not_reported: [(Change, &str); 11] = [
        (|_| {}, PASS),
        (|o| o.drop_ratio = reading(0.001), PASS),
        (|o| o.drop_ratio = reading(0.001_1), FAIL),
        (|o| o.drop_ratio.samples = 999, OPEN),
        (|o| o.drop_ratio.value = None, OPEN),
        (|o| o.with_data = HOUR, OPEN),
        (|o| o.stale = stale(), FAIL),
        (|o| o.queries[0].answer = answer(21.0, 0), FAIL),
        (|o| o.queries[0].answer = Answer::Awaited, OPEN),
        (|o| o.queries[1].answer = missing(), OPEN),
        (|o| o.queries.clear(), PASS),
    ];
    let compared: [(Change, &str); 6] = [
        // Instances that neither observe responses nor say that they cannot.
        (|o| o.unobserved = 0, OPEN),
        // A mixed fleet is judged by the responses that it observes, regardless of the number of
        // others: before the window or a restart, one in either cohort, enough, and of a slow canary.
        (|o| o.has_latencies = true, OPEN),
        (|o| o.canary_p99.samples = 1, OPEN),
        (|o| o.control_p99.samples = 1, OPEN),
        (
            |o| (o.canary_p99, o.control_p99) = (reading(0.2), reading(0.2)),
            PASS,
        ),
        (
            |o| {
                (o.canary_p99, o.control_p99, o.unobserved) = (reading(0.9), reading(0.2), u64::MAX)
            },
            FAIL,
        ),
    ];
    let not_reported = not_reported.map(|row| (row, LatencyBasis::NotReported));
    let compared = compared.map(|row| (row, LatencyBasis::Compared));
    for ((change, due), basis) in not_reported.into_iter().chain(compared) {
        let mut observed = unobserved();
        change(&mut observed);
        assert_eq!(
            (judged(&observed)[1], observed.latency_basis()),
            (due, basis),
            "{observed:?}"
        );
    }
    assert_eq!(
        LatencyBasis::NotReported.to_string(),
        "latency is not compared: no instance reports it"
    );
    let of_one = Observed {
        control_p99: Reading {
            value: Some(9.0),
            samples: 1,
        },
        ..unobserved()
    };
    let judgement = leave_canary(&CanaryGate::default(), SAMPLES, &of_one);
    assert_eq!(
        texts(&judgement),
        [
            "p99 of the canary cohort is unknown",
            "p99 of the control cohort has 1 samples of the 1000 due"
        ]
    );
}

fn any_reading() -> impl Strategy<Value = Reading> {
    let value = prop_oneof![
        Just(f64::NAN),
        Just(f64::INFINITY),
        0.0..1.0_f64,
        0.0..0.01_f64
    ];
    (option::of(value), 0..2 * SAMPLES).prop_map(|(value, samples)| Reading { value, samples })
}

proptest! {
    /// Where any latency was reported, a claim that requests are unobserved changes no judgement.
    #[test]
    fn unobserved_claims_never_change_reported_latencies(
        canary in any_reading(), control in any_reading(), ratio in any_reading(),
        had_latencies: bool, claimed in 1..u64::MAX,
    ) {
        let has_latencies = had_latencies || canary.samples + control.samples == 0;
        let honest =
            Observed { canary_p99: canary, control_p99: control, drop_ratio: ratio, has_latencies, ..good() };
        let claims = Observed { unobserved: claimed, ..honest.clone() };
        prop_assert_eq!(judged(&claims), judged(&honest));
    }

    /// Removing evidence never makes a gate pass that did not pass before.
    #[test]
    fn knowing_less_never_helps(
        ratio in any_reading(), canary in any_reading(), control in any_reading(),
        days in 0_u32..10, is_stale: bool, tickets in 0.0..40.0_f64, lost in 0..7_usize,
        has_latencies: bool, unobserved in 0..2_u64,
    ) {
        let all = Observed {
            with_data: DAY * days,
            drop_ratio: ratio,
            canary_p99: canary,
            control_p99: control,
            has_latencies,
            unobserved,
            stale: if is_stale { stale() } else { None },
            queries: vec![extra("tickets", Bound::AtMost(20.0), tickets)],
        };
        let mut less = all.clone();
        match lost {
            0 => less.drop_ratio.value = None,
            1 => less.canary_p99.samples = 0,
            2 => less.control_p99.value = Some(f64::NAN),
            3 => less.queries[0].answer = missing(),
            4 => less.queries[0].answer = answer(tickets, 91),
            5 => less.queries[0].answer = answer(f64::NAN, 0),
            _ => less.with_data /= 2,
        }
        for (known, unknown) in judged(&all).into_iter().zip(judged(&less)) {
            prop_assert!(unknown != "pass" || known == "pass", "{known} became {unknown}");
            prop_assert!(unknown != "fail" || known == "fail", "{known} became {unknown}");
        }
    }
}
