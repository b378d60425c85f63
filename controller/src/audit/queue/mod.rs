//! The entries that wait for the disk, and what becomes of them while it fails: an entry that a command waits
//! for is refused, and all others are kept and written later.

use std::collections::VecDeque;

use plimsoll_policy::UnixSeconds;
use tokio::sync::oneshot;

use super::line::{Actor, Entry, Record};

#[cfg(test)]
mod tests;

/// Entries that are kept while the disk fails. The latest ones beyond it are counted only.
const KEPT_MAX: usize = 1_000;
/// The most entries that are written at once.
const BATCH_MAX: usize = 64;

/// What became of a change that was recorded and then refused.
pub(super) const NOT_MADE: &str = "not carried out";

/// The answer to a command that waits: the number of its line, or why it was not written.
pub(super) type Answer = Result<u64, String>;

/// The queue of a log.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    failure: Option<Failure>,
    /// Entries that were kept so far, and those of them that no longer wait.
    noted: u64,
    settled: u64,
    /// Lines that were written.
    pub(super) written: u64,
}

/// A disk that fails.
#[derive(Clone, Debug)]
struct Failure {
    reason: String,
    /// The time of the first failure in a row.
    since_s: i64,
    /// Entries that were not written: those of refused commands, and those without room.
    unwritten: u64,
}

/// An entry that waits for the disk.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) record: Record,
    kind: WaitingKind,
}

#[derive(Debug)]
enum WaitingKind {
    /// A command waits for the line.
    Awaited(oneshot::Sender<Answer>),
    /// The change is made whether or not the line is written.
    Noted,
    /// The line that says how many entries are missing.
    Resumed(u64),
}

/// The result of writing a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The lines are durable, from this number on.
    Written(u64),
    /// The disk failed. If the lines are in the log all the same, the number of the first one.
    Failed {
        /// The number of the first line.
        seq: Option<u64>,
        /// Why.
        reason: String,
    },
}

// === impl Waiting ===

impl Waiting {
    /// Returns true if the command that waited for the line has been refused.
    fn has_given_up(&self) -> bool {
        matches!(&self.kind, WaitingKind::Awaited(answer) if answer.is_closed())
    }
}

// === impl Queue ===

impl Queue {
    /// Adds an entry that a command waits for.
    pub(super) fn await_line(&mut self, record: Record) -> oneshot::Receiver<Answer> {
        self.make_room();
        let (answer, answered) = oneshot::channel();
        self.waiting.push_back(Waiting { record, kind: WaitingKind::Awaited(answer) });
        answered
    }

    /// Adds an entry that is kept until it is written. Returns its number for [`has_settled`](Self::has_settled).
    pub(super) fn note(&mut self, record: Record) -> u64 {
        self.noted += 1;
        self.make_room();
        if self.waiting.len() < KEPT_MAX {
            self.waiting.push_back(Waiting { record, kind: WaitingKind::Noted });
        } else {
            self.settled += 1;
            self.count_unwritten();
        }
        self.noted
    }

    /// Returns true if the entry with this number no longer waits, or if the disk fails.
    pub(super) const fn has_settled(&self, number: u64) -> bool {
        self.settled >= number || self.failure.is_some()
    }

