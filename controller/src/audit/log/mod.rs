//! The audit log of a running controller. A change that may add refusals is made once its line is on disk. All other
//! changes are made first: their lines are kept while the disk fails, and written later.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_policy::UnixSeconds;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::line::{Actor, Entry, Record};
use super::shared::SharedLines;
use super::writer::Writer;
use crate::tasks::unix_s;

#[cfg(test)]
mod tests;

/// Maximum time that a command waits for its line. A disk that takes longer counts as failing.
const LINE_MAX: Duration = Duration::from_secs(2);
/// The delay between a failed write and the next one, unless a command arrives first.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Maximum number of lines that are kept while the disk fails. The latest ones beyond it are counted only.
const KEPT_MAX: usize = 1_000;
/// The outcome of a change that was recorded and then refused.
const NOT_MADE: &str = "not carried out";

#[derive(Clone, Debug)]
pub(crate) struct AuditLog {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    directory: PathBuf,
    /// The lines of all leaders, if several controllers share a store.
    shared: Option<Arc<SharedLines>>,
    /// Locked during a write, so that lines keep their order.
    writer: Mutex<Writer>,
    state: Mutex<State>,
    wake: Notify,
    changes: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    kept: VecDeque<Record>,
    /// Number of lines that no command waited for.
    noted: u64,
    /// Number of noted lines that are written or given up. The others are kept or in a write.
    settled: u64,
    /// Present while the disk fails, and until a line has reported all that was not written.
    failure: Option<Failure>,
    /// Why changes that may add refusals wait, although the disk works.
    barred: Option<&'static str>,
    /// True from a write that takes too long until it, or a later one, ends.
    hangs: bool,
    /// Lines written by this process.
    written: u64,
}

#[derive(Clone, Debug)]
struct Failure {
    reason: String,
    since_s: i64,
    /// Lines that are never written, refused commands and lines without room, as far as no line has reported them.
    unwritten: u64,
}

/// What one write takes.
struct Batch {
    /// The failure that it ends, which its first line reports.
    failure: Option<Failure>,
    kept: Vec<Record>,
    /// The line of a command that waits for it, the last one.
    awaited: Option<Record>,
}

/// A change that is recorded durably, and may be made now.
#[derive(Debug)]
#[must_use]
pub(crate) struct Logged {
    log: AuditLog,
    record: Record,
    seq: u64,
}

/// Why a change that may add refusals may not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotLogged {
    /// It could not be recorded.
    #[error(
        "refused, because it may add refusals and the audit log cannot be written: {0}; free or mend the disk of the state \
         directory (--state-dir), then try again. Kills, aborts and returns to shadow work without the log"
    )]
    Disk(String),
    /// The lead of this controller is not confirmed.
    #[error(
        "refused, because it may add refusals and {0}. Kills, aborts and returns to shadow work without it"
    )]
    Barred(&'static str),
}

// === impl AuditLog ===

impl AuditLog {
    /// Opens the log in a state directory, which this process must have locked, and repairs what a crash left.
    /// Blocks. A log that cannot be opened is tried again with each write.
    pub(crate) fn open(directory: &Path, shared: Option<Arc<SharedLines>>) -> Self {
        let inner = Inner {
            directory: directory.to_owned(),
            shared,
            writer: Mutex::new(Writer::new(directory)),
            state: Mutex::default(),
            wake: Notify::new(),
            changes: watch::Sender::new(()),
        };
        let log = Self {
            inner: Arc::new(inner),
        };
        // A failure is logged, and kept for the commands.
        let _ = log.write(None);
        log
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.inner.directory
    }

    pub(crate) fn shared(&self) -> Option<&Arc<SharedLines>> {
        self.inner.shared.as_ref()
    }

    /// Records a change before it is made. Waits for the disk at most [`LINE_MAX`].
    ///
    /// # Errors
    /// When the line is not on disk. The change must not be made then.
    pub(crate) async fn record(&self, actor: Actor, entry: Entry) -> Result<Logged, NotLogged> {
        if let Some(reason) = self.state().barred {
            return Err(NotLogged::Barred(reason));
        }
        let record = Record::new(unix_s(), actor, entry);
        if self.state().hangs {
            self.state().count_unwritten();
            return Err(NotLogged::Disk(no_answer()));
        }
        let (answer, mut answered) = oneshot::channel();
        let (log, line) = (self.clone(), record.clone());
        spawn_blocking(move || {
            if let Err(Ok(seq)) = answer.send(log.write(Some(line.clone()))) {
                log.deny(&line, seq, "the audit log did not answer in time");
            }
        });
        let written = match timeout(LINE_MAX, &mut answered).await {
            Ok(written) => written.ok(),
            Err(_) => {
                // From now on the writer adds a line that the change was not made.
                answered.close();
                answered.try_recv().ok()
            }
        };
        let written = written.unwrap_or_else(|| {
            self.on_failure(no_answer(), true);
            Err(no_answer())
        });
        written
            .map(|seq| Logged {
                log: self.clone(),
                record,
                seq,
            })
            .map_err(NotLogged::Disk)
    }

