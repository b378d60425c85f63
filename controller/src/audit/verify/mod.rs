//! Verification of a log: finds the first line that was edited, removed, reordered or truncated.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::line::{Head, Line};

#[cfg(test)]
mod tests;

/// The manipulation that a fault shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The line differs from the written line.
    Edited,
    /// Lines are missing before this one.
    Removed,
    /// The line is at another place than it was written at.
    Reordered,
    /// Lines are missing at the end.
    Truncated,
}

/// The first place where a log differs from what was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The manipulation.
    pub kind: Kind,
    /// The file.
    pub file: String,
    /// The number of the line in the file, from 1.
    pub line: u64,
    /// The details, in words.
    pub why: String,
}

/// A log without a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// The number of lines.
    pub lines: u64,
    /// The number of the first line; absent without lines.
    pub first: Option<u64>,
    /// The last line, and its hash.
    pub last: Head,
    /// Lines after the head: written a moment ago, or left by a crash before the head was replaced.
    pub after_head: u64,
    /// Bytes of a line without an end after the last one: being written, or left by a crash.
    pub torn_bytes: u64,
}

/// A verification in progress. Takes the lines of all files in order.
#[derive(Clone, Debug, Default)]
pub struct Verifier {
    head: Option<Head>,
    lines: u64,
    first: Option<u64>,
    /// The last line: its number and hash, and where it is.
    last: Option<(u64, String, LinePlace)>,
    place: LinePlace,
    torn_bytes: u64,
    fault: Option<Fault>,
    /// The numbers of the lines that a fault of the kind `removed` misses. One of them later is a line that moved.
    missing: Range<u64>,
}

#[derive(Clone, Debug, Default)]
struct LinePlace {
    file: String,
    line: u64,
}

// === impl Kind ===

impl Kind {
    /// Returns the word used in answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Edited => "edited",
            Self::Removed => "removed",
            Self::Reordered => "reordered",
            Self::Truncated => "truncated",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            file,
            line,
            why,
        } = self;
        write!(f, "{file}, line {line}: {}: {why}", kind.as_str())
    }
}

// === impl Verifier ===

impl Verifier {
    /// Begins a verification against a head. Without one, lines that are missing at the end are not noticed.
    pub fn new(head: Option<Head>) -> Self {
        Self {
            head,
            ..Self::default()
        }
    }

    /// Begins a file. Its lines follow the lines of the file before.
    pub fn file(&mut self, name: &str) {
        if self.torn_bytes > 0 {
            self.fault_here(
                Kind::Truncated,
                "the last line of the file has no end".to_owned(),
            );
        }
        self.place = LinePlace {
            file: name.to_owned(),
            line: 0,
        };
    }

    /// Takes a line with its line feed. Only the last one may come without.
    pub fn line(&mut self, bytes: &[u8]) {
        // The reader cuts a line that is longer than any that is written, and passes the rest as another one.
        if self.torn_bytes > 0 {
            self.fault_here(Kind::Edited, "the line is too long".to_owned());
        }
        self.place.line += 1;
        let Some(bytes) = bytes.strip_suffix(b"\n") else {
            self.torn_bytes = bytes.len() as u64;
            return;
        };
        let parsed = Line::parse(bytes);
        if let Some(fault) = &mut self.fault {
            // The lines after a gap show if a line moved or is lost.
            if let Some(line) = parsed.filter(|line| self.missing.contains(&line.seq)) {
                fault.kind = Kind::Reordered;
                fault.why = format!("line {} is at another place", line.seq);
                self.missing = 0..0;
            }
            return;
        }
        match parsed {
            Some(line) => self.next(line),
            None => self.fault_here(Kind::Edited, "the line does not match its hash".to_owned()),
        }
    }

    fn next(&mut self, line: Line) {
        let Line {
            seq, prev, hash, ..
        } = line;
        let expected = match &self.last {
            Some((last, ..)) => Some(last + 1),
            // Older lines than the first kept line may still exist, or may have been restored from
            // an archive.
            None => self.head.as_ref().map(|head| head.first.min(seq)),
        };
        let expected = expected.unwrap_or(seq);
        if seq > expected {
            self.missing = expected..seq;
            let gone = if expected + 1 == seq {
                format!("line {expected} is")
            } else {
                format!("lines {expected} to {} are", seq - 1)
            };
            return self.fault_here(Kind::Removed, format!("{gone} missing before line {seq}"));
        }
        if seq < expected {
            return self.fault_here(
                Kind::Reordered,
                format!("line {seq} is in the place of line {expected}"),
            );
        }
        let genesis = Head::genesis();
        let before = match &self.last {
            Some((_, hash, place)) => Some((hash, place)),
            None => (seq == 1).then_some((&genesis.hash, &self.place)),
        };
        if let Some((before, place)) = before.filter(|(before, _)| **before != prev) {
            let (before, place) = (before.clone(), place.clone());
            // The hash of each line is its own, so that the line before is the one that was edited.
            self.place = place;
            return self.fault_here(
                Kind::Edited,
                format!("line {seq} follows another one than that with hash {before}"),
            );
        }
        if let Some(head) = self
            .head
            .as_ref()
            .filter(|head| head.seq == seq && head.hash != hash)
        {
            let why = format!(
                "line {seq} is not the one with hash {} that the head names",
                head.hash
            );
            return self.fault_here(Kind::Edited, why);
        }
        self.lines += 1;
        self.first = self.first.or(Some(seq));
        self.last = Some((seq, hash, self.place.clone()));
    }

    /// Ends the verification.
    ///
    /// # Errors
    /// The first fault.
    pub fn finish(mut self) -> Result<Verified, Fault> {
        let seq = self.last.as_ref().map_or(0, |(seq, ..)| *seq);
        if let Some(head) = self.head.clone().filter(|head| head.seq > seq) {
            self.place.line += u64::from(self.torn_bytes == 0);
            let why = match seq {
                0 => format!("no line is left of {}", head.seq),
                _ => format!("the last line is {seq}, and the head names {}", head.seq),
            };
            self.fault_here(Kind::Truncated, why);
        }
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let genesis = Head::genesis();
        let first = self.head.as_ref().map_or(genesis.first, |head| head.first);
        let hash = self.last.map_or(genesis.hash, |(_, hash, _)| hash);
        Ok(Verified {
            lines: self.lines,
            first: self.first,
            last: Head { seq, hash, first },
            after_head: self.head.map_or(0, |head| seq.saturating_sub(head.seq)),
            torn_bytes: self.torn_bytes,
        })
    }

    /// Returns the last line before a fault, as the head of a log that ends with it.
    pub(super) fn last(&self) -> Option<Head> {
        let (seq, hash, _) = self.last.as_ref()?;
        Some(Head {
            seq: *seq,
            hash: hash.clone(),
            first: self.first.unwrap_or(1),
        })
    }

    fn fault_here(&mut self, kind: Kind, why: String) {
        let LinePlace { file, line } = self.place.clone();
        self.fault.get_or_insert(Fault {
            kind,
            file,
            line,
            why,
        });
    }
}
