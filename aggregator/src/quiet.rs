//! A restarted aggregator stays quiet until its clients are back: those who return first would otherwise be given
//! what the others, who still act on what they hold, are using up.

use std::time::Duration;

use plimsoll_core::time::MonoTime;

/// Nobody new for this long: everybody is back.
const NOBODY_JOINED_FOR: Duration = Duration::from_secs(2);
/// The longest a restart is waited out, the span over which clients spread their return.
const QUIET_MAX: Duration = Duration::from_secs(30);

/// Whether this aggregator takes part in control yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Quiet {
    /// No client has come yet.
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

impl Quiet {
    /// A client greets; `holds` says whether it already had a directive.
    pub(crate) fn on_greeting(&mut self, now: MonoTime, holds: bool) {
        *self = match *self {
            Self::Alone if holds => Self::Returning { since: now, joined: now },
            Self::Alone | Self::Over => Self::Over,
            Self::Returning { since, .. } => Self::Returning { since, joined: now },
        };
    }

    /// Time passes; true at the moment the quiet ends.
    pub(crate) fn on_tick(&mut self, now: MonoTime) -> bool {
        let Self::Returning { since, joined } = *self else { return false };
        let over = now.since(joined) >= NOBODY_JOINED_FOR || now.since(since) >= QUIET_MAX;
        if over {
            *self = Self::Over;
        }
        over
    }

    /// Whether counts and ratios are held back.
    pub(crate) const fn is_quiet(self) -> bool {
        matches!(self, Self::Returning { .. })
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
        let mut quiet = Quiet::default();
        quiet.on_greeting(at(1), false);
        quiet.on_greeting(at(2), true);
        assert!(!quiet.is_quiet());
    }

    #[test]
    fn a_restart_is_quiet_until_nobody_joins_any_more() {
        let mut quiet = Quiet::default();
        quiet.on_greeting(at(1), true);
        assert!(!quiet.on_tick(at(2)));
        quiet.on_greeting(at(2), true);
        assert!(!quiet.on_tick(at(3)));
        assert!(quiet.is_quiet());
        assert!(quiet.on_tick(at(4)));
        assert!(!quiet.on_tick(at(5)));
        assert_eq!(quiet, Quiet::Over);
    }

    #[test]
    fn joining_cannot_keep_it_quiet_for_ever() {
        let mut quiet = Quiet::default();
        let ended = (0..60).find(|s| {
            quiet.on_greeting(at(*s), true);
            quiet.on_tick(at(*s))
        });
        assert_eq!(ended, Some(30));
    }
}
