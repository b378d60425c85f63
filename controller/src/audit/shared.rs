//! The latest lines of all leaders, in the store that several controllers share: the next leader answers with them what
//! earlier ones recorded. The chain of hashes stays in the files of each member.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_etcd::Operation;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::line::Record;
use crate::state::store::StoreError;
use crate::state::store::etcd::EtcdStore;

/// The keys of batches of lines begin with this.
const PREFIX: &str = "audit/";
/// Maximum number of lines in the store.
pub(super) const SHARED_LINES_MAX: usize = 10_000;
/// Maximum size of all lines in the store, in bytes.
const SHARED_BYTES_MAX: usize = 8 << 20;
/// Maximum size of the lines of one write, in bytes, unless it is a single one.
const BATCH_BYTES_MAX: usize = 256 << 10;
/// Maximum number of batches that one write deletes, because a transaction is bounded.
const DELETES_MAX: usize = 100;
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// A line as it is shown.
#[derive(Debug, Serialize, Deserialize)]
pub struct ShownLine {
    /// The admin address of the member that wrote it, if several controllers share a store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// The number of the line in the files of its controller.
    pub seq: u64,
    /// The content.
    #[serde(flatten)]
    pub record: Record,
    /// The hash in the files of its controller; `None` for a line from the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
}

/// The lines in the store, and those that wait for it.
#[derive(Debug)]
pub(crate) struct SharedLines {
    store: Arc<EtcdStore>,
    member: String,
    lines: Mutex<Lines>,
    added: Notify,
}

#[derive(Debug, Default)]
struct Lines {
    saved: VecDeque<Batch>,
    /// The batch that is being written. It is written again after a failure: the answer may have been lost.
    writing: Option<Batch>,
    unsaved: VecDeque<String>,
    /// Number of batches that this leader has made.
    batches: u64,
}

#[derive(Clone, Debug)]
struct Batch {
    key: String,
    lines: Vec<String>,
}

// === impl SharedLines ===

impl SharedLines {
    /// Reads the lines of earlier leaders. If they cannot be read, the list begins anew, and the store keeps them for the
    /// next leader.
    pub(crate) async fn open(store: Arc<EtcdStore>, member: String) -> Self {
        let saved = match store.list(PREFIX, SHARED_LINES_MAX as u64).await {
            Ok(batches) => batches
                .iter()
                .map(|batch| Batch {
                    key: String::from_utf8_lossy(&batch.key).into_owned(),
                    lines: String::from_utf8_lossy(&batch.value)
                        .split_inclusive('\n')
                        .map(str::to_owned)
                        .collect(),
                })
                .collect(),
            Err(error) => {
                tracing::error!(%error, "audit lines of earlier leaders not read: only those of this one are shown");
                VecDeque::new()
            }
        };
        Self {
            store,
            member,
            lines: Mutex::new(Lines {
                saved,
                ..Lines::default()
            }),
            added: Notify::new(),
        }
    }

    /// Adds lines that are in the files of this controller, where the first has the number `first_seq`.
    pub(super) fn add(&self, first_seq: u64, records: &[Record]) {
        let lines = (first_seq..).zip(records).filter_map(|(seq, record)| {
            let line = ShownLine {
                member: Some(self.member.clone()),
                seq,
                record: record.clone(),
                hash: None,
            };
            let line = serde_json::to_string(&line).ok()?;
            Some(line + "\n")
        });
        self.lines().queue(lines);
        self.added.notify_one();
    }

    /// Returns the latest lines, the oldest first.
    pub(crate) fn latest(&self, count: usize) -> Vec<String> {
        let held = self.lines();
        let batches = held.saved.iter().chain(&held.writing);
        let lines = batches.flat_map(|batch| &batch.lines);
        let all: Vec<&String> = lines.chain(&held.unsaved).collect();
        let latest = all.iter().skip(all.len().saturating_sub(count));
        latest.copied().cloned().collect()
    }

    /// Saves lines until `stop` is cancelled, and then those that are left, unless the store fails.
    pub(crate) async fn run(&self, stop: CancellationToken) {
        let mut is_failing = false;
        loop {
            let is_stopped = stop.is_cancelled();
            match self.save().await {
                Ok(()) if std::mem::take(&mut is_failing) => {
                    tracing::info!("audit lines are in the store again");
                }
                Ok(()) => {}
                Err(error) if !std::mem::replace(&mut is_failing, true) => {
                    tracing::error!(%error, "audit lines not in the store: the next leader misses them unless this succeeds");
                }
                Err(_) => {}
            }
            if is_stopped && (is_failing || self.lines().unsaved.is_empty()) {
                return;
            }
            let waits = async {
                sleep(SAVE_EVERY).await;
                if !is_failing {
                    self.added.notified().await;
                }
            };
            stop.run_until_cancelled(waits).await;
        }
    }

