//! The pace of the waiters of one key: just above their rate of admissions, so that they notice
//! when it rises, and do not inflate what the control plane sees. Pure: the caller passes the time.

use std::time::Duration;

use plimsoll_core::law::parameters;
use plimsoll_core::quantity::MonoTime;

/// Attempts for each admission, while the coin refuses some.
pub(super) const EAGERNESS: f64 = 1.25;
/// The share that waiters may add to the requests of their key that do not wait, such as a flood of the same tenant.
pub(super) const OTHERS_SHARE: f64 = 0.1;
/// The fewest requests/s that the waiters of a key ask for.
pub(super) const ASKED_MIN: f64 = 4.0;
/// The most requests/s that the waiters of a key ask for while the coin refuses some.
pub(super) const ASKED_MAX: f64 = 100_000.0;
/// The longest time between two attempts of a key's waiters, also if a request counts as many.
pub(super) const ATTEMPT_WAIT_MAX: Duration = Duration::from_secs(2);
/// Maximum time between two looks.
pub(super) const LOOK_WAIT_MAX: Duration = Duration::from_millis(100);
/// Minimum time between looks at an empty guard. Guards are refilled no more often, so an earlier look sees nothing
/// new.
const EMPTY_LOOK_WAIT_MIN: Duration = parameters::REFILL;
/// The looks at an empty guard within the time between two attempts.
const LOOKS: u32 = 8;
/// Maximum lateness of a timer that is made up for.
const LATE_MAX: Duration = Duration::from_millis(20);
/// Time constant of smoothed rates.
const MEMORY: Duration = Duration::from_secs(2);
/// Minimum span of a measurement of the requests that do not wait. Measurements before one longer than the maximum do
/// not count.
const MEASURED_MIN: Duration = Duration::from_millis(100);
const MEASURED_MAX: Duration = Duration::from_secs(10);

/// The directive of a key as far as a waiter can see it without being counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Outlook {
    pub(super) is_enforced: bool,
    /// The probability that the coin refuses.
    pub(super) ratio: f64,
    pub(super) has_tokens: bool,
    /// Requests of the key so far, including the requests of waiters.
    pub(super) offered: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Ask,
    /// To look again at this time.
    Look(MonoTime),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    /// Requests/s of waiters that were admitted, smoothed.
    admitted: Fading,
    /// Requests/s of the key that do not wait, smoothed.
    others: f64,
    /// The time of the last measurement of the others, and the requests of the key then.
    measured: Option<(MonoTime, u64)>,
    /// Requests of waiters since then.
    own: u64,
    /// The time of the next attempt while the coin refuses some.
    due: MonoTime,
}

impl Pace {
    /// Returns what the first waiter does now, with a request of this `cost`.
    ///
    /// Without a ratio it asks as soon as the guard has tokens: nothing is overloaded. With one it
    /// asks when its turn has come. An empty guard delays an attempt by at most the time between
    /// two attempts, so that a flood that takes every token does not keep the waiter from asking.
    pub(super) fn next(&mut self, now: MonoTime, cost: u32, outlook: Outlook) -> Next {
        self.measure(now, outlook.offered);
        let interval = self.interval(now, cost, outlook.ratio);
        // `due` is an interval after the attempt before, and attempts are at most the longest interval apart.
        let latest = self.due + interval.min(ATTEMPT_WAIT_MAX.saturating_sub(interval));
        match outlook {
            Outlook {
                is_enforced: false, ..
            } => Next::Ask,
            Outlook {
                ratio,
                has_tokens: true,
                ..
            } if ratio == 0.0 || now >= self.due => Next::Ask,
            _ if now >= latest => Next::Ask,
            Outlook {
                has_tokens: true, ..
            } => Next::Look(self.due.min(now + LOOK_WAIT_MAX)),
            _ => Next::Look(
                latest.min(now + (interval / LOOKS).clamp(EMPTY_LOOK_WAIT_MIN, LOOK_WAIT_MAX)),
            ),
        }
    }

