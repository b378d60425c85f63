//! One line of the log, and the chain that the lines form: each line contains the hash of the line before it,
//! and its own hash covers all of that.

use std::fmt::Write as _;

use plimsoll_admin::access::AdminCaller;
use plimsoll_core::names::Text;
use plimsoll_policy::UnixSeconds;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::state::Change;

/// Maximum length of a field's text, in bytes. Longer texts are cut.
const TEXT_BYTES_MAX: usize = 2_048;
/// Maximum length of a line to read, in bytes: more than the maximum of written lines.
pub const LINE_BYTES_MAX: usize = 32 << 10;
const HASH_KEY: &str = ",\"hash\":\"";
const HASH_END: &str = "\"}";
const HASH_DIGITS: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Actor {
    /// The name of a token, `loopback`, or one of the controller's own names.
    pub(crate) who: String,
    /// The role of the caller, or `controller`.
    pub(crate) role: String,
    /// An address, a file, or another origin of the change.
    pub(crate) from: String,
}

/// What changed, as in a [`Record`]. Texts that do not apply are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) what: String,
    pub(crate) before: String,
    pub(crate) after: String,
    pub(crate) why: String,
}

/// The content of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The time of the change, such as `2026-12-01T00:00:00Z`.
    pub time: String,
    /// The name of the caller's token, `loopback`, or `file`, `gate`, `aggregator`, `time` or `controller`.
    pub who: String,
    /// The role of the caller, or `controller`.
    pub role: String,
    /// The caller's address, or the file.
    pub from: String,
    /// The command or the kind of change, with what it concerns.
    pub what: String,
    /// The state before.
    pub before: String,
    /// The state wanted, or the one reached.
    pub after: String,
    /// The reasons.
    pub why: String,
    /// The number of the earlier line that this one continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
    /// True if the line was written later than the change, because the disk failed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub late: bool,
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The number of the line, from 1.
    pub seq: u64,
    /// The content.
    #[serde(flatten)]
    pub record: Record,
    /// The hash of the line before; zeros in the first one.
    pub prev: String,
    /// The SHA-256 of this line without this member, in hex.
    pub hash: String,
}

/// The end of a chain, as the file `audit.head` keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The number of the last line; 0 without one.
    pub seq: u64,
    /// The hash of the last line; zeros without one.
    pub hash: String,
    /// The number of the first line that is kept: older files are removed.
    pub first: u64,
}

#[derive(Serialize)]
struct Unhashed<'a> {
    seq: u64,
    #[serde(flatten)]
    record: &'a Record,
    prev: &'a str,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

// === impl Actor ===

impl Actor {
    pub(crate) fn controller(part: &str, from: impl Into<String>) -> Self {
        Self {
            who: part.to_owned(),
            role: "controller".to_owned(),
            from: from.into(),
        }
    }
}

impl From<&AdminCaller> for Actor {
    fn from(caller: &AdminCaller) -> Self {
        let AdminCaller { name, role, from } = caller;
        Self {
            who: name.to_string(),
            role: role.to_string(),
            from: from.to_string(),
        }
    }
}

// === impl Entry ===

impl Entry {
    pub(crate) fn of_change(
        command: &str,
        Change {
            entry,
            from,
            to,
            why,
            ..
        }: &Change,
    ) -> Self {
        Self {
            what: format!("{command} {entry}"),
            before: from.map(|from| from.to_string()).unwrap_or_default(),
            after: to.to_string(),
            why: why.join("; "),
        }
    }
}

// === impl Record ===

impl Record {
    /// Returns the content of a line, with texts of bounded length. `unix_s` is the time of the change.
    pub(super) fn new(unix_s: i64, actor: Actor, entry: Entry) -> Self {
        let Actor { who, role, from } = actor;
        let Entry {
            what,
            before,
            after,
            why,
        } = entry;
        Self {
            time: UnixSeconds::from_secs(unix_s).to_string(),
            who: cut(who, TEXT_BYTES_MAX),
            role: cut(role, TEXT_BYTES_MAX),
            from: cut(from, TEXT_BYTES_MAX),
            what: cut(what, TEXT_BYTES_MAX),
            before: cut(before, TEXT_BYTES_MAX),
            after: cut(after, TEXT_BYTES_MAX),
            why: cut(why, TEXT_BYTES_MAX),
            of: None,
            late: false,
        }
    }

    /// Returns the content of a later line about the same change, which was recorded with the number `seq`.
    pub(super) fn continued(&self, unix_s: i64, seq: u64, after: &str, why: String) -> Self {
        let time = UnixSeconds::from_secs(unix_s).to_string();
        let after = after.to_owned();
        Self {
            time,
            before: String::new(),
            after,
            why: cut(why, TEXT_BYTES_MAX),
            of: Some(seq),
            late: false,
            ..self.clone()
        }
    }
}