    /// Records a change before it is made. Blocks.
    ///
    /// # Errors
    /// When the line is not on disk. The change must not be made then.
    pub(crate) fn record_at_start(&self, actor: Actor, entry: Entry) -> Result<Logged, NotLogged> {
        let record = Record::new(unix_s(), actor, entry);
        let seq = self.write(Some(record.clone())).map_err(NotLogged::Disk)?;
        Ok(Logged {
            log: self.clone(),
            record,
            seq,
        })
    }

    /// Records a change that is made whether or not the disk works. Never waits. Returns the number to wait for
    /// with [`settled`](Self::settled).
    pub(crate) fn note(&self, actor: Actor, entry: Entry) -> u64 {
        self.note_record(Record::new(unix_s(), actor, entry))
    }

    fn note_record(&self, record: Record) -> u64 {
        let number = {
            let mut state = self.state();
            state.noted += 1;
            if state.kept.len() < KEPT_MAX {
                state.kept.push_back(record);
            } else {
                state.fail(format!("{KEPT_MAX} entries wait for the disk"));
                state.give_up();
            }
            state.noted
        };
        self.inner.wake.notify_one();
        number
    }

    /// Waits until a noted change is on disk, or until the disk fails.
    pub(crate) async fn settled(&self, number: u64) {
        self.wait_until(|state| state.settled >= number || state.failure.is_some())
            .await;
    }

    /// Waits until changes that may add refusals can be recorded.
    pub(crate) async fn writable(&self) {
        self.wait_until(|state| state.failure.is_none() && state.barred.is_none())
            .await;
    }

    /// Bars changes that may add refusals for a `reason`, or admits them again.
    pub(crate) fn bar(&self, reason: Option<&'static str>) {
        if std::mem::replace(&mut self.state().barred, reason) != reason {
            self.inner.changes.send_replace(());
        }
    }

