//! The audit log of a running controller: takes entries from commands and tasks, and writes them off their way.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::line::{Actor, Entry, Record};
use super::queue::{NOT_MADE, Outcome, Queue};
use super::writer::Writer;
use crate::tasks::unix_s;

#[cfg(test)]
mod tests;

/// The longest time that a command waits for its line. A disk that takes longer counts as failing.
const LINE_MAX: Duration = Duration::from_secs(2);
/// The delay between a failed write and the next one, unless a command comes first.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The audit log. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct AuditLog {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    directory: PathBuf,
    writer: Mutex<Writer>,
    queue: Mutex<Queue>,
    /// Wakes the task that writes.
    wake: Notify,
    /// Notified whenever entries were written or the disk began to fail.
    changes: watch::Sender<()>,
}

/// A change that is recorded durably, and may be made now.
#[derive(Debug)]
#[must_use]
pub(crate) struct Logged {
    log: AuditLog,
    record: Record,
    seq: u64,
}

/// Why a change may not be made: it could not be recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "refused, because it may add refusals and the audit log cannot be written: {0}; free or mend the disk of the state \
     directory (--state-dir), then try again. Kills, aborts and returns to shadow work without the log"
)]
pub(crate) struct NotLogged(pub(crate) String);

// === impl AuditLog ===

impl AuditLog {
    /// Opens the log in a state directory, which this process must have locked, and repairs what a crash left.
    /// Blocks. A log that cannot be opened is tried again.
    pub(crate) fn open(directory: &Path) -> Self {
        let inner = Inner {
            directory: directory.to_owned(),
            writer: Mutex::new(Writer::new(directory)),
            queue: Mutex::default(),
            wake: Notify::new(),
            changes: watch::Sender::new(()),
        };
        let log = Self { inner: Arc::new(inner) };
        log.write_batch();
        log
    }

    /// The directory of the log.
    pub(crate) fn directory(&self) -> &Path {
        &self.inner.directory
    }

    /// Records a change before it is made. Waits for the disk at most [`LINE_MAX`].
    ///
    /// # Errors
    /// When the line is not on disk. The change must not be made then.
    pub(crate) async fn record(&self, actor: Actor, entry: Entry) -> Result<Logged, NotLogged> {
        let record = Record::new(unix_s(), actor, entry);
        let mut answer = self.queue().await_line(record.clone());
        self.inner.wake.notify_one();
        let answered = match timeout(LINE_MAX, &mut answer).await {
            Ok(answered) => answered.ok(),
            Err(_) => {
                // From now on the writer adds a line that the change was not made.
                answer.close();
                answer.try_recv().ok()
            }
        };
        self.logged(record, answered)
    }

    /// Records a change before it is made, without the task that writes. Blocks.
    ///
    /// # Errors
    /// When the line is not on disk. The change must not be made then.
    pub(crate) fn record_at_start(&self, actor: Actor, entry: Entry) -> Result<Logged, NotLogged> {
        let record = Record::new(unix_s(), actor, entry);
        let mut answer = self.queue().await_line(record.clone());
        self.write_batch();
        self.logged(record, answer.try_recv().ok())
    }

    fn logged(&self, record: Record, answered: Option<Result<u64, String>>) -> Result<Logged, NotLogged> {
        let seq = answered.unwrap_or_else(|| Err(no_answer())).map_err(NotLogged)?;
        Ok(Logged { log: self.clone(), record, seq })
    }

    /// Records a change that is made whether or not the disk works. Never waits. Returns the number to wait for
    /// with [`settled`](Self::settled).
    pub(crate) fn note(&self, actor: Actor, entry: Entry) -> u64 {
        self.note_record(Record::new(unix_s(), actor, entry))
    }

    fn note_record(&self, record: Record) -> u64 {
        let number = self.queue().note(record);
        self.inner.wake.notify_one();
        number
    }

    /// Waits until a noted change is on disk, or until the disk fails.
    pub(crate) async fn settled(&self, number: u64) {
        self.wait_until(|queue| queue.has_settled(number)).await;
    }

    /// Waits until the disk works.
    pub(crate) async fn writable(&self) {
        self.wait_until(|queue| queue.failure().is_none()).await;
    }

    async fn wait_until(&self, is_reached: impl Fn(&Queue) -> bool) {
        let mut changes = self.inner.changes.subscribe();
        while !is_reached(&self.queue()) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns why the log cannot be written, if it cannot.
    pub(crate) fn failure(&self) -> Option<NotLogged> {
        self.queue().failure().map(|reason| NotLogged(reason.to_owned()))
    }

    /// Returns the number of lines written since the start.
    pub(crate) fn written(&self) -> u64 {
        self.queue().written
    }

    /// Writes what is recorded, until `stop` is cancelled.
    pub(crate) async fn run(self, stop: CancellationToken) {
        loop {
            let is_failing = self.queue().failure().is_some();
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.inner.wake.notified() => {}
                () = sleep(RETRY_DELAY), if is_failing => {}
            }
            let log = self.clone();
            let mut writing = spawn_blocking(move || log.write_batch());
            if timeout(LINE_MAX, &mut writing).await.is_ok() {
                continue;
            }
            self.fail(no_answer());
            tokio::select! {
                () = stop.cancelled() => return,
                written = writing => if let Err(error) = written {
                    self.fail(format!("the write panicked: {error}"));
                },
            }
        }
    }

    /// Writes the next entries. Blocks.
    fn write_batch(&self) {
        let batch = self.queue().take_batch(unix_s());
        let records: Vec<Record> = batch.iter().map(|waiting| waiting.record.clone()).collect();
        let appended =
            self.inner.writer.lock().unwrap_or_else(PoisonError::into_inner).append(&records, unix_s());
        let is_written = appended.is_ok();
        let outcome = match appended {
            Ok(seq) => Outcome::Written(seq),
            Err(error) => Outcome::Failed { seq: error.seq, reason: error.to_string() },
        };
        let (was_failing, is_failing, has_more) = {
            let mut queue = self.queue();
            let was_failing = queue.failure().is_some();
            queue.on_outcome(batch, &outcome, unix_s());
            (was_failing, queue.failure().map(str::to_owned), queue.has_more(is_written))
        };
        match is_failing {
            Some(error) if !was_failing => log_failure(&error),
            None if was_failing => tracing::info!("audit log write succeeds again"),
            _ => {}
        }
        self.inner.changes.send_replace(());
        if has_more {
            self.inner.wake.notify_one();
        }
    }

    fn fail(&self, reason: String) {
        let was_failing = {
            let mut queue = self.queue();
            let was_failing = queue.failure().is_some();
            queue.fail(reason.clone(), unix_s());
            was_failing
        };
        if !was_failing {
            log_failure(&reason);
        }
        self.inner.changes.send_replace(());
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.inner.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Logged ===

impl Logged {
    /// Records that the change was not made after all.
    pub(crate) fn refused(self, why: impl ToString) {
        self.continued(NOT_MADE, why.to_string());
    }

    /// Records what became of the change.
    pub(crate) fn continued(self, after: &str, why: String) {
        let record = self.record.continued(unix_s(), self.seq, after, why);
        self.log.note_record(record);
    }
}

fn log_failure(error: &str) {
    tracing::error!(
        error,
        "audit log write failed: whatever may add refusals is refused until it succeeds, and kills work"
    );
}

fn no_answer() -> String {
    format!("no answer from the disk within {} s", LINE_MAX.as_secs())
}
