//! The history as CSV, as people bring it and take it away: `time_utc,bucket,offered_rps` and, if wanted, `clean`.

use std::collections::BTreeMap;
use std::fmt::Write;

use plimsoll_policy::learning::{Day, DaySamples, Minute, Sample};
use plimsoll_core::names::Bucket;
use plimsoll_policy::{Policy, UnixSeconds};
use plimsoll_core::quantity::Rate;

use crate::history::MinuteSamples;

/// The first line of what is exported.
pub const HEADER: &str = "time_utc,bucket,offered_rps,clean";
/// What may be left out of it: then every minute is taken as clean.
const HEADER_SHORT: &str = "time_utc,bucket,offered_rps";

/// What a file came to.
#[derive(Debug, Default, PartialEq)]
pub struct Rows {
    /// By minute, in their order.
    pub minutes: BTreeMap<Minute, BTreeMap<Bucket, Sample>>,
    /// Rows of the present day, which is still being counted.
    pub of_today: usize,
    /// Rows of minutes in which nothing was offered, which are no samples.
    pub empty: usize,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct CsvFault {
    /// From 1.
    pub line: usize,
    /// What is wrong, and what to do.
    pub why: String,
}

impl Rows {
    /// Reads a file. `today` is the present day.
    ///
    /// # Errors
    /// With the first line that is wrong.
    pub fn parse(text: &str, policy: &Policy, today: Day) -> Result<Self, CsvFault> {
        let mut lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
        let header = lines.next().map(|(line, _)| line.trim_start_matches('\u{feff}').replace(' ', ""));
        let header = header.as_deref().map(str::trim);
        if header != Some(HEADER) && header != Some(HEADER_SHORT) {
            return Err(fault(1, format!("the first line is not {HEADER_SHORT} or {HEADER}")));
        }
        let columns = if header == Some(HEADER) { 4 } else { 3 };
        let mut rows = Self::default();
        for (text, line) in lines {
            let cells: Vec<&str> = text.split(',').map(str::trim).collect();
            if cells.len() != columns {
                return Err(fault(line, format!("{} values, not {columns}", cells.len())));
            }
            let [time, bucket, offered] = cells[..3] else { continue };
            let clean = cells.get(3).copied().unwrap_or("true");
            rows.add(time, bucket, offered, clean, policy, today).map_err(|why| fault(line, why))?;
        }
        Ok(rows)
    }

    fn add(
        &mut self,
        time: &str,
        bucket: &str,
        offered: &str,
        clean: &str,
        policy: &Policy,
        today: Day,
    ) -> Result<(), String> {
        let time = UnixSeconds::parse(time).map_err(|error| format!("time_utc is {error}"))?;
        let bucket = Bucket::new(bucket).map_err(|error| error.to_string())?;
        if policy.bucket(&bucket).is_none() {
            return Err(format!(
                "the policy has no entry for bucket {bucket}; add one, or leave its rows out"
            ));
        }
        let number: Option<f64> = offered.parse().ok();
        let offered = number.and_then(|number| Rate::new(number).ok());
        let offered = offered.ok_or("offered_rps is not a number of requests/s, zero or more")?;
        let clean = match clean {
            "true" => true,
            "false" => false,
            _ => return Err("clean is neither true nor false".to_owned()),
        };
        let minute = Minute::of_unix(time.as_secs());
        if minute.day() > today {
            return Err(format!("{time} lies in the future"));
        }
        if minute.day() == today {
            self.of_today += 1;
            return Ok(());
        }
        if offered == Rate::ZERO {
            self.empty += 1;
            return Ok(());
        }
        let before = self.minutes.entry(minute).or_default().insert(bucket, Sample { offered, clean });
        if before.is_some() {
            return Err(
                "this minute of this bucket was given before; write one row for each minute".to_owned()
            );
        }
        Ok(())
    }

