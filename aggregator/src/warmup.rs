//! The warm-up of a restarted aggregator: no counts go up and no values go down until its children are back.
//! The first children to return would otherwise be given the share that the others, which act on older
//! directives, still use.

use std::time::Duration;

use plimsoll_core::quantity::MonoTime;

/// A pause of this length without a new child ends the warm-up, unless more children are known to be missing.
const PAUSE: Duration = Duration::from_secs(2);
/// The longest warm-up: the span over which clients spread their return.
const WARMUP_MAX: Duration = Duration::from_secs(30);
/// The share of the expected children that must be back for a pause to end the warm-up. A client that died
/// together with its aggregator is not waited for.
const BACK_MIN: f64 = 0.9;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Warmup {
    state: State,
    /// The parent's latest answer: the children this aggregator had before, `Some(None)` if the parent does not
    /// remember any. `None` before the first answer.
    expected: Option<Option<u32>>,
    /// The time of the first tick.
    began: Option<MonoTime>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// No child has connected yet. Only the parent knows whether any is expected.
    #[default]
    Alone,
    /// The first child already held directives: this is a restart, and more children will come.
    Returning {
        /// The time of the first greeting.
        since: MonoTime,
        /// The time of the latest greeting.
        joined: MonoTime,
    },
    /// Counts go up and values go down.
    Over,
}

impl Warmup {
    /// A child greets. `has_directives` is true if it already follows directives.
    pub(crate) fn on_greeting(&mut self, now: MonoTime, has_directives: bool) {
        self.state = match self.state {
            State::Alone if has_directives => State::Returning {
                since: now,
                joined: now,
            },
            State::Alone | State::Over => State::Over,
            State::Returning { since, .. } => State::Returning { since, joined: now },
        };
    }

    pub(crate) fn on_expected(&mut self, children: Option<u32>) {
        self.expected = Some(children);
    }

    /// Advances the warm-up with `connected` children. `have_shown` is true once every connected child aggregator has
    /// shown its traffic, or had time to. Returns true at the moment the warm-up ends.
    pub(crate) fn on_tick(&mut self, now: MonoTime, connected: u32, have_shown: bool) -> bool {
        let began = *self.began.get_or_insert(now);
        let ends = match self.state {
            State::Alone => now.since(began) >= WARMUP_MAX,
            State::Returning { since, joined } => {
                let paused = now.since(joined) >= PAUSE;
                have_shown && self.are_all_back(connected, paused) || now.since(since) >= WARMUP_MAX
            }
            State::Over => false,
        };
        if ends {
            self.state = State::Over;
        }
        ends
    }

    fn are_all_back(&self, connected: u32, paused: bool) -> bool {
        match self.expected.flatten() {
            Some(due) => {
                connected >= due || paused && f64::from(connected) >= BACK_MIN * f64::from(due)
            }
            None => paused,
        }
    }

    /// Returns true while counts and values are withheld.
    pub(crate) fn withholds(self) -> bool {
        match self.state {
            // The parent would take a count of zero for traffic that has ended.
            State::Alone => self
                .expected
                .is_none_or(|due| due.is_some_and(|due| due > 0)),
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
    fn first_start_has_no_warmup() {
        let mut warmup = Warmup::default();
        warmup.on_greeting(at(1), false);
        warmup.on_greeting(at(2), true);
        assert!(!warmup.withholds());
    }

    #[test]
    fn warmup_ends_after_a_pause_in_joins() {
        let mut warmup = Warmup::default();
        warmup.on_greeting(at(1), true);
        warmup.on_tick(at(2), 1, true);
        warmup.on_greeting(at(2), true);
        warmup.on_tick(at(3), 2, true);
        assert!(warmup.withholds());
        warmup.on_tick(at(4), 2, true);
        assert!(!warmup.withholds());
    }

    #[test]
    fn warmup_waits_for_child_aggregator_traffic() {
        let mut warmup = Warmup::default();
        warmup.on_expected(Some(2));
        warmup.on_greeting(at(1), true);
        warmup.on_greeting(at(1), true);
        assert!(
            !warmup.on_tick(at(4), 2, false),
            "both are back, but their traffic is not known yet"
        );
        assert!(warmup.withholds());
        assert!(warmup.on_tick(at(4), 2, true));
        assert!(!warmup.withholds());
    }

    #[test]
    fn joining_children_cannot_prolong_warmup_endlessly() {
        let mut warmup = Warmup::default();
        let counts_from = (0..60).find(|s| {
            warmup.on_greeting(at(*s), true);
            warmup.on_tick(at(*s), 1, true);
            !warmup.withholds()
        });
        assert_eq!(counts_from, Some(30));
    }

    #[test]
    fn expected_children_are_waited_for() {
        // (expected, connected, seconds since the latest child joined, counted by then)
        for (expected, connected, pause, counted) in [
            (2, 1, 10, false),
            (2, 2, 0, true),
            (10, 9, 1, false),
            (10, 9, 2, true),
            (10, 8, 10, false),
            (10, 8, 30, true),
            (0, 1, 0, true),
        ] {
            let mut warmup = Warmup::default();
            warmup.on_expected(Some(expected));
            warmup.on_greeting(at(100), true);
            warmup.on_tick(at(100 + pause), connected, true);
            assert_eq!(
                !warmup.withholds(),
                counted,
                "{connected} of {expected} after {pause} s"
            );
        }
    }

    #[test]
    fn counts_wait_for_the_number_of_children() {
        let mut warmup = Warmup::default();
        assert!(warmup.withholds(), "the parent has not answered yet");
        warmup.on_expected(None);
        assert!(!warmup.withholds(), "a first start");
        warmup.on_expected(Some(4));
        assert!(warmup.withholds(), "four clients are expected");
        assert!(!warmup.on_tick(at(10), 0, true));
        assert!(warmup.on_tick(at(40), 0, true), "the wait is bounded");
        assert!(!warmup.withholds());
    }
}
