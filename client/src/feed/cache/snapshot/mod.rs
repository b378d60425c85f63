//! The content of a cache file: a line with the format and a checksum, a line with the time of writing and the owner,
//! and the directives as aggregators send them.

use std::time::Duration;

use plimsoll_core::directive::{Directives, Message};
use plimsoll_core::kill::{EPOCH_JUMP_MAX, KILLED_BUCKETS_MAX, KillGeneration};
use plimsoll_core::names::{Name, Zone, stable_hash};
use plimsoll_proto::{DirectivesDecoder, encode_directives, wire};
use prost::Message as _;

use crate::hot::table::BUCKETS_MAX;

/// The beginning of the first line: the kind of the file, and the version of its format. The checksum follows.
const MARK: &str = "plimsoll directives 2";

/// The service and zone of directives. No other service or zone restores them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) service: Name,
    pub(crate) zone: Zone,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SnapshotError {
    #[error(
        "the checksum in the first line does not match the content; the file is torn or was edited"
    )]
    Torn,
    #[error(
        "the first line does not begin with `{MARK}`; the file is of another version, or no saved directives"
    )]
    Version,
    #[error("invalid content: {0}")]
    Invalid(String),
    #[error("saved by {0}; every instance needs a file of its own")]
    OtherOwner(String),
}

/// Writes directives, with the time of writing since 1970. The key of coherent coins is a secret, and is left out.
pub(crate) fn write(mut directives: Directives, owner: &Owner, written_at: Duration) -> Vec<u8> {
    directives
        .buckets
        .iter_mut()
        .for_each(|bucket| bucket.terms.coherence = None);
    let mut body = format!(
        "{} {} {}\n",
        written_at.as_secs(),
        owner.service,
        owner.zone
    )
    .into_bytes();
    for part in encode_directives(Message::from(directives)) {
        prost::encoding::encode_varint(part.encoded_len() as u64, &mut body);
        part.encode(&mut body);
    }
    with_checksum(&body)
}

pub(crate) fn with_checksum(body: &[u8]) -> Vec<u8> {
    let checksum = stable_hash(body.iter().copied());
    [format!("{MARK} {checksum:016x}\n").as_bytes(), body].concat()
}

/// Reads directives, and the time since 1970 when they were written. Linear in the length.
pub(crate) fn read(bytes: &[u8], owner: &Owner) -> Result<(Directives, Duration), SnapshotError> {
    let (first, body) = line(bytes).ok_or(SnapshotError::Torn)?;
    if !first.starts_with(&format!("{MARK} ")) {
        return Err(SnapshotError::Version);
    }
    if with_checksum(body) != bytes {
        return Err(SnapshotError::Torn);
    }
    let invalid = |error: &dyn std::fmt::Display| SnapshotError::Invalid(error.to_string());
    let (head, mut parts) = line(body).ok_or_else(|| invalid(&"no head"))?;
    let (written_at_s, of) = head.split_once(' ').ok_or_else(|| invalid(&"no owner"))?;
    if of != format!("{} {}", owner.service, owner.zone) {
        return Err(SnapshotError::OtherOwner(of.to_owned()));
    }
    let written_at = written_at_s.parse().map_err(|error| invalid(&error))?;
    let mut decoder = DirectivesDecoder::default();
    let directives = loop {
        let part = wire::Directives::decode_length_delimited(&mut parts)
            .map_err(|error| invalid(&error))?;
        if let Some(directives) = decoder.decode(part).map_err(|error| invalid(&error))? {
            break directives;
        }
    };
    // Refused: an epoch that a session holding none would not accept, or a generation that a parent holding 0 would not
    // accept from a child.
    let mut kills =
        std::iter::once(&directives.kills.fleet).chain(directives.kills.buckets.values());
    let is_possible = directives
        .lead
        .epoch()
        .is_none_or(|epoch| epoch.0 <= EPOCH_JUMP_MAX)
        && kills.all(|generation| KillGeneration(0).accepts(*generation))
        && directives.kills.buckets.len() <= KILLED_BUCKETS_MAX
        && directives.buckets.len() <= BUCKETS_MAX;
    match is_possible && parts.is_empty() {
        true => Ok((directives, Duration::from_secs(written_at))),
        false => Err(invalid(
            &"an epoch, a kill generation or the number of buckets or kills is out of range, or bytes follow the \
             last part",
        )),
    }
}

fn line(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let end = bytes.iter().take(1_024).position(|byte| *byte == b'\n')?;
    Some((std::str::from_utf8(&bytes[..end]).ok()?, &bytes[end + 1..]))
}

#[cfg(test)]
mod tests;
