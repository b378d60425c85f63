//! The format of the rows on disk.

use std::collections::BTreeMap;

use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::Rate;
use plimsoll_policy::learning::{Closed, Minute, Sample};

use super::error::Fault;
use crate::history::MinuteSamples;

/// The first byte of a minute's row.
const VERSION: u8 = 1;

/// Returns the key of a minute. Keys sort by time.
pub(super) fn key(minute: Minute) -> [u8; 8] {
    (minute.0 ^ i64::MIN).to_be_bytes()
}

/// Encodes a minute: the version, and for each bucket the length of its name, the name, its rate as 8 bytes,
/// and 1 if it was clean.
pub(super) fn encode(minute: &MinuteSamples) -> Vec<u8> {
    let mut row = vec![VERSION];
    for (bucket, sample) in &minute.samples {
        let name = bucket.as_str().as_bytes();
        // A name has 128 bytes at most.
        row.push(name.len() as u8);
        row.extend_from_slice(name);
        row.extend_from_slice(&sample.offered.per_second().to_be_bytes());
        row.push(u8::from(sample.clean));
    }
    row
}

/// Decodes a minute.
pub(super) fn minute(key: &[u8], row: &[u8]) -> Result<MinuteSamples, Fault> {
    let wrong = || Fault::Unreadable("the row of a minute cannot be read".to_owned());
    let key: [u8; 8] = key.try_into().map_err(|_| wrong())?;
    let samples = samples(row).ok_or_else(wrong)?;
    Ok(MinuteSamples { minute: Minute(i64::from_be_bytes(key) ^ i64::MIN), samples })
}

fn samples(row: &[u8]) -> Option<BTreeMap<Bucket, Sample>> {
    let (version, mut rest) = row.split_first()?;
    if *version != VERSION {
        return None;
    }
    let mut samples = BTreeMap::new();
    while let Some((length, after)) = rest.split_first() {
        let (name, after) = after.split_at_checked(usize::from(*length))?;
        let (rate, after) = after.split_first_chunk::<8>()?;
        let (clean, after) = after.split_first()?;
        let bucket = Bucket::new(std::str::from_utf8(name).ok()?).ok()?;
        let offered = Rate::new(f64::from_be_bytes(*rate)).ok()?;
        if *clean > 1 {
            return None;
        }
        samples.insert(bucket, Sample { offered, clean: *clean == 1 });
        rest = after;
    }
    Some(samples)
}

/// Decodes the summary of a bucket's days: JSON under its name.
pub(super) fn closed(name: &[u8], row: &[u8]) -> Result<(Bucket, Closed), Fault> {
    let read = || {
        let bucket = Bucket::new(std::str::from_utf8(name).ok()?).ok()?;
        Some((bucket, serde_json::from_slice(row).ok()?))
    };
    read().ok_or_else(|| Fault::Unreadable("the summary of a bucket cannot be read".to_owned()))
}

/// Returns the key of an answer: URL and query, separated by a line feed, which no URL has. `None` if it is
/// longer than a key may be.
pub(super) fn answer_key(url: &str, query: &str) -> Option<Vec<u8>> {
    let key = format!("{url}\n{query}").into_bytes();
    (key.len() <= usize::from(u16::MAX) && !url.contains('\n')).then_some(key)
}

/// Decodes the answer to a query.
pub(super) fn answer(key: &[u8], row: &[u8]) -> Result<((String, String), Rate), Fault> {
    let read = || {
        let (url, query) = std::str::from_utf8(key).ok()?.split_once('\n')?;
        let rate = Rate::new(f64::from_be_bytes(row.try_into().ok()?)).ok()?;
        Some(((url.to_owned(), query.to_owned()), rate))
    };
    read().ok_or_else(|| Fault::Unreadable("the answer to a query cannot be read".to_owned()))
}
