//! Points in wall-clock time as operators write them: RFC 3339, kept as seconds since 1970.

use std::fmt;

/// Seconds since 1970-01-01T00:00:00Z, from the year 0 to the year 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixSeconds(i64);

/// A text that is no point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a point in time in UTC such as 2026-12-01T00:00:00Z")]
pub struct InvalidTimestamp;

const DAY_S: i64 = 86_400;
/// The first and the last second that have a name.
const RANGE_S: (i64, i64) = (-62_167_219_200, 253_402_300_799);

impl UnixSeconds {
    /// Reads `YYYY-MM-DDThh:mm:ssZ`. A fraction of a second may be written and is dropped; `+00:00` stands for `Z`.
    /// A leap second (`:60`) does not exist in this count.
    ///
    /// # Errors
    /// When the text has another form, a date or time that does not exist, or an offset from UTC.
    pub fn parse(text: &str) -> Result<Self, InvalidTimestamp> {
        Self::parsed(text.as_bytes()).ok_or(InvalidTimestamp)
    }

    fn parsed(text: &[u8]) -> Option<Self> {
        let (at, rest) = text.split_at_checked(19)?;
        let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
        if !marks.iter().all(|(i, mark)| at.get(*i).is_some_and(|b| b.eq_ignore_ascii_case(mark))) {
            return None;
        }
        let part = |from: usize, to: usize| {
            at.get(from..to)?
                .iter()
                .try_fold(0, |n: i64, b| b.is_ascii_digit().then(|| n * 10 + i64::from(b - b'0')))
        };
        let (year, month, day) = (part(0, 4)?, part(5, 7)?, part(8, 10)?);
        let (hour, minute, second) = (part(11, 13)?, part(14, 16)?, part(17, 19)?);
        let zone = match rest.strip_prefix(b".") {
            None => rest,
            Some(fraction) => {
                let digits = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
                if digits == 0 {
                    return None;
                }
                fraction.get(digits..)?
            }
        };
        let exists = (1..=12).contains(&month)
            && (1..=days_in(year, month)).contains(&day)
            && hour < 24
            && minute < 60
            && second < 60;
        (exists && matches!(zone, b"Z" | b"z" | b"+00:00"))
            .then(|| Self(days_since_1970(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second))
    }

    /// The point so many seconds after 1970, or before where negative; held to the years 0 to 9999.
    #[must_use]
    pub const fn from_secs(seconds: i64) -> Self {
        Self(if seconds < RANGE_S.0 {
            RANGE_S.0
        } else if seconds > RANGE_S.1 {
            RANGE_S.1
        } else {
            seconds
        })
    }

    /// Seconds since 1970, negative before.
    #[must_use]
    pub const fn as_secs(self) -> i64 {
        self.0
    }
}

const fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

const fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    // Days before a year, counted from year 0, which is a leap year in the proleptic Gregorian calendar.
    let before = |y: i64| y * 365 + (y + 3) / 4 - (y + 99) / 100 + (y + 399) / 400;
    before(year) - before(1970) + (1..month).map(|m| days_in(year, m)).sum::<i64>() + day - 1
}

impl fmt::Display for UnixSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut day, second) = (self.0.div_euclid(DAY_S), self.0.rem_euclid(DAY_S));
        let mut year = 1970 + day.div_euclid(366);
        while days_since_1970(year + 1, 1, 1) <= day {
            year += 1;
        }
        while days_since_1970(year, 1, 1) > day {
            year -= 1;
        }
        day -= days_since_1970(year, 1, 1);
        let mut month = 1;
        while day >= days_in(year, month) {
            day -= days_in(year, month);
            month += 1;
        }
        let (hour, minute) = (second / 3600, second / 60 % 60);
        write!(f, "{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{:02}Z", day + 1, second % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_in_time_are_read_exactly() {
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
        for text in ["2026-12-01t00:00:00z", "2026-12-01T00:00:00.999Z", "2026-12-01T00:00:00+00:00"] {
            assert_eq!(UnixSeconds::parse(text).unwrap().as_secs(), 1_796_083_200, "{text}");
        }
    }

    #[test]
    fn every_number_of_seconds_has_a_name() {
        assert_eq!(UnixSeconds::from_secs(i64::MIN).to_string(), "0000-01-01T00:00:00Z");
        assert_eq!(UnixSeconds::from_secs(i64::MAX).to_string(), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn what_does_not_exist_is_refused() {
        for text in [
            "",
            "tomorrow",
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
