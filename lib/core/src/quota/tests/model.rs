//! Token buckets against a naive model, and what they may grant in any interval.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A bucket that steps from refill to refill, in signed numbers of 128 bits.
struct Model {
    rate: QuotaRate,
    tokens: i128,
    next_refill: i128,
    session_start: u64,
}

impl Model {
    fn new(rate: QuotaRate, at: u64) -> Self {
        let next_refill = i128::from(at) + i128::from(rate.every_ms());
        Self {
            rate,
            tokens: rate.max().into(),
            next_refill,
            session_start: at,
        }
    }

    fn take(&mut self, at: u64, take: u64, is_strict: bool) -> u64 {
        let (mut tokens, mut next) = (self.tokens, self.next_refill);
        while next <= i128::from(at) {
            tokens = (tokens + i128::from(self.rate.refill())).min(self.rate.max().into());
            next += i128::from(self.rate.every_ms());
        }
        let before = tokens;
        if take > 0 {
            tokens = (tokens - i128::from(take)).max(0);
            if is_strict && tokens == 0 {
                next = next.max(i128::from(at) + i128::from(self.rate.every_ms()));
            }
            (self.tokens, self.next_refill) = (tokens, next);
        }
        before as u64
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Reduce { take: u64, is_strict: bool },
    Sessionize { take: u64 },
    GiveBack(u64),
}

fn any_rate() -> impl Strategy<Value = QuotaRate> {
    let number = || prop_oneof![1..5_u64, 1..60_u64];
    (number(), number(), number()).prop_map(|(max, refill, every_ms)| rate(max, refill, every_ms))
}

fn any_step() -> impl Strategy<Value = Step> {
    let take = || prop_oneof![0..4_u64, 0..70_u64, Just(u64::MAX)];
    prop_oneof![
        6 => (take(), any::<bool>()).prop_map(|(take, is_strict)| Step::Reduce { take, is_strict }),
        2 => take().prop_map(|take| Step::Sessionize { take }),
        1 => (0..9_u64).prop_map(Step::GiveBack),
    ]
}

fn any_times(goes_back: bool) -> impl Strategy<Value = Vec<i64>> {
    let back = if goes_back { 0..50_i64 } else { 0..1 };
    vec(
        prop_oneof![
            Just(0_i64),
            0..9_i64,
            0..200_i64,
            back.prop_map(|back| -back)
        ],
        80,
    )
}

/// Returns the maximum sum of tokens granted from one take to a later one, less what the refills of
/// that time give.
///
/// No two refills of a bucket are closer than its interval, so that a closed interval of length d has at most
/// 1 + d / every of them.
fn check_intervals(rate: QuotaRate, granted: &[(u64, u64)]) -> Result<(), TestCaseError> {
    for (first, (from, _)) in granted.iter().enumerate() {
        let mut sum = 0;
        for (to, tokens) in &granted[first..] {
            sum += tokens;
            let most = rate.max() + rate.refill() * (1 + (to - from) / rate.every_ms());
            prop_assert!(
                sum <= most,
                "{} granted from {} to {} of {}",
                sum,
                from,
                to,
                rate
            );
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn bucket_matches_the_model(
        rate in any_rate(),
        begin in 0..1_000_u64,
        steps in vec(any_step(), 80),
        times in any_times(true),
    ) {
        let (mut balance, mut model) = (Balance::full(rate, begin), Model::new(rate, begin));
        let mut now = begin as i64;
        for (step, passed) in steps.into_iter().zip(times) {
            now = (now + passed).max(0);
            let at = now as u64;
            match step {
                Step::Reduce { take, is_strict } => {
                    let refill = if is_strict { Refill::Strict } else { Refill::OnPhase };
                    let before = balance.reduce(rate, at, take, refill);
                    prop_assert_eq!(before, model.take(at, take, is_strict));
                }
                Step::Sessionize { take } => {
                    let session = balance.sessionize(rate, at, take);
                    let before = model.take(at, take, true);
                    if take > 0 && before >= take {
                        model.session_start = at;
                    }
                    let due = Session { tokens_before: before, start_ms: model.session_start };
                    prop_assert_eq!(session, due);
                }
                Step::GiveBack(tokens) => {
                    balance.give_back(rate, tokens);
                    model.tokens = (model.tokens + i128::from(tokens)).min(rate.max().into());
                }
            }
            prop_assert_eq!(i128::from(balance.tokens), model.tokens);
            prop_assert_eq!(i128::from(balance.next_refill_ms(rate)), model.next_refill);
            prop_assert!(balance.tokens <= rate.max());
        }
    }

    #[test]
    fn interval_grants_within_bucket_and_refills(
        rate in any_rate(),
        takes in vec((0..9_u64, any::<bool>(), any::<bool>()), 80),
        times in any_times(false),
        may_be_strict in any::<bool>(),
    ) {
        let mut balance = Balance::full(rate, 0);
        let (mut now, mut granted) = (0, Vec::new());
        for ((take, is_strict, is_session), passed) in takes.into_iter().zip(times) {
            now += passed as u64;
            let refill = if may_be_strict && is_strict { Refill::Strict } else { Refill::OnPhase };
            let before = match may_be_strict && is_session {
                true => balance.sessionize(rate, now, take).tokens_before,
                false => balance.reduce(rate, now, take, refill),
            };
            if before >= take {
                granted.push((now, take));
            }
        }
        check_intervals(rate, &granted)?;
        if !may_be_strict {
            // On phase, the refills are those at whole intervals since the bucket began.
            for (first, (from, _)) in granted.iter().enumerate() {
                let mut sum = 0;
                for (to, tokens) in &granted[first..] {
                    sum += tokens;
                    let refills = to / rate.every_ms() - from / rate.every_ms();
                    prop_assert!(sum <= rate.max() + rate.refill() * refills);
                }
            }
        }
    }

    #[test]
    fn late_takes_are_granted_no_refill_twice(
        rate in any_rate(),
        takes in vec((0..9_u64, any::<bool>(), any::<bool>()), 80),
        times in any_times(true),
    ) {
        let begin = 1_000;
        let mut balance = Balance::full(rate, begin);
        let (mut now, mut latest, mut granted) = (begin as i64, begin, 0);
        for ((take, is_strict, is_session), passed) in takes.into_iter().zip(times) {
            now = (now + passed).max(0);
            latest = latest.max(now as u64);
            let refill = if is_strict { Refill::Strict } else { Refill::OnPhase };
            let before = match is_session {
                true => balance.sessionize(rate, now as u64, take).tokens_before,
                false => balance.reduce(rate, now as u64, take, refill),
            };
            granted += if before >= take { take } else { 0 };
            prop_assert!(granted <= rate.max() + rate.refill() * ((latest - begin) / rate.every_ms()));
        }
    }

    #[test]
    fn tokens_arrive_exactly_when_announced(
        rate in any_rate(),
        taken in 1..60_u64,
        at in 0..500_u64,
        tokens in 0..60_u64,
    ) {
        let mut balance = Balance::full(rate, 0);
        balance.reduce(rate, at, taken, Refill::OnPhase);
        let Some(holds_at) = balance.holds_at_ms(rate, tokens) else {
            prop_assert!(tokens > rate.max());
            return Ok(());
        };
        prop_assert!(balance.refilled(rate, holds_at).tokens >= tokens);
        if balance.tokens < tokens {
            prop_assert!(balance.refilled(rate, holds_at - 1).tokens < tokens);
        }
    }
}