    /// The same by bucket and day.
    #[must_use]
    pub fn days(&self) -> BTreeMap<(Bucket, Day), DaySamples> {
        let mut days: BTreeMap<(Bucket, Day), DaySamples> = BTreeMap::new();
        for (minute, samples) in &self.minutes {
            for (bucket, sample) in samples {
                days.entry((bucket.clone(), minute.day())).or_default().record(*minute, *sample);
            }
        }
        days
    }
}

/// Adds the rows of one minute to a text, those of `buckets` alone unless there are none.
pub fn write(minute: &MinuteSamples, buckets: &[Bucket], text: &mut String) {
    let time = UnixSeconds::from_secs(minute.minute.as_unix());
    for (bucket, sample) in &minute.samples {
        if buckets.is_empty() || buckets.contains(bucket) {
            let (offered, clean) = (sample.offered.per_second(), sample.clean);
            // Writing to a text does not fail.
            let _ = writeln!(text, "{time},{bucket},{offered:.3},{clean}");
        }
    }
}

fn fault(line: usize, why: String) -> CsvFault {
    CsvFault { line, why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_policy::{ONE_CLASS_TENANTS, Source};

    fn parse(text: &str) -> Result<Rows, CsvFault> {
        let tenants = Source { name: "tenants", text: ONE_CLASS_TENANTS };
        let policy =
            Source { name: "policy", text: "buckets: { api: { limit: 1 }, \"shop/*\": { limit: 1 } }" };
        Rows::parse(text, &Policy::read(policy, tenants).unwrap().0, Day(20_000))
    }

    #[test]
    fn what_is_written_is_read_again() {
        let bucket = |name: &str| Bucket::new(name).unwrap();
        let sample = |rps, clean| Sample { offered: Rate::new(rps).unwrap(), clean };
        let minute = Minute(1_000_000);
        let samples: BTreeMap<Bucket, Sample> =
            [(bucket("api"), sample(12.5, true)), (bucket("shop/a"), sample(1e6, false))].into();
        let mut text = format!("{HEADER}\n");
        let minutes = MinuteSamples { minute, samples: samples.clone() };
        write(&minutes, &[], &mut text);
        assert_eq!(
            text,
            "time_utc,bucket,offered_rps,clean\n1971-11-26T10:40:00Z,api,12.500,true\n\
             1971-11-26T10:40:00Z,shop/a,1000000.000,false\n"
        );
        assert_eq!(parse(&text).unwrap().minutes, [(minute, samples)].into());
        let mut some = String::new();
        write(&minutes, &[bucket("api")], &mut some);
        assert_eq!(some.lines().count(), 1);
    }

    #[test]
    fn columns_may_be_left_out_and_what_is_no_sample_is_counted() {
        let text = "\u{feff}time_utc, bucket, offered_rps\r\n\r\n2024-10-03T10:00:30Z, api, 5\r\n\
                    2024-10-03T10:01:00Z,api,0\r\n2024-10-04T10:00:00Z,api,7\r\n";
        let rows = parse(text).unwrap();
        assert_eq!((rows.minutes.len(), rows.of_today, rows.empty), (1, 1, 1));
        let days = rows.days();
        let ((bucket, day), samples) = days.first_key_value().unwrap();
        assert_eq!((bucket.as_str(), *day, samples.clean()), ("api", Day(19_999), 1));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let row = |row: &str| format!("{HEADER}\n2024-10-01T10:00:00Z,api,1,true\n{row}\n");
        for (text, line, why) in [
            (String::new(), 1, "the first line is not"),
            ("t_s,rps\n0,1\n".to_owned(), 1, "the first line is not"),
            (row("2024-10-01T10:01:00Z,api,1"), 3, "3 values, not 4"),
            (row("yesterday,api,1,true"), 3, "not a point in time"),
            (row("2024-10-01T10:01:00Z,a b,1,true"), 3, "name"),
            (row("2024-10-01T10:01:00Z,other,1,true"), 3, "no entry for bucket other"),
            (row("2024-10-01T10:01:00Z,api,NaN,true"), 3, "offered_rps"),
            (row("2024-10-01T10:01:00Z,api,inf,true"), 3, "offered_rps"),
            (row("2024-10-01T10:01:00Z,api,-1,true"), 3, "offered_rps"),
            (row("2024-10-01T10:01:00Z,api,x,true"), 3, "offered_rps"),
            (row("2024-10-01T10:01:00Z,api,1,yes"), 3, "clean"),
            (row("2024-10-05T10:01:00Z,api,1,true"), 3, "future"),
            (row("2024-10-01T10:00:59Z,api,1,true"), 3, "given before"),
        ] {
            let fault = parse(&text).unwrap_err();
            assert_eq!(fault.line, line, "{text}");
            assert!(fault.why.contains(why), "{fault}");
        }
    }
}
