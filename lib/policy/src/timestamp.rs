//! Times in UTC as operators write them: RFC 3339, kept as seconds since 1970.

use std::fmt;

use jiff::SignedDuration;
use jiff::civil::{DateTime, date};

/// A time in seconds since 1970-01-01T00:00:00Z, from the year 0 to the year 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixSeconds(i64);

/// A text is no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a point in time in UTC such as 2026-12-01T00:00:00Z")]
pub struct InvalidTimestamp;

/// The second 0.
const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);
const RANGE_S: (i64, i64) = (-62_167_219_200, 253_402_300_799);
const SECONDS_LEN: usize = 19;

impl UnixSeconds {
    /// Reads `YYYY-MM-DDThh:mm:ssZ`. A fraction of a second may be written and is dropped; `+00:00` stands
    /// for `Z`. Leap seconds (`:60`) do not exist in this count.
    ///
    /// # Errors
    /// When the text has another form, a date or time that does not exist, or an offset from UTC.
    pub fn parse(text: &str) -> Result<Self, InvalidTimestamp> {
        Self::parsed(text).ok_or(InvalidTimestamp)
    }

    fn parsed(text: &str) -> Option<Self> {
        let (time, rest) = text.split_at_checked(SECONDS_LEN)?;
        let zone = match rest.strip_prefix('.') {
            None => rest,
            Some(fraction) => {
                let zone = fraction.trim_start_matches(|digit: char| digit.is_ascii_digit());
                if zone.len() == fraction.len() {
                    return None;
                }
                zone
            }
        };
        let at: DateTime = time.parse().ok()?;
        // The parser also accepts other forms, and leap seconds: those differ from what it would write.
        let is_exact = at.to_string().eq_ignore_ascii_case(time);
        (is_exact && matches!(zone, "Z" | "z" | "+00:00"))
            .then(|| Self(at.duration_since(EPOCH).as_secs()))
    }

    /// Returns the time so many seconds after 1970, or before it if negative; clamped to the years 0 to 9999.
    pub fn from_secs(seconds: i64) -> Self {
        Self(seconds.clamp(RANGE_S.0, RANGE_S.1))
    }

    /// Seconds since 1970, negative before.
    pub const fn as_secs(self) -> i64 {
        self.0
    }
}

impl fmt::Display for UnixSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}Z",
            EPOCH.saturating_add(SignedDuration::from_secs(self.0))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written_exactly() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1969-12-31T23:59:59Z", -1),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2026-12-01T00:00:00Z", 1_796_083_200),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
            ("9999-12-31T23:59:59Z", 253_402_300_799),
            ("0000-01-01T00:00:00Z", -62_167_219_200),
        ] {
            let read = UnixSeconds::parse(text).unwrap();
            assert_eq!(read.as_secs(), seconds, "{text}");
            assert_eq!(read.to_string(), text);
            assert_eq!(UnixSeconds::from_secs(seconds), read);
        }
        for text in [
            "2026-12-01t00:00:00z",
            "2026-12-01T00:00:00.999Z",
            "2026-12-01T00:00:00+00:00",
        ] {
            assert_eq!(
                UnixSeconds::parse(text).unwrap().as_secs(),
                1_796_083_200,
                "{text}"
            );
        }
    }

    #[test]
    fn seconds_beyond_the_years_are_clamped() {
        assert_eq!(
            UnixSeconds::from_secs(i64::MIN).to_string(),
            "0000-01-01T00:00:00Z"
        );
        assert_eq!(
            UnixSeconds::from_secs(i64::MAX).to_string(),
            "9999-12-31T23:59:59Z"
        );
    }

    #[test]
    fn nonexistent_times_are_refused() {
        for text in [
            "",
            "tomorrow",
            "-026-12-01T00:00:00Z",
            "2026-12-01T00:00:00.1234567890123x",
            "2026-W49-2T00:00:00Z",
            "2026-12-01",
            "2026-12-01T00:00:00",
            "2026-12-01 00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-12-00T00:00:00Z",
            "2026-12-01T24:00:00Z",
            "2026-12-01T00:60:00Z",
            "2026-12-01T00:00:60Z",
            "2026-12-01T00:00:00.Z",
            "2026-12-01T00:00:00+01:00",
            "2026-12-01T00:00:00Zx",
            "+026-12-01T00:00:00Z",
            "2026-12-0\u{e9}T00:00:0Z",
        ] {
            assert!(UnixSeconds::parse(text).is_err(), "{text}");
        }
    }
}