    pub(super) fn on_asked(&mut self, now: MonoTime, cost: u32, ratio: f64, is_admitted: bool) {
        self.own += u64::from(cost);
        if is_admitted {
            self.admitted.add(now, f64::from(cost));
        }
        let interval = self.interval(now, cost, ratio);
        // Counted from the due time, so that a late timer is made up for, by at most `LATE_MAX`; after an early attempt
        // the next is at most one interval from now.
        let earliest = MonoTime::ZERO + now.since(MonoTime::ZERO + LATE_MAX);
        self.due = (self.due.max(earliest) + interval).min(now + interval);
    }

    fn interval(&self, now: MonoTime, cost: u32, ratio: f64) -> Duration {
        if ratio >= 1.0 {
            // No attempt can pass; they only show that there is demand.
            return ATTEMPT_WAIT_MAX;
        }
        let rate = (EAGERNESS * self.admitted.rate(now)).max(OTHERS_SHARE * self.others);
        let seconds = f64::from(cost) / rate.clamp(ASKED_MIN, ASKED_MAX);
        Duration::from_secs_f64(seconds).min(ATTEMPT_WAIT_MAX)
    }

    fn measure(&mut self, now: MonoTime, offered: u64) {
        let Some((at, before)) = self.measured else {
            (self.measured, self.own) = (Some((now, offered)), 0);
            return;
        };
        let span = now.since(at);
        if span < MEASURED_MIN {
            return;
        }
        let others =
            offered.saturating_sub(before).saturating_sub(self.own) as f64 / span.as_secs_f64();
        let weight_before = if span > MEASURED_MAX { 0.0 } else { kept(span) };
        self.others = self.others * weight_before + others * (1.0 - weight_before);
        (self.measured, self.own) = (Some((now, offered)), 0);
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Fading {
    rate: f64,
    at: MonoTime,
}

impl Fading {
    fn rate(&self, now: MonoTime) -> f64 {
        self.rate * kept(now.since(self.at))
    }

    fn add(&mut self, now: MonoTime, n: f64) {
        *self = Self {
            rate: self.rate(now) + n / MEMORY.as_secs_f64(),
            at: now,
        };
    }
}

fn kept(span: Duration) -> f64 {
    (-span.as_secs_f64() / MEMORY.as_secs_f64()).exp()
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OPEN: Outlook = Outlook {
        is_enforced: true,
        ratio: 0.0,
        has_tokens: true,
        offered: 0,
    };
    const REFUSING: Outlook = Outlook { ratio: 0.5, ..OPEN };

    fn at(ms: u64) -> MonoTime {
        MonoTime::from_micros(ms * 1_000)
    }

    #[test]
    fn waiter_asks_immediately_without_refusals() {
        for outlook in [
            OPEN,
            Outlook {
                is_enforced: false,
                ..REFUSING
            },
            Outlook {
                is_enforced: false,
                ratio: 1.0,
                has_tokens: false,
                offered: 9,
            },
        ] {
            let mut pace = Pace::default();
            for _ in 0..1_000 {
                assert_eq!(pace.next(at(5), 1, outlook), Next::Ask);
                pace.on_asked(at(5), 1, outlook.ratio, true);
            }
        }
    }

    #[test]
    fn attempts_are_spaced_by_the_least_rate() {
        for (cost, ratio, expected) in [
            (1, 0.5, 250),
            (4, 0.5, 1_000),
            (1_000, 0.5, 2_000),
            (1, 1.0, 2_000),
        ] {
            let outlook = Outlook { ratio, ..OPEN };
            let mut pace = Pace::default();
            let mut now = at(10_000);
            let mut asked = Vec::new();
            while asked.len() < 4 {
                match pace.next(now, cost, outlook) {
                    Next::Ask => {
                        pace.on_asked(now, cost, ratio, false);
                        asked.push(now);
                    }
                    Next::Look(then) => {
                        assert!(then > now && then.since(now) <= LOOK_WAIT_MAX);
                        now = then;
                    }
                }
            }
            // The first may follow the one before sooner, to make up for a late timer.
            let apart: Vec<u128> = asked
                .windows(2)
                .skip(1)
                .map(|two| two[1].since(two[0]).as_millis())
                .collect();
            assert_eq!(apart, [expected; 2], "cost {cost}, ratio {ratio}");
        }
    }

    #[test]
    fn empty_guard_delays_by_one_interval() {
        let empty = Outlook {
            has_tokens: false,
            ..OPEN
        };
        let mut pace = Pace::default();
        pace.on_asked(at(10_000), 1, 0.0, false);
        let (mut now, mut looks) = (at(10_000), 0);
        while let Next::Look(then) = pace.next(now, 1, empty) {
            assert!(
                then.since(now) >= EMPTY_LOOK_WAIT_MIN.min(Duration::from_millis(1)),
                "no busy look"
            );
            (now, looks) = (then, looks + 1);
        }
        assert!(
            now.since(at(10_000)) <= Duration::from_millis(500),
            "{now:?}"
        );
        assert!(looks <= 2 * LOOKS + 2, "{looks}");
        assert_eq!(
            pace.next(at(10_040), 1, OPEN),
            Next::Ask,
            "the guard was refilled"
        );
    }

    #[test]
    fn attempts_add_at_most_a_tenth() {
        let mut pace = Pace::default();
        let (mut asked, mut now) = (0_u64, at(0));
        while now < at(20_000) {
            let offered = now.as_micros() / 1_000 + asked;
            match pace.next(
                now,
                1,
                Outlook {
                    ratio: 0.9,
                    offered,
                    ..OPEN
                },
            ) {
                Next::Ask => {
                    pace.on_asked(now, 1, 0.9, false);
                    asked += u64::from(now >= at(10_000));
                }
                Next::Look(then) => now = then,
            }
        }
        assert!(
            (900..=1_050).contains(&asked),
            "{asked} in 10 s beside 1,000/s"
        );
    }

    /// A loop that admits `allowed` requests/s and refuses what is above, with a delay.
    fn attempts_per_admission(allowed: f64) -> f64 {
        let (mut pace, mut now, mut ratio) = (Pace::default(), at(0), 0.0);
        let (mut asked, mut admitted, mut owed, mut window, mut since) =
            (0.0, 0.0, 0.0, 0.0, at(0));
        while now < at(60_000) {
            let span = now.since(since);
            if span >= Duration::from_millis(500) {
                let rate = window / span.as_secs_f64();
                ratio = if rate > allowed {
                    1.0 - allowed / rate
                } else {
                    0.0
                };
                (window, since) = (0.0, now);
            }
            // The guard: one and a half times the rate.
            let has_tokens = owed < 1.5 * allowed * (now.since(at(0)).as_secs_f64() + 0.2);
            match pace.next(
                now,
                1,
                Outlook {
                    ratio,
                    has_tokens,
                    ..OPEN
                },
            ) {
                Next::Ask => {
                    asked += 1.0;
                    window += 1.0;
                    let before = f64::floor(admitted);
                    admitted += 1.0 - ratio;
                    let passed = f64::floor(admitted) > before;
                    owed += f64::from(u8::from(passed));
                    pace.on_asked(now, 1, ratio, passed);
                }
                Next::Look(then) => now = then,
            }
        }
        assert!(
            admitted >= 0.9 * allowed * 60.0,
            "{admitted} admitted of {allowed}/s"
        );
        asked / admitted
    }

    #[test]
    fn waiters_ask_as_often_as_admitted() {
        for allowed in [10.0, 100.0, 1_000.0] {
            let ratio = attempts_per_admission(allowed);
            assert!(ratio < 1.5, "{ratio} attempts for each of {allowed}/s");
        }
    }

    proptest! {
        #[test]
        fn next_look_is_later_but_soon(
            steps in prop::collection::vec((0..5_000u64, 1..20_000u32, 0.0..=1.0f64, any::<bool>(), any::<u64>()), 1..60),
        ) {
            let (mut pace, mut now) = (Pace::default(), at(1));
            for (ms, cost, ratio, has_tokens, offered) in steps {
                now = now + Duration::from_millis(ms);
                let outlook = Outlook { is_enforced: true, ratio, has_tokens, offered };
                match pace.next(now, cost, outlook) {
                    Next::Ask => pace.on_asked(now, cost, ratio, has_tokens),
                    Next::Look(then) => {
                        prop_assert!(then > now);
                        prop_assert!(then.since(now) <= LOOK_WAIT_MAX);
                    }
                }
            }
        }
    }
}
