//! Tables of token buckets: refills on phase, strict takes, sessions, times that go backwards, and extremes.

use super::*;

/// The most tokens or milliseconds.
const MOST: u64 = TOKENS_MAX;

/// Takes at times in milliseconds, and the tokens before each.
fn check_takes(rate: QuotaRate, refill: Refill, steps: &[(u64, u64, u64)]) {
    let mut balance = Balance::full(rate, steps[0].0);
    for (step, (at, take, before)) in steps.iter().enumerate() {
        assert_eq!(
            balance.reduce(rate, *at, *take, refill),
            *before,
            "{rate}, {refill:?}, step {step}"
        );
    }
}

#[test]
fn take_replies_with_the_former_balance() {
    check_takes(
        rate(2, 2, 60_000),
        Refill::OnPhase,
        &[(0, 1, 2), (1, 1, 1), (2, 1, 0), (3, 1, 0)],
    );
}

#[test]
fn empty_take_only_shows_the_bucket() {
    let rate = rate(10, 3, 1_000);
    let mut balance = Balance::full(rate, 0);
    assert_eq!(balance.reduce(rate, 500, 8, Refill::OnPhase), 10);
    let held = balance;
    for refill in [Refill::OnPhase, Refill::Strict] {
        for (at, seen) in [
            (500, 2),
            (999, 2),
            (1_000, 5),
            (2_999, 8),
            (3_000, 10),
            (90_000, 10),
            (0, 2),
        ] {
            assert_eq!(balance.reduce(rate, at, 0, refill), seen, "at {at}");
            assert_eq!(balance, held);
        }
    }
    assert_eq!(
        balance.sessionize(rate, 9_000, 0),
        Session {
            tokens_before: 10,
            start_ms: 0
        }
    );
    assert_eq!(balance, held);
}

#[test]
fn time_before_the_last_refill_adds_nothing() {
    check_takes(
        rate(3, 1, 1_000),
        Refill::OnPhase,
        &[
            (10_000, 2, 3),
            (9_000, 0, 1),
            (0, 1, 1),
            (10_999, 0, 0),
            (11_000, 1, 1),
            (10_000, 1, 0),
            (12_000, 0, 1),
        ],
    );
}

#[test]
fn session_begins_where_there_were_enough_tokens() {
    let rate = rate(1, 1, 30_000);
    let mut balance = Balance::full(rate, 5_000);
    for (at, before, start) in [
        (5_000, 1, 5_000),
        // Each event of a session puts its end off, because an empty bucket begins a new phase.
        (20_000, 0, 5_000),
        (49_999, 0, 5_000),
        (79_998, 0, 5_000),
        (109_998, 1, 109_998),
        (110_000, 0, 109_998),
    ] {
        let session = balance.sessionize(rate, at, 1);
        assert_eq!(
            session,
            Session {
                tokens_before: before,
                start_ms: start
            },
            "at {at}"
        );
    }
    let mut balance = Balance::full(rate, 5_000);
    assert_eq!(
        balance.sessionize(rate, 6_000, 2),
        Session {
            tokens_before: 1,
            start_ms: 5_000
        }
    );
    assert_eq!(
        balance,
        Balance {
            tokens: 0,
            refilled_at_ms: 6_000,
            session_start_ms: 5_000
        },
        "it is drained"
    );
}

#[test]
fn bucket_extremes_neither_wrap_nor_overgrant() {
    for (rate, at) in [
        (rate(MOST, MOST, 1), MOST),
        (rate(MOST, MOST, 1), u64::MAX),
        (rate(MOST, 1, MOST), u64::MAX),
        (rate(1, MOST, 1), u64::MAX),
        (rate(1, 1, MOST), MOST),
    ] {
        let mut balance = Balance::full(rate, 0);
        assert_eq!(
            balance.reduce(rate, 0, u64::MAX, Refill::OnPhase),
            rate.max()
        );
        let refilled = balance.refilled(rate, at);
        assert_eq!(
            refilled.tokens,
            rate.max()
                .min(rate.refill().saturating_mul(at / rate.every_ms())),
            "{rate}"
        );
        assert!(
            refilled.refilled_at_ms <= at && at - refilled.refilled_at_ms < rate.every_ms(),
            "{rate}"
        );
        assert!(
            refilled.next_refill_ms(rate) >= at.min(u64::MAX - 1),
            "{rate}"
        );
        assert!(
            balance
                .holds_at_ms(rate, rate.max())
                .is_some_and(|at| at <= TOKENS_MAX),
            "{rate}"
        );
        for refill in [Refill::OnPhase, Refill::Strict] {
            let mut balance = balance;
            assert_eq!(balance.reduce(rate, at, 1, refill), refilled.tokens);
            assert_eq!(balance.reduce(rate, at, 0, refill), refilled.tokens - 1);
        }
        let mut late = Balance::full(rate, u64::MAX);
        assert_eq!(late.reduce(rate, u64::MAX, 1, Refill::Strict), rate.max());
        assert_eq!(late.next_refill_ms(rate), u64::MAX);
    }
}

#[test]
fn invalid_rate_error_names_its_parameter() {
    for (parameters, name) in [
        ((0, 0, 0), "max"),
        ((MOST + 1, 1, 1), "max"),
        ((1, 0, 1), "refill"),
        ((1, MOST + 1, 1), "refill"),
        ((1, 1, 0), "every"),
        ((1, 1, u64::MAX), "every"),
    ] {
        let (max, refill, every_ms) = parameters;
        assert_eq!(
            QuotaRate::new(max, refill, every_ms),
            Err(InvalidQuotaRate::OutOfRange(name)),
            "{parameters:?}"
        );
    }
    assert!(QuotaRate::new(MOST, MOST, MOST).is_ok());
}
