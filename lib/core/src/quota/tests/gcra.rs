//! Throttles: the replies that callers of `CL.THROTTLE` know, a naive model, and what they admit in any interval.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;

/// A reply in seconds, as the command gives it: limited, limit, remaining, retry after, reset after.
fn in_seconds(reply: Throttled) -> [i64; 5] {
    let seconds = |ns: u64| (ns / SECOND) as i64;
    [
        reply.limited.into(),
        reply.limit as i64,
        reply.remaining as i64,
        reply.retry_after_ns.map_or(-1, seconds),
        seconds(reply.reset_after_ns),
    ]
}

#[test]
fn thirty_a_minute_answers_as_callers_know() {
    let rate = GcraRate::new(15, 30, 60).unwrap();
    let mut gcra = Gcra::default();
    assert_eq!(rate.emission_ns, 2 * SECOND);
    for (at, quantity, reply) in [
        (1_000, 1, [0, 16, 15, -1, 2]),
        (1_000, 1, [0, 16, 14, -1, 4]),
        (1_000, 0, [0, 16, 14, -1, 4]),
        (1_000, 14, [0, 16, 0, -1, 32]),
        (1_000, 1, [1, 16, 0, 2, 32]),
        (1_000, 3, [1, 16, 0, 6, 32]),
        // More than the burst is never admitted, so there is no time to wait for.
        (1_000, 17, [1, 16, 0, -1, 32]),
        (1_000, u64::MAX, [1, 16, 0, -1, 32]),
        (1_001, 1, [1, 16, 0, 1, 31]),
        (1_002, 1, [0, 16, 0, -1, 32]),
        (1_010, 1, [0, 16, 3, -1, 26]),
        // At rest again.
        (2_000, 0, [0, 16, 16, -1, 0]),
        (2_000, 16, [0, 16, 0, -1, 32]),
    ] {
        assert_eq!(
            in_seconds(gcra.throttle(rate, at * SECOND, quantity)),
            reply,
            "{quantity} at {at}"
        );
    }
}

#[test]
fn parameters_out_of_range_are_no_rate() {
    const MOST: u64 = u64::MAX;
    use InvalidGcraRate::{OutOfRange, Zero};
    for (parameters, error) in [
        ((0, 0, 1), Zero),
        ((0, 1, 0), Zero),
        ((MOST, 0, 0), Zero),
        ((0, 1, MOST), OutOfRange),
        ((0, MOST, 1), OutOfRange),
        ((MOST, 1, 1), OutOfRange),
        ((i64::MAX as u64, SECOND, 1), OutOfRange),
        ((0, 1, 10_000_000_000), OutOfRange),
    ] {
        let (max_burst, count, period) = parameters;
        assert_eq!(
            GcraRate::new(max_burst, count, period),
            Err(error),
            "{parameters:?}"
        );
    }
}

#[test]
fn throttle_extremes_neither_wrap_nor_overadmit() {
    for (max_burst, count, period) in [
        (i64::MAX as u64 - 1, SECOND, 1),
        (0, 1, 9_223_372_036),
        (9_223_372_034, 1, 1),
        (0, SECOND, 1),
    ] {
        let rate = GcraRate::new(max_burst, count, period).unwrap();
        for at in [0, 1_700_000_000 * SECOND, u64::MAX - 1, u64::MAX] {
            let mut gcra = Gcra::default();
            let all = gcra.throttle(rate, at, max_burst + 1);
            let latest = at.saturating_add((max_burst + 1) * rate.emission_ns);
            assert!(gcra.arrival_ns <= latest, "{rate:?} at {at}");
            if !all.limited {
                assert!(gcra.throttle(rate, at, 1).limited, "{rate:?} at {at}");
            }
            assert!(
                gcra.throttle(rate, at, u64::MAX).limited,
                "{rate:?} at {at}"
            );
        }
    }
}

fn any_rate() -> impl Strategy<Value = GcraRate> {
    (0..9_u64, 1..9_u64, 1..9_u64)
        .prop_map(|(burst, count, period)| GcraRate::new(burst, count, period).unwrap())
}

proptest! {
    /// A leaky bucket: its level sinks with time, and a request is admitted if it fits.
    #[test]
    fn throttle_answers_as_a_leaky_bucket(
        rate in any_rate(),
        steps in vec((0..4 * SECOND, prop_oneof![0..4_u64, 0..12_u64]), 60),
    ) {
        let mut gcra = Gcra::default();
        let (mut now, mut level, mut before) = (7 * SECOND, 0_i128, 7 * SECOND);
        let emission = i128::from(rate.emission_ns);
        for (passed, quantity) in steps {
            now += passed;
            level = (level - i128::from(now - before)).max(0);
            before = now;
            let reply = gcra.throttle(rate, now, quantity);
            let size = i128::from(reply.limit) * emission;
            let filled = level + i128::from(quantity) * emission;
            prop_assert_eq!(reply.limited, filled > size);
            if !reply.limited {
                level = filled;
            }
            prop_assert_eq!(i128::from(reply.remaining), (size - level) / emission);
            prop_assert_eq!(i128::from(reply.reset_after_ns), level);
            let can_ever = i128::from(quantity) * emission <= size;
            let wait = (reply.limited && can_ever).then(|| (filled - size) as u64);
            prop_assert_eq!(reply.retry_after_ns, wait);
            if let Some(wait) = wait {
                let mut later = gcra;
                prop_assert!(!later.throttle(rate, now + wait, quantity).limited);
                let mut sooner = gcra;
                prop_assert!(sooner.throttle(rate, now + wait - 1, quantity).limited);
            }
        }
    }

    #[test]
    fn interval_admits_within_burst_and_rate(
        rate in any_rate(),
        steps in vec((prop_oneof![Just(0), 0..2 * SECOND], 0..6_u64), 80),
    ) {
        let (mut gcra, mut now) = (Gcra::default(), 0);
        let (mut admitted, mut limit) = (Vec::new(), 0);
        for (passed, quantity) in steps {
            now += passed;
            let reply = gcra.throttle(rate, now, quantity);
            limit = reply.limit;
            if !reply.limited {
                admitted.push((now, quantity));
            }
        }
        for (first, (from, _)) in admitted.iter().enumerate() {
            let mut sum = 0;
            for (to, quantity) in &admitted[first..] {
                sum += quantity;
                let most = limit + (to - from) / rate.emission_ns;
                prop_assert!(sum <= most, "{} from {} to {} at {:?}", sum, from, to, rate);
            }
        }
    }
}