    async fn wait_until(&self, is_reached: impl Fn(&State) -> bool) {
        let mut changes = self.inner.changes.subscribe();
        while !is_reached(&self.state()) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    pub(crate) fn is_failing(&self) -> bool {
        self.state().failure.is_some()
    }

    /// True if changes that may add refusals can be recorded.
    pub(crate) fn is_writable(&self) -> bool {
        let state = self.state();
        state.failure.is_none() && state.barred.is_none()
    }

    pub(crate) fn written(&self) -> u64 {
        self.state().written
    }

    /// Writes kept lines until `stop` is cancelled, and those that are kept then.
    pub(crate) async fn run(self, stop: CancellationToken) {
        loop {
            let is_failing = self.is_failing();
            tokio::select! {
                biased;
                // Before `stop`, so that the last lines are written.
                () = self.inner.wake.notified() => {}
                () = stop.cancelled() => return,
                () = sleep(RETRY_DELAY), if is_failing => {}
            }
            let log = self.clone();
            let mut writing = spawn_blocking(move || log.write(None));
            let ended = match timeout(LINE_MAX, &mut writing).await {
                Ok(ended) => ended,
                Err(_) => {
                    self.on_failure(no_answer(), true);
                    tokio::select! {
                        () = stop.cancelled() => return,
                        ended = writing => ended,
                    }
                }
            };
            // A failed write has noted that itself.
            if let Err(panic) = ended {
                self.on_failure(format!("the writer panicked: {panic}"), false);
            }
        }
    }

    /// Writes all kept lines, and then that of a command. Returns the number of the command's line; without a command
    /// the number means nothing. Blocks.
    fn write(&self, awaited: Option<Record>) -> Result<u64, String> {
        let mut writer = self
            .inner
            .writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let batch = self.state().take_batch(awaited);
        let lines = batch.lines();
        let last = (lines.len() as u64).saturating_sub(1);
        // After a panic the lines are still due.
        let append = AssertUnwindSafe(|| writer.append(&lines, unix_s()));
        match catch_unwind(append).unwrap_or_else(|_| Err(writer.on_panic())) {
            Ok(first) => {
                if let Some(shared) = &self.inner.shared {
                    shared.add(first, &lines);
                }
                self.on_written(&batch);
                Ok(first + last)
            }
            Err(error) => {
                let reason = error.to_string();
                self.on_failure(reason.clone(), false);
                match error.seq {
                    // The lines are in the log, and its head could not be replaced.
                    Some(first) => {
                        self.state().settle(&batch);
                        if let Some(line) = &batch.awaited {
                            self.deny(line, first + last, &reason);
                        }
                    }
                    None => {
                        let begins_attempts = batch.awaited.is_some();
                        self.state().return_batch(batch);
                        // The task sleeps, unless the write is its own.
                        if begins_attempts {
                            self.inner.wake.notify_one();
                        }
                    }
                }
                Err(reason)
            }
        }
    }

    fn on_written(&self, batch: &Batch) {
        let works_again = {
            let mut state = self.state();
            state.hangs = false;
            state.settle(batch);
            // Entries that were given up meanwhile are still to be reported.
            let is_over = |failure: &mut Failure| batch.failure.is_some() && failure.unwritten == 0;
            state.failure.take_if(is_over).is_some()
        };
        if works_again {
            tracing::info!("audit log write succeeds again");
        }
        self.inner.changes.send_replace(());
    }

    /// Notes that the disk fails; `hangs` if it does not answer.
    fn on_failure(&self, reason: String, hangs: bool) {
        let mut state = self.state();
        state.fail(reason);
        state.hangs = hangs;
        drop(state);
        self.inner.changes.send_replace(());
    }

    /// Notes that the change of a line in the log was not made.
    fn deny(&self, line: &Record, seq: u64, why: &str) {
        self.note_record(line.continued(unix_s(), seq, NOT_MADE, why.to_owned()));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    /// Notes that the disk fails. The first failure in a row is logged.
    fn fail(&mut self, reason: String) {
        if let Some(failure) = &mut self.failure {
            failure.reason = reason;
            return;
        }
        tracing::error!(
            error = reason,
            "audit log write failed: whatever may add refusals is refused until it succeeds, and kills work"
        );
        self.failure = Some(Failure {
            reason,
            since_s: unix_s(),
            unwritten: 0,
        });
    }

    fn take_batch(&mut self, awaited: Option<Record>) -> Batch {
        let failure = self.failure.clone();
        let mut kept: Vec<Record> = self.kept.drain(..).collect();
        kept.iter_mut()
            .for_each(|record| record.late = failure.is_some());
        Batch {
            failure,
            kept,
            awaited,
        }
    }

    /// Takes back what could not be written. A command is told so, and its line is not written later.
    fn return_batch(&mut self, batch: Batch) {
        for record in batch.kept.into_iter().rev() {
            self.kept.push_front(record);
        }
        // Lines that came during the write may leave no room for all.
        while self.kept.len() > KEPT_MAX {
            self.kept.pop_back();
            self.give_up();
        }
        if batch.awaited.is_some() {
            self.count_unwritten();
        }
    }

    /// Notes that a batch is in the log.
    fn settle(&mut self, batch: &Batch) {
        self.settled += batch.kept.len() as u64;
        self.written += batch.len() as u64;
        if let (Some(reported), Some(failure)) = (&batch.failure, &mut self.failure) {
            failure.unwritten = failure.unwritten.saturating_sub(reported.unwritten);
        }
    }

    /// Counts a line that is settled without being written.
    fn give_up(&mut self) {
        self.settled += 1;
        self.count_unwritten();
    }

    fn count_unwritten(&mut self) {
        if let Some(failure) = &mut self.failure {
            failure.unwritten += 1;
        }
    }
}

// === impl Batch ===

impl Batch {
    fn len(&self) -> usize {
        usize::from(self.failure.is_some()) + self.kept.len() + usize::from(self.awaited.is_some())
    }

    fn lines(&self) -> Vec<Record> {
        let resumed = self.failure.as_ref().map(Failure::resumed);
        let records = self.kept.iter().chain(&self.awaited).cloned();
        resumed.into_iter().chain(records).collect()
    }
}

impl Failure {
    fn resumed(&self) -> Record {
        let entry = Entry {
            what: "audit log resumed".to_owned(),
            before: format!("not written since {}", UnixSeconds::from_secs(self.since_s)),
            after: format!("{} entries were not written", self.unwritten),
            why: self.reason.clone(),
        };
        Record::new(unix_s(), Actor::controller("controller", ""), entry)
    }
}

// === impl Logged ===

impl Logged {
    /// Notes that the change was not made.
    pub(crate) fn refused(self, why: impl ToString) {
        self.log.deny(&self.record, self.seq, &why.to_string());
    }

    /// Notes what the change led to.
    pub(crate) fn continued(self, after: &str, why: String) {
        self.log
            .note_record(self.record.continued(unix_s(), self.seq, after, why));
    }
}

fn no_answer() -> String {
    format!("no answer from the disk within {} s", LINE_MAX.as_secs())
}
