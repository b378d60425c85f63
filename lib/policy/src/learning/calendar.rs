//! Days and minutes of the wall clock, as numbers that the caller gives.

use serde::{Deserialize, Serialize};

/// The minutes of a day. Seconds since 1970 have no leap seconds, so every day has the same number.
pub const MINUTES_PER_DAY: usize = 1_440;

/// A UTC day: whole days since 1970-01-01, negative before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Day(pub i64);

/// A UTC minute: whole minutes since 1970-01-01T00:00Z, negative before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Minute(pub i64);

impl Day {
    /// The first minute of the day.
    pub const fn first_minute(self) -> Minute {
        Minute(self.0.saturating_mul(MINUTES_PER_DAY as i64))
    }
}

impl Minute {
    /// Returns the minute that contains a time in seconds since 1970.
    pub const fn of_unix(unix_s: i64) -> Self {
        Self(unix_s.div_euclid(60))
    }

    /// Its first second, since 1970.
    pub const fn as_unix(self) -> i64 {
        self.0.saturating_mul(60)
    }

    /// The day it belongs to.
    pub const fn day(self) -> Day {
        Day(self.0.div_euclid(MINUTES_PER_DAY as i64))
    }

    /// Its number within the day: 0..1440.
    pub const fn of_day(self) -> usize {
        self.0.rem_euclid(MINUTES_PER_DAY as i64) as usize
    }
}