/// Cuts a text to `bytes_max`, and replaces characters that do not print.
pub(crate) fn cut(text: String, bytes_max: usize) -> String {
    const ELLIPSIS: &str = "...";
    let mut text = text.replace(Text::is_unfit, "?");
    if text.len() > bytes_max {
        let fits = |end: &usize| text.is_char_boundary(*end);
        text.truncate(
            (0..=bytes_max.saturating_sub(ELLIPSIS.len()))
                .rev()
                .find(fits)
                .unwrap_or(0),
        );
        text.push_str(ELLIPSIS);
    }
    text
}

// === impl Line ===

impl Line {
    /// Parses the bytes of a line, without the line feed. `None` if they are no line of a log, or if the hash is
    /// that of other bytes.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (body, hash) = text.strip_suffix(HASH_END)?.rsplit_once(HASH_KEY)?;
        let line: Self = serde_json::from_str(text).ok()?;
        (hash.len() == HASH_DIGITS && line.hash == hash && hash_of(&format!("{body}}}")) == hash)
            .then_some(line)
    }
}

// === impl Head ===

impl Head {
    /// The head of a log without lines.
    pub(super) fn genesis() -> Self {
        Self {
            seq: 0,
            hash: "0".repeat(HASH_DIGITS),
            first: 1,
        }
    }

    pub(super) fn append(&mut self, record: &Record) -> Result<String, serde_json::Error> {
        let seq = self.seq + 1;
        let body = serde_json::to_string(&Unhashed {
            seq,
            record,
            prev: &self.hash,
        })?;
        let hash = hash_of(&body);
        let open = body.strip_suffix('}').unwrap_or(&body);
        let line = format!("{open}{HASH_KEY}{hash}{HASH_END}\n");
        (self.seq, self.hash) = (seq, hash);
        Ok(line)
    }
}

fn hash_of(text: &str) -> String {
    let mut hex = String::with_capacity(HASH_DIGITS);
    for byte in digest(&SHA256, text.as_bytes()).as_ref() {
        // A string takes all of it.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(what: &str) -> Record {
        let actor = Actor {
            who: "alice".into(),
            role: "operator".into(),
            from: "10.0.0.1".into(),
        };
        let entry = Entry {
            what: what.into(),
            before: "off".into(),
            ..Entry::default()
        };
        Record::new(0, actor, entry)
    }

    #[test]
    fn line_hash_covers_everything_before_it() {
        let mut head = Head::genesis();
        let first = head.append(&record("kill on")).unwrap();
        let second = head
            .append(&Record {
                late: true,
                of: Some(1),
                ..record("kill \"off\",\"hash\":\"")
            })
            .unwrap();
        let body = first.split(",\"hash\"").next().unwrap();
        assert_eq!(
            body,
            format!(
                "{{\"seq\":1,\"time\":\"1970-01-01T00:00:00Z\",\"who\":\"alice\",\"role\":\"operator\",\"from\":\"10.0.0.1\",\
                 \"what\":\"kill on\",\"before\":\"off\",\"after\":\"\",\"why\":\"\",\"prev\":\"{}\"",
                "0".repeat(64)
            )
        );
        let first = Line::parse(first.trim_end().as_bytes()).unwrap();
        // As `printf '%s}' "$body" | sha256sum` computes it.
        assert_eq!(first.hash, hash_of(&format!("{body}}}")));
        let second = Line::parse(second.trim_end().as_bytes()).unwrap();
        assert_eq!(
            (
                second.seq,
                &second.prev,
                second.record.late,
                second.record.of
            ),
            (2, &first.hash, true, Some(1))
        );
        assert_eq!(second.record.what, "kill \"off\",\"hash\":\"");
        assert_eq!(
            head,
            Head {
                seq: 2,
                hash: second.hash,
                first: 1
            }
        );
    }

    #[test]
    fn audit_hash_is_standard_sha_256() {
        assert_eq!(
            hash_of("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn longest_escaped_line_can_be_read() {
        let long = "\"\n".repeat(100_000);
        let actor = Actor {
            who: long.clone(),
            role: long.clone(),
            from: long.clone(),
        };
        let entry = Entry {
            what: long.clone(),
            before: long.clone(),
            after: long.clone(),
            why: long,
        };
        let record = Record::new(i64::MAX, actor, entry);
        assert!(
            record.why.len() <= TEXT_BYTES_MAX && record.why.ends_with("..."),
            "{}",
            record.why.len()
        );
        let line = Head::genesis()
            .append(&Record {
                of: Some(u64::MAX),
                late: true,
                ..record
            })
            .unwrap();
        assert!(line.len() <= LINE_BYTES_MAX, "{}", line.len());
        assert_eq!(
            cut("ü".repeat(TEXT_BYTES_MAX), TEXT_BYTES_MAX).len(),
            TEXT_BYTES_MAX - 1
        );
        assert_eq!(cut("a\u{1b}[2J\n\u{202e}".to_owned(), 99), "a?[2J??");
    }
}