    /// Returns why the disk fails, if it does.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_ref().map(|failure| failure.reason.as_str())
    }

    /// Takes the next entries to write. While the disk fails, the first line says how many are missing.
    pub(super) fn take_batch(&mut self, unix_s: i64) -> Vec<Waiting> {
        let mut batch = Vec::new();
        if let Some(Failure { reason, since_s, unwritten }) = self.failure.clone() {
            let entry = Entry {
                what: "audit log resumed".to_owned(),
                before: format!("not written since {}", UnixSeconds::from_secs(since_s)),
                after: format!("{unwritten} entries were not written"),
                why: reason,
            };
            let record = Record::new(unix_s, Actor::controller("controller", ""), entry);
            batch.push(Waiting { record, kind: WaitingKind::Resumed(unwritten) });
        }
        while batch.len() < BATCH_MAX
            && let Some(mut waiting) = self.waiting.pop_front()
        {
            if waiting.has_given_up() {
                self.count_unwritten();
                continue;
            }
            waiting.record.late = self.failure.is_some() && !matches!(waiting.kind, WaitingKind::Awaited(_));
            batch.push(waiting);
        }
        batch
    }

    /// Takes a batch back with its outcome.
    pub(super) fn on_outcome(&mut self, batch: Vec<Waiting>, outcome: &Outcome, unix_s: i64) {
        let has_resumed = batch.iter().any(|waiting| matches!(waiting.kind, WaitingKind::Resumed(_)));
        match outcome {
            Outcome::Written(first) => {
                self.on_lines(batch, *first, None, unix_s);
                // Entries that were not written while the disk did not answer are still to be counted.
                if has_resumed && self.unwritten() == 0 {
                    self.failure = None;
                }
            }
            Outcome::Failed { seq, reason } => {
                self.fail(reason.clone(), unix_s);
                match seq {
                    Some(first) => self.on_lines(batch, *first, Some(reason), unix_s),
                    None => self.on_nothing(batch, reason),
                }
            }
        }
    }

    /// Returns true if a batch should be written at once: after one that was written, if `is_written`.
    pub(super) fn has_more(&self, is_written: bool) -> bool {
        is_written && (!self.waiting.is_empty() || self.failure.is_some())
    }

    fn unwritten(&self) -> u64 {
        self.failure.as_ref().map_or(0, |failure| failure.unwritten)
    }

    /// Takes back a batch whose lines are in the log.
    fn on_lines(&mut self, batch: Vec<Waiting>, first: u64, failure: Option<&String>, unix_s: i64) {
        let mut refused = Vec::new();
        for (seq, Waiting { record, kind }) in (first..).zip(batch) {
            self.written += 1;
            match kind {
                WaitingKind::Awaited(answer) => {
                    let sent = answer.send(failure.map_or(Ok(seq), |reason| Err(reason.clone())));
                    if sent.is_err() || failure.is_some() {
                        let why = failure.map_or("the audit log did not answer in time", String::as_str);
                        refused.push(record.continued(unix_s, seq, NOT_MADE, why.to_owned()));
                    }
                }
                WaitingKind::Noted => self.settled += 1,
                WaitingKind::Resumed(count) => {
                    if let Some(failure) = &mut self.failure {
                        failure.unwritten = failure.unwritten.saturating_sub(count);
                    }
                }
            }
        }
        for record in refused {
            self.note(record);
        }
    }

    /// Takes back a batch of which no line was written.
    fn on_nothing(&mut self, batch: Vec<Waiting>, reason: &str) {
        for waiting in batch.into_iter().rev() {
            match waiting.kind {
                WaitingKind::Awaited(answer) => {
                    // One that has given up was refused as well.
                    let _ = answer.send(Err(reason.to_owned()));
                    self.count_unwritten();
                }
                WaitingKind::Noted => self.waiting.push_front(waiting),
                WaitingKind::Resumed(_) => {}
            }
        }
    }

    /// Notes that the disk fails, or has not answered yet.
    pub(super) fn fail(&mut self, reason: String, unix_s: i64) {
        let (since_s, unwritten) =
            self.failure.as_ref().map_or((unix_s, 0), |failure| (failure.since_s, failure.unwritten));
        self.failure = Some(Failure { reason, since_s, unwritten });
    }

    /// Drops the entries of commands that have given up, if there is no room. The others wait on a connection each, so
    /// they are few.
    fn make_room(&mut self) {
        if self.waiting.len() < KEPT_MAX {
            return;
        }
        let before = self.waiting.len();
        self.waiting.retain(|waiting| !waiting.has_given_up());
        for _ in self.waiting.len()..before {
            self.count_unwritten();
        }
    }

    /// Counts an entry that is never written.
    fn count_unwritten(&mut self) {
        if let Some(failure) = &mut self.failure {
            failure.unwritten += 1;
        }
    }
}
