//! A restarted aggregator stays quiet until its clients are back: those who return first would otherwise be given
//! what the others, who still act on what they hold, are using up.

use std::time::Duration;

use plimsoll_core::quantity::MonoTime;

/// Nobody new for this long: everybody is back, unless it is known that they are not.
const NOBODY_JOINED_FOR: Duration = Duration::from_secs(2);
/// The longest a restart is waited out, the span over which clients spread their return.
const QUIET_MAX: Duration = Duration::from_secs(30);
/// Of the clients that are known to be due, the share that must be back for a pause in joining to be the end of it:
/// a client that died together with its aggregator should not be waited for.
const MOST: f64 = 0.9;

/// Whether this aggregator takes part in control yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Warmup {
    state: State,
    /// Whether the controller has said how many clients there were before, and how many, if it remembers.
    told: Option<Option<u32>>,
    /// When time was first seen to pass.
    began: Option<MonoTime>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// No client has come yet: whether any should, only the controller can say.
    #[default]
    Alone,
    /// The first client already held directives: this is a restart, and more will come.
    Returning {
        /// When the first one came.
        since: MonoTime,
        /// When the latest one came.
        joined: MonoTime,
    },
    /// In full service.
    Over,
}

impl Warmup {
    /// A client greets; `holds` says whether it already had a directive.
    pub(crate) fn on_greeting(&mut self, now: MonoTime, holds: bool) {
        self.state = match self.state {
            State::Alone if holds => State::Returning { since: now, joined: now },
            State::Alone | State::Over => State::Over,
            State::Returning { since, .. } => State::Returning { since, joined: now },
        };
    }

    /// The controller says how many clients there were before, if it remembers.
    pub(crate) fn on_told(&mut self, children: Option<u32>) {
        self.told = Some(children);
    }

    /// Time passes while `connected` children are here, and those among them that have traffic of their own to show have
    /// done so, or not; true at the moment the quiet ends.
    pub(crate) fn on_tick(&mut self, now: MonoTime, connected: u32, have_shown: bool) -> bool {
        let began = *self.began.get_or_insert(now);
        let next = match self.state {
            State::Alone if now.since(began) >= QUIET_MAX => State::Over,
            State::Returning { since, joined } => {
                let paused = now.since(joined) >= NOBODY_JOINED_FOR;
                let all_here = have_shown && self.are_all_back(connected, paused);
                if !all_here && now.since(since) < QUIET_MAX {
                    return false;
                }
                State::Over
            }
            State::Alone | State::Over => return false,
        };
        self.state = next;
        next == State::Over
    }

    fn are_all_back(&self, connected: u32, paused: bool) -> bool {
        match self.told.flatten() {
            Some(due) => connected >= due || paused && f64::from(connected) >= MOST * f64::from(due),
            None => paused,
        }
    }

    /// Whether counts are held back on the way up, and values on the way down.
    pub(crate) fn holds_back(self) -> bool {
        match self.state {
            // A count of nothing would pass for traffic that has gone.
            State::Alone => self.told.is_none_or(|due| due.is_some_and(|due| due > 0)),
            State::Returning { .. } => true,
            State::Over => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_secs(s))
    }

    #[test]
    fn a_fresh_start_is_never_quiet() {
        let mut quiet = Warmup::default();
        quiet.on_greeting(at(1), false);
        quiet.on_greeting(at(2), true);
        assert!(!quiet.holds_back());
    }

    #[test]
    fn a_restart_is_quiet_until_nobody_joins_any_more() {
        let mut quiet = Warmup::default();
        quiet.on_greeting(at(1), true);
        quiet.on_tick(at(2), 1, true);
        quiet.on_greeting(at(2), true);
        quiet.on_tick(at(3), 2, true);
        assert!(quiet.holds_back());
        quiet.on_tick(at(4), 2, true);
        assert!(!quiet.holds_back());
    }

    #[test]
    fn what_comes_through_aggregators_below_must_have_been_seen() {
        let mut quiet = Warmup::default();
        quiet.on_told(Some(2));
        quiet.on_greeting(at(1), true);
        quiet.on_greeting(at(1), true);
        assert!(!quiet.on_tick(at(4), 2, false), "they are back, but nobody knows what each of them needs");
        assert!(quiet.holds_back());
        assert!(quiet.on_tick(at(4), 2, true));
        assert!(!quiet.holds_back());
    }

    #[test]
    fn joining_cannot_keep_it_quiet_for_ever() {
        let mut quiet = Warmup::default();
        let counts_from = (0..60).find(|s| {
            quiet.on_greeting(at(*s), true);
            quiet.on_tick(at(*s), 1, true);
            !quiet.holds_back()
        });
        assert_eq!(counts_from, Some(30));
    }

    #[test]
    fn clients_that_are_known_to_be_due_are_waited_for() {
        // (expected, connected, seconds since anybody joined) and whether they are counted by then
        for (expected, connected, pause, counted) in [
            (2, 1, 10, false),
            (2, 2, 0, true),
            (10, 9, 1, false),
            (10, 9, 2, true),
            (10, 8, 10, false),
            (10, 8, 30, true),
            (0, 1, 0, true),
        ] {
            let mut quiet = Warmup::default();
            quiet.on_told(Some(expected));
            quiet.on_greeting(at(100), true);
            quiet.on_tick(at(100 + pause), connected, true);
            assert_eq!(!quiet.holds_back(), counted, "{connected} of {expected} after {pause} s");
        }
    }

    #[test]
    fn nothing_is_counted_before_it_is_known_whether_clients_are_due() {
        let mut quiet = Warmup::default();
        assert!(quiet.holds_back(), "nobody has said anything yet");
        quiet.on_told(None);
        assert!(!quiet.holds_back(), "a first start");
        quiet.on_told(Some(4));
        assert!(quiet.holds_back(), "four clients are due");
        assert!(!quiet.on_tick(at(10), 0, true));
        assert!(quiet.on_tick(at(40), 0, true), "but they are not waited for for ever");
        assert!(!quiet.holds_back());
    }
}
