//! Appends lines to the log: a batch is written and synced, and then the head is replaced. The log
//! is never behind its head, so that a crash at any point differs from a truncation.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use plimsoll_host::atomic_file::{self, directory_of, sync_directory};
use plimsoll_host::regular_file;

use super::files::{HEAD, LOG, each_line, is_damage, read_head, rotated};
use super::line::{Actor, Entry, Head, LINE_BYTES_MAX, Line, Record};
use super::verify::{Verified, Verifier};

#[cfg(test)]
mod tests;

const ROTATE_BYTES: u64 = 64 << 20;
/// Maximum number of rotated files. The oldest one beyond it is removed.
const ROTATED_MAX: usize = 16;

#[derive(Debug, thiserror::Error)]
#[error("{} cannot be written: {source}", file.display())]
pub(super) struct AppendError {
    /// The number of the first line, if the lines are in the log and the head could not be replaced.
    pub(super) seq: Option<u64>,
    file: PathBuf,
    source: io::Error,
}

#[derive(Debug)]
pub(super) struct Writer {
    log: PathBuf,
    rotate_bytes: u64,
    rotated_max: usize,
    /// The end of the log; `None` until it is read, or read again after an error.
    end: Option<End>,
    /// Records about the log itself, which the next append writes first.
    own: Vec<Record>,
}

#[derive(Clone, Debug)]
struct End {
    head: Head,
    bytes: u64,
}

// === impl Writer ===