    async fn save(&self) -> Result<(), StoreError> {
        let Some((batch, replaced)) = self.lines().next(self.store.lead()) else {
            return Ok(());
        };
        let put = Operation::put(batch.key.clone(), batch.lines.concat(), None);
        let deletes = replaced.iter().cloned().map(Operation::delete);
        self.store.write(Vec::new(), deletes.chain([put])).await?;
        let mut held = self.lines();
        held.on_saved(replaced.len());
        if !held.unsaved.is_empty() {
            self.added.notify_one();
        }
        Ok(())
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Lines ===

impl Lines {
    /// Returns the batch to write for the leader with the number `lead`, and the keys of the oldest batches, which leave
    /// room for it.
    fn next(&mut self, lead: u64) -> Option<(Batch, Vec<String>)> {
        self.writing = self.writing.take().or_else(|| self.take_batch(lead));
        let batch = self.writing.clone()?;
        let (mut count, mut bytes) = batch.size();
        let fits = |older: &&Batch| {
            let (older_count, older_bytes) = older.size();
            count += older_count;
            bytes += older_bytes;
            count <= SHARED_LINES_MAX && bytes <= SHARED_BYTES_MAX
        };
        let kept = self.saved.iter().rev().take_while(fits).count();
        let replaced = (self.saved.len() - kept).min(DELETES_MAX);
        let replaced = self.saved.iter().take(replaced);
        let replaced = replaced.map(|batch| batch.key.clone()).collect();
        Some((batch, replaced))
    }

    fn take_batch(&mut self, lead: u64) -> Option<Batch> {
        let mut bytes = 0;
        let fits = |line: &&String| {
            bytes += line.len();
            bytes <= BATCH_BYTES_MAX || bytes == line.len()
        };
        let count = self.unsaved.iter().take_while(fits).count();
        if count == 0 {
            return None;
        }
        // Later leaders have larger numbers, so that keys are in the order of their lines.
        let key = format!("{PREFIX}{lead:016x}-{:08x}", self.batches);
        self.batches += 1;
        let lines = self.unsaved.drain(..count).collect();
        Some(Batch { key, lines })
    }

    /// Notes that the batch is in the store, in the place of the oldest ones.
    fn on_saved(&mut self, replaced: usize) {
        self.saved.drain(..replaced);
        self.saved.extend(self.writing.take());
    }

    /// Adds lines that wait for the store, and drops the oldest ones beyond the bound.
    fn queue(&mut self, lines: impl IntoIterator<Item = String>) {
        self.unsaved.extend(lines);
        let excess = self.unsaved.len().saturating_sub(SHARED_LINES_MAX);
        self.unsaved.drain(..excess);
    }
}

// === impl Batch ===

impl Batch {
    /// Returns the number of its lines, and their bytes.
    fn size(&self) -> (usize, usize) {
        let bytes = self.lines.iter().map(String::len).sum();
        (self.lines.len(), bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::{Actor, Entry};
    use super::*;
    use crate::state::store::tests::etcd::{client, elect};

    fn record(what: &str) -> Record {
        let entry = Entry {
            what: what.to_owned(),
            ..Entry::default()
        };
        Record::new(0, Actor::controller("gate", ""), entry)
    }

    fn stored(lines: &mut Lines, count: usize, bytes: usize) {
        lines.queue((0..count).map(|_| "x".repeat(bytes)));
        while let Some((_, replaced)) = lines.next(7) {
            lines.on_saved(replaced.len());
        }
    }

    #[test]
    fn lines_batches_and_bytes_are_bounded() {
        let mut lines = Lines::default();
        lines.queue((0..SHARED_LINES_MAX + 5).map(|n| n.to_string()));
        assert_eq!(
            (lines.unsaved.len(), lines.unsaved[0].as_str()),
            (SHARED_LINES_MAX, "5")
        );
        for (count, bytes) in [
            (SHARED_LINES_MAX, 300),
            (100, 30_000),
            (400, BATCH_BYTES_MAX + 1),
        ] {
            stored(&mut lines, count, bytes);
            let sizes: Vec<(usize, usize)> = lines.saved.iter().map(Batch::size).collect();
            assert!(
                sizes
                    .iter()
                    .all(|(lines, bytes)| *lines == 1 || *bytes <= BATCH_BYTES_MAX)
            );
            let lines: usize = sizes.iter().map(|(lines, _)| lines).sum();
            let bytes: usize = sizes.iter().map(|(_, bytes)| bytes).sum();
            assert!(
                lines <= SHARED_LINES_MAX && bytes <= SHARED_BYTES_MAX,
                "{lines} {bytes}"
            );
        }
        assert!(
            lines
                .saved
                .iter()
                .is_sorted_by_key(|batch| batch.key.clone())
        );
    }

    #[test]
    fn unanswered_batch_is_written_again_alone() {
        let mut lines = Lines::default();
        lines.queue(["a".to_owned()]);
        let (first, _) = lines.next(7).unwrap();
        lines.queue(["b".to_owned()]);
        let (again, _) = lines.next(7).unwrap();
        assert_eq!((again.key, again.lines), (first.key, first.lines));
        lines.on_saved(0);
        assert_eq!(lines.next(7).unwrap().0.lines, ["b"]);
    }

    #[tokio::test]
    async fn next_leader_shows_earlier_lines() {
        let Some(server) = plimsoll_testing::etcd::start("next_leader_shows_earlier_lines", &[])
        else {
            return;
        };
        let client = client(&server).await;
        let stopped = CancellationToken::new();
        stopped.cancel();
        let (first, _) = elect(&client).await;
        let first = SharedLines::open(first, "a".to_owned()).await;
        first.add(4, &[record("kill on"), record("kill off")]);
        first.run(stopped.clone()).await;
        let (second, _) = elect(&client).await;
        // The first one leads no more: its later lines stay in its own files.
        first.add(6, &[record("lost")]);
        first.run(stopped.clone()).await;
        let second = SharedLines::open(second, "b".to_owned()).await;
        second.add(1, &[record("promote")]);
        let lines = second.latest(2);
        let shown = lines.iter().map(|line| {
            let line: ShownLine = serde_json::from_str(line).unwrap();
            format!("{} {} {}", line.member.unwrap(), line.seq, line.record.what)
        });
        assert_eq!(shown.collect::<Vec<_>>(), ["a 5 kill off", "b 1 promote"]);
    }
}
