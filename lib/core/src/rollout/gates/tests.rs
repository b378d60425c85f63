//! The truth table of the gates: each input below, at, above, absent, not a number, stale and with too few
//! samples.

use super::*;
use crate::rollout::Bound;
use crate::rollout::query_gate::Answer;
use proptest::option;
use proptest::prelude::*;

const DAY: Duration = Duration::from_secs(86_400);
const HOUR: Duration = Duration::from_secs(3_600);
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

fn judged(observed: &Observed) -> [&'static str; 2] {
    let shadow = leave_shadow(&ShadowGate::default(), SAMPLES, observed);
    let canary = leave_canary(&CanaryGate::default(), SAMPLES, observed);
    [shadow.as_str(), canary.as_str()]
}

#[test]
fn each_gate_input_is_judged_by_kind() {
    type Change = fn(&mut Observed);
    const PASS: &str = "pass";
    const FAIL: &str = "fail";
    const OPEN: &str = "inconclusive";
    let table: [(&str, Change, [&str; 2]); 54] = [
        ("all good", |_| {}, [PASS, PASS]),
        ("no time", |o| o.with_data = Duration::ZERO, [OPEN, OPEN]),
        (
            "time for canary alone",
            |o| o.with_data = HOUR * 48,
            [OPEN, PASS],
        ),
        (
            "a moment too early",
            |o| o.with_data = HOUR * 48 - Duration::from_nanos(1),
            [OPEN, OPEN],
        ),
        ("ratio 0", |o| o.drop_ratio = reading(0.0), [PASS, PASS]),
        (
            "ratio at canary's most",
            |o| o.drop_ratio = reading(0.001),
            [PASS, PASS],
        ),
        (
            "ratio above canary's most",
            |o| o.drop_ratio = reading(0.001_001),
            [PASS, FAIL],
        ),
        (
            "ratio at shadow's most",
            |o| o.drop_ratio = reading(0.005),
            [PASS, FAIL],
        ),
        (
            "ratio above shadow's most",
            |o| o.drop_ratio = reading(0.005_001),
            [FAIL, FAIL],
        ),
        ("ratio absent", |o| o.drop_ratio.value = None, [OPEN, OPEN]),
        (
            "ratio of nothing",
            |o| o.drop_ratio = Reading::share(0, 0),
            [OPEN, OPEN],
        ),
        (
            "ratio not a number",
            |o| o.drop_ratio = reading(f64::NAN),
            [OPEN, OPEN],
        ),
        (
            "ratio infinite",
            |o| o.drop_ratio = reading(f64::INFINITY),
            [OPEN, OPEN],
        ),
        (
            "ratio good on too few",
            |o| o.drop_ratio.samples = SAMPLES - 1,
            [OPEN, OPEN],
        ),
        (
            "ratio bad on too few",
            |o| {
                o.drop_ratio = Reading {
                    value: Some(1.0),
                    samples: 999,
                }
            },
            [OPEN, OPEN],
        ),
        (
            "canary faster",
            |o| o.canary_p99 = reading(0.1),
            [PASS, PASS],
        ),
        (
            "canary slower by more than the most",
            |o| o.canary_p99 = reading(0.205_1),
            [PASS, FAIL],
        ),
        (
            "canary's p99 absent",
            |o| o.canary_p99.value = None,
            [PASS, OPEN],
        ),
        (
            "canary's p99 not a number",
            |o| o.canary_p99 = reading(f64::NAN),
            [PASS, OPEN],
        ),
        (
            "canary's p99 infinite",
            |o| o.canary_p99 = reading(f64::INFINITY),
            [PASS, OPEN],
        ),
        (
            "canary's p99 on too few",
            |o| o.canary_p99.samples = SAMPLES - 1,
            [PASS, OPEN],
        ),
        (
            "control slower",
            |o| o.control_p99 = reading(0.3),
            [PASS, PASS],
        ),
        (
            "control faster by more than the most",
            |o| o.control_p99 = reading(0.199),
            [PASS, FAIL],
        ),
        (
            "control's p99 absent",
            |o| o.control_p99.value = None,
            [PASS, OPEN],
        ),
        (
            "control's p99 not a number",
            |o| o.control_p99 = reading(f64::NAN),
            [PASS, OPEN],
        ),
        (
            "control's p99 on too few",
            |o| o.control_p99.samples = 0,
            [PASS, OPEN],
        ),
        ("a zone is stale", |o| o.stale = stale(), [OPEN, FAIL]),
        ("no extra gate", |o| o.queries.clear(), [PASS, PASS]),
        (
            "tickets at the most",
            |o| o.queries[0].answer = answer(20.0, 0),
            [PASS, PASS],
        ),
        (
            "tickets below the most",
            |o| o.queries[0].answer = answer(-5.0, 0),
            [PASS, PASS],
        ),
        (
            "tickets above the most",
            |o| o.queries[0].answer = answer(20.000_1, 0),
            [FAIL, FAIL],
        ),
        (
            "budget at the least",
            |o| o.queries[1].answer = answer(0.1, 0),
            [PASS, PASS],
        ),
        (
            "budget above the least",
            |o| o.queries[1].answer = answer(1e300, 0),
            [PASS, PASS],
        ),
        (
            "budget below the least",
            |o| o.queries[1].answer = answer(0.099, 0),
            [FAIL, FAIL],
        ),
        (
            "budget below zero",
            |o| o.queries[1].answer = answer(-0.1, 0),
            [FAIL, FAIL],
        ),
        (
            "tickets not answered yet",
            |o| o.queries[0].answer = Answer::Awaited,
            [OPEN, OPEN],
        ),
        (
            "budget not answered yet",
            |o| o.queries[1].answer = Answer::Awaited,
            [OPEN, OPEN],
        ),
        (
            "tickets missing",
            |o| o.queries[0].answer = missing(),
            [OPEN, OPEN],
        ),
        (
            "budget missing",
            |o| o.queries[1].answer = missing(),
            [OPEN, OPEN],
        ),
        (
            "tickets not a number",
            |o| o.queries[0].answer = answer(f64::NAN, 0),
            [OPEN, OPEN],
        ),
        (
            "budget not a number",
            |o| o.queries[1].answer = answer(f64::NAN, 0),
            [OPEN, OPEN],
        ),
        (
            "tickets infinite",
            |o| o.queries[0].answer = answer(f64::INFINITY, 0),
            [OPEN, OPEN],
        ),
        (
            "budget infinite",
            |o| o.queries[1].answer = answer(f64::INFINITY, 0),
            [OPEN, OPEN],
        ),
        (
            "tickets good and as old as may be",
            |o| o.queries[0].answer = answer(0.0, 90),
            [PASS, PASS],
        ),
        (
            "tickets good and too old",
            |o| o.queries[0].answer = answer(0.0, 91),
            [OPEN, OPEN],
        ),
        (
            "tickets bad and as old as may be",
            |o| o.queries[0].answer = answer(21.0, 90),
            [FAIL, FAIL],
        ),
        (
            "tickets bad and too old",
            |o| o.queries[0].answer = answer(21.0, 91),
            [OPEN, OPEN],
        ),
        (
            "one extra gate bad, one missing",
            |o| (o.queries[0].answer, o.queries[1].answer) = (answer(21.0, 0), missing()),
            [FAIL, FAIL],
        ),
        (
            "nothing is known",
            |o| *o = Observed::default(),
            [OPEN, OPEN],
        ),
        (
            "nothing but a stale zone",
            |o| {
                *o = Observed {
                    stale: stale(),
                    ..Observed::default()
                }
            },
            [OPEN, FAIL],
        ),
        // A value known to be bad fails the gate, regardless of unknown values.
        (
            "bad ratio, no time",
            |o| (o.drop_ratio, o.with_data) = (reading(0.1), Duration::ZERO),
            [FAIL, FAIL],
        ),
        (
            "bad ratio, no latency",
            |o| (o.drop_ratio, o.control_p99.value) = (reading(0.1), None),
            [FAIL, FAIL],
        ),
        (
            "slow canary, no ratio",
            |o| (o.canary_p99, o.drop_ratio.value) = (reading(0.9), None),
            [OPEN, FAIL],
        ),
        (
            "slow canary, no time",
            |o| (o.canary_p99, o.with_data) = (reading(0.9), Duration::ZERO),
            [OPEN, FAIL],
        ),
    ];
    for (case, change, due) in table {
        let mut observed = good();
        change(&mut observed);
        assert_eq!(judged(&observed), due, "{case}");
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
    let texts = |judgement: &Judgement| {
        judgement
            .reasons()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
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
    type Change = fn(&mut Observed);
    let table: [(&str, Change, &str, LatencyBasis); 17] = [
        (
            "no instance observes",
            |_| {},
            "pass",
            LatencyBasis::NotReported,
        ),
        (
            "refusals at the most",
            |o| o.drop_ratio = reading(0.001),
            "pass",
            LatencyBasis::NotReported,
        ),
        (
            "refusals above the most",
            |o| o.drop_ratio = reading(0.001_1),
            "fail",
            LatencyBasis::NotReported,
        ),
        (
            "refusals of too few",
            |o| o.drop_ratio.samples = 999,
            "inconclusive",
            LatencyBasis::NotReported,
        ),
        (
            "refusals absent",
            |o| o.drop_ratio.value = None,
            "inconclusive",
            LatencyBasis::NotReported,
        ),
        (
            "too soon",
            |o| o.with_data = HOUR,
            "inconclusive",
            LatencyBasis::NotReported,
        ),
        (
            "a zone is stale",
            |o| o.stale = stale(),
            "fail",
            LatencyBasis::NotReported,
        ),
        (
            "extra gate bad",
            |o| o.queries[0].answer = answer(21.0, 0),
            "fail",
            LatencyBasis::NotReported,
        ),
        (
            "extra gate awaited",
            |o| o.queries[0].answer = Answer::Awaited,
            "inconclusive",
            LatencyBasis::NotReported,
        ),
        (
            "extra gate missing",
            |o| o.queries[1].answer = missing(),
            "inconclusive",
            LatencyBasis::NotReported,
        ),
        (
            "no extra gate",
            |o| o.queries.clear(),
            "pass",
            LatencyBasis::NotReported,
        ),
        // Instances that neither observe responses nor say that they cannot.
        (
            "none says that it cannot",
            |o| o.unobserved = 0,
            "inconclusive",
            LatencyBasis::Compared,
        ),
        // A mixed fleet is judged by the responses that it observes, regardless of the number of
        // others.
        (
            "observed before the window or a restart",
            |o| o.has_latencies = true,
            "inconclusive",
            LatencyBasis::Compared,
        ),
        (
            "one response in the canary",
            |o| o.canary_p99.samples = 1,
            "inconclusive",
            LatencyBasis::Compared,
        ),
        (
            "one response in the control",
            |o| o.control_p99.samples = 1,
            "inconclusive",
            LatencyBasis::Compared,
        ),
        (
            "enough responses, some unobserved",
            |o| (o.canary_p99, o.control_p99) = (reading(0.2), reading(0.2)),
            "pass",
            LatencyBasis::Compared,
        ),
        (
            "slow canary, most unobserved",
            |o| {
                (o.canary_p99, o.control_p99, o.unobserved) = (reading(0.9), reading(0.2), u64::MAX)
            },
            "fail",
            LatencyBasis::Compared,
        ),
    ];
    for (case, change, due, basis) in table {
        let mut observed = unobserved();
        change(&mut observed);
        assert_eq!(
            (judged(&observed)[1], observed.latency_basis()),
            (due, basis),
            "{case}"
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
    let why: Vec<String> = judgement
        .reasons()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        why,
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