impl Writer {
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            log: directory.join(LOG),
            rotate_bytes: ROTATE_BYTES,
            rotated_max: ROTATED_MAX,
            end: None,
            own: Vec::new(),
        }
    }

    /// Appends records, which are on disk when this returns. Returns the number of the first one. `unix_s` is the
    /// time of day for entries about the log itself. Blocks.
    ///
    /// # Errors
    /// When the disk fails. The next call tries again.
    pub(super) fn append(&mut self, records: &[Record], unix_s: i64) -> Result<u64, AppendError> {
        let failed = |seq, file| move |source| AppendError { seq, file, source };
        let (seq, head) = self
            .append_lines(records, unix_s)
            .map_err(failed(None, self.log.clone()))?;
        self.replace_head(&head)
            .map_err(failed(Some(seq), self.log.with_file_name(HEAD)))?;
        Ok(seq)
    }

    /// Returns the error of an append that panicked. The log is read again.
    pub(super) fn on_panic(&mut self) -> AppendError {
        self.end = None;
        AppendError {
            seq: None,
            file: self.log.clone(),
            source: io::Error::other("the write panicked"),
        }
    }

    fn append_lines(&mut self, records: &[Record], unix_s: i64) -> io::Result<(u64, Head)> {
        let mut end = self.find_end(unix_s)?;
        if end.bytes >= self.rotate_bytes {
            end = self.rotate(end, unix_s)?;
        }
        self.end = Some(end.clone());
        let (mut head, mut lines) = (end.head.clone(), String::new());
        let seq = head.seq + self.own.len() as u64 + 1;
        for record in self.own.iter().chain(records) {
            lines.push_str(&head.append(record)?);
        }
        self.write(end.bytes, lines.as_bytes())?;
        self.end = Some(End {
            head: head.clone(),
            bytes: end.bytes + lines.len() as u64,
        });
        self.own.clear();
        Ok((seq, head))
    }

    /// Writes lines at the end of the file. No part of them is left after an error, or the file is read again.
    fn write(&mut self, end: u64, lines: &[u8]) -> io::Result<()> {
        let mut file = regular_file::open_to_append(&self.log)?;
        if let Err(error) = file.write_all(lines).and_then(|()| file.sync_all()) {
            if file.set_len(end).is_err() {
                self.end = None;
            }
            return Err(error);
        }
        if end == 0 {
            sync_directory(directory_of(&self.log))
        } else {
            Ok(())
        }
    }

    fn replace_head(&self, head: &Head) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(head)?;
        bytes.push(b'\n');
        atomic_file::replace(&self.log.with_file_name(HEAD), &bytes)
    }

    /// Returns the end of the log, as it was left or as its files have it.
    fn find_end(&mut self, unix_s: i64) -> io::Result<End> {
        let file = regular_file::open_to_append(&self.log)?;
        let bytes = file.metadata()?.len();
        match self.end.clone() {
            Some(end) if end.bytes == bytes => Ok(end),
            _ => self.read_end(file, bytes, unix_s),
        }
    }

    /// Reads the end of the log from its last file, repairs what a crash left, and notes what is found.
    fn read_end(&mut self, mut file: File, mut bytes: u64, unix_s: i64) -> io::Result<End> {
        let (head, head_damage) = match read_head(&self.log.with_file_name(HEAD)) {
            Ok(head) => (head, None),
            Err(error) if is_damage(&error) => (None, Some(format!("{HEAD}: {error}"))),
            Err(error) => return Err(error),
        };
        // The first line may have any number: lines in rotated files are left to `plimsoll audit verify`.
        let mut verifier = Verifier::new(head.clone().map(|head| Head {
            first: u64::MAX,
            ..head
        }));
        let latest = if bytes == 0 {
            rotated(&self.log)?.pop_last().map(|(_, path)| path)
        } else {
            None
        };
        let path = latest.as_ref().unwrap_or(&self.log);
        verifier.file(&path.display().to_string());
        each_line(regular_file::open(path)?, |line| verifier.line(line))?;
        let last = verifier.last();
        let verified = verifier.finish();
        let first = head.as_ref().map_or(1, |head| head.first);
        let damage = match verified {
            Ok(Verified { lines: 0, .. }) if head.is_none() && head_damage.is_none() => None,
            Ok(Verified {
                after_head,
                torn_bytes,
                ..
            }) if head.is_some() => {
                if torn_bytes > 0 && latest.is_none() {
                    bytes -= torn_bytes;
                    file.set_len(bytes)?;
                    file.sync_all()?;
                }
                self.note_crash(after_head, torn_bytes, unix_s);
                None
            }
            Ok(_) => Some(head_damage.unwrap_or_else(|| format!("{HEAD} is missing"))),
            Err(fault) => Some(fault.to_string()),
        };
        let Some(damage) = damage else {
            let head = Head {
                first,
                ..last.or(head).unwrap_or_else(Head::genesis)
            };
            return Ok(End { head, bytes });
        };
        if !regular_file::ends_with_line(&mut file)? {
            // The torn line stays as evidence, and the next one begins on its own.
            file.write_all(b"\n")?;
            file.sync_all()?;
            bytes += 1;
        }
        tracing::error!(
            log = %self.log.display(), damage,
            "audit log damaged: it is kept as it is and continued; see `plimsoll audit verify`"
        );
        let why = "found when the log was opened; the damaged lines are kept";
        self.note("audit log damaged", damage, why, unix_s);
        let head = Head {
            first,
            ..head.or(last).unwrap_or_else(Head::genesis)
        };
        Ok(End { head, bytes })
    }

    fn note_crash(&mut self, after_head: u64, torn_bytes: u64, unix_s: i64) {
        let mut found = Vec::new();
        if after_head > 0 {
            found.push(format!(
                "{after_head} lines before this one may be of changes that were not made"
            ));
        }
        if torn_bytes > 0 {
            found.push(format!(
                "{torn_bytes} bytes of an unfinished line were removed"
            ));
        }
        if found.is_empty() {
            return;
        }
        let found = found.join("; ");
        tracing::warn!(log = %self.log.display(), found, "audit log repaired after a crash");
        self.note(
            "audit log repaired",
            found,
            "a crash while the log was written",
            unix_s,
        );
    }

    fn rotate(&mut self, mut end: End, unix_s: i64) -> io::Result<End> {
        let mut files = rotated(&self.log)?;
        let number = files
            .last_key_value()
            .map_or(1, |(number, _)| number.saturating_add(1));
        let name = self.log.with_file_name(format!("{LOG}.{number}"));
        fs::rename(&self.log, &name)?;
        sync_directory(directory_of(&self.log))?;
        tracing::info!(file = %name.display(), "audit log rotated");
        files.insert(number, name);
        end = End { bytes: 0, ..end };
        self.end = Some(end.clone());
        while files.len() > self.rotated_max
            && let Some((_, oldest)) = files.pop_first()
            && let Some((_, next)) = files.first_key_value()
        {
            // The head first: a crash leaves a file too many, which is no damage.
            end.head.first = first_seq(next)?;
            self.replace_head(&end.head)?;
            fs::remove_file(&oldest)?;
            self.end = Some(end.clone());
            tracing::warn!(file = %oldest.display(), first = end.head.first, "oldest file of the audit log removed");
            let after = format!("the log begins with line {}", end.head.first);
            let why = format!("there are more than {} rotated files", self.rotated_max);
            self.note(
                &format!("audit file {} removed", oldest.display()),
                after,
                &why,
                unix_s,
            );
        }
        Ok(end)
    }

    fn note(&mut self, what: &str, after: String, why: &str, unix_s: i64) {
        let entry = Entry {
            what: what.to_owned(),
            after,
            why: why.to_owned(),
            ..Entry::default()
        };
        self.own.push(Record::new(
            unix_s,
            Actor::controller("controller", ""),
            entry,
        ));
    }
}

fn first_seq(path: &Path) -> io::Result<u64> {
    let mut line = Vec::new();
    BufReader::new(regular_file::open(path)?)
        .take(LINE_BYTES_MAX as u64)
        .read_until(b'\n', &mut line)?;
    let first = Line::parse(line.trim_ascii_end()).map(|line| line.seq);
    first.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} has no line", path.display()),
        )
    })
}
