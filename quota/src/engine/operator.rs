//! Operations on buckets for operators: look up a key, list pages, find the busiest keys, and
//! reset.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::Engine;
use super::shard::place::Moment;
use super::shared::Shared;
use crate::operation::Unavailable;
use crate::store::{Kind, Row, RowKey, State};

pub(super) const PAGE_MAX: usize = 1_000;

const OPERATOR_DEADLINE: Duration = Duration::from_secs(5);

const UNLISTED: &str = "buckets cannot be listed";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub(crate) key: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) state: State,
}

/// Items, and the end of the page if more may follow.
type Page<T> = (Vec<T>, Option<Vec<u8>>);

impl Engine {
    /// Returns all buckets of one key, at most twice [`PAGE_MAX`].
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn get(&self, key: &[u8]) -> Result<Vec<Bucket>, Unavailable> {
        let deadline = Instant::now() + OPERATOR_DEADLINE;
        self.settle(deadline).await?;
        let (rows, _) = self.rows_of(key, None, deadline).await?;
        Ok(self.buckets(&rows))
    }

    /// Returns a page of the buckets of keys with `prefix`, after the end of an earlier page.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn list(
        &self,
        prefix: &[u8],
        after: Option<Vec<u8>>,
        limit: usize,
    ) -> Result<Page<Bucket>, Unavailable> {
        let limit = limit.clamp(1, PAGE_MAX);
        let deadline = Instant::now() + OPERATOR_DEADLINE;
        self.settle(deadline).await?;
        let prefix = prefix.to_vec();
        let scan = move |shared: &Shared| page(shared, &prefix, after.as_deref(), limit);
        let (rows, next) = self.blocking(deadline, UNLISTED, scan).await?;
        Ok((self.buckets(&rows), next))
    }

    /// Makes all buckets of one key full again, and returns their number. It is on disk when this
    /// returns.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn reset(&self, now_ms: u64, key: &[u8]) -> Result<u64, Unavailable> {
        let deadline = Instant::now() + OPERATOR_DEADLINE;
        self.settle(deadline).await?;
        let (mut count, mut after) = (0, None);
        loop {
            let (rows, next) = self.rows_of(key, after, deadline).await?;
            for (row_key, _) in &rows {
                self.reset_row(row_key, now_ms, deadline).await?;
            }
            count += rows.len() as u64;
            after = next;
            if after.is_none() {
                break;
            }
        }
        self.save(deadline).await?;
        Ok(count)
    }

    /// Resets a bucket in memory, where it is read first if necessary.
    async fn reset_row(
        &self,
        row_key: &RowKey,
        now_ms: u64,
        deadline: Instant,
    ) -> Result<(), Unavailable> {
        let place = self.shared.place(row_key.clone());
        while Instant::now() < deadline {
            {
                let mut shard = self.shared.lock(place.shard);
                if let Some(slot) = shard.find(&place)
                    && let Some(entry) = shard.entry_mut(slot)
                {
                    entry.set(None, now_ms, now_ms);
                    let mut moment = Moment::new(now_ms);
                    moment.note_commit(shard.set_changed(slot));
                    self.shared.note(&moment);
                    return Ok(());
                }
            }
            if !self.read(vec![place.clone()], deadline).await? {
                self.settle(deadline).await?;
            }
        }
        Err(Unavailable::Busy)
    }

    /// Returns the keys and counts of up to `n` buckets with the most requests, and of up to `n` with
    /// the most refusals. Counts halve each minute. Only buckets in memory count, which include all
    /// busy ones.
    pub(crate) fn top(&self, n: usize) -> [Vec<(Vec<u8>, u32)>; 2] {
        let minute = Moment::new(self.shared.clock.load(Ordering::Relaxed)).minute;
        let mut tops: [Vec<(u32, Box<[u8]>)>; 2] = Default::default();
        for shard in 0..self.shared.shards.len() {
            let shard = self.shared.lock(shard);
            for entry in shard.entries() {
                let (asked, refused) = entry.counts(minute);
                for (top, count) in tops.iter_mut().zip([asked, refused]) {
                    top.extend((count > 0).then(|| (count, entry.key.clone())));
                }
            }
            drop(shard);
            for top in &mut tops {
                top.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
                top.truncate(n);
            }
        }
        let named =
            |(count, row_key): (u32, Box<[u8]>)| Some((Kind::parse(&row_key)?.0.to_vec(), count));
        tops.map(|top| top.into_iter().filter_map(named).collect())
    }

    /// Saves all changes.
    pub(crate) async fn close(&self) -> Result<(), Unavailable> {
        self.save(Instant::now() + OPERATOR_DEADLINE).await?;
        Ok(())
    }

    /// Saves all changes so far, and returns the number of the commit that did.
    async fn save(&self, deadline: Instant) -> Result<u64, Unavailable> {
        let number = self.shared.progress.next();
        self.shared.want_commit();
        self.shared.progress.wait(number, deadline).await?;
        Ok(number)
    }

    /// Saves all changes so far, and writes them to the rows that the store reads and lists.
    async fn settle(&self, deadline: Instant) -> Result<(), Unavailable> {
        let number = self.save(deadline).await?;
        self.shared.settling.wait(number, deadline).await
    }

    /// Returns rows of one key, at most twice [`PAGE_MAX`]. Rows of other keys lie between them:
    /// keys are any bytes.
    async fn rows_of(
        &self,
        key: &[u8],
        mut after: Option<Vec<u8>>,
        deadline: Instant,
    ) -> Result<Page<(RowKey, Row)>, Unavailable> {
        let (key, prefix) = (key.to_vec(), Kind::prefix(key));
        let scan = move |shared: &Shared| {
            let mut found = Vec::new();
            loop {
                let (rows, next) = page(shared, &prefix, after.as_deref(), PAGE_MAX)?;
                let is_of_key = |(row_key, _): &(RowKey, Row)| {
                    Kind::parse(row_key).is_some_and(|(of, _)| of == key.as_slice())
                };
                found.extend(rows.into_iter().filter(is_of_key));
                after = next;
                // The caller has given up after the deadline.
                if found.len() >= PAGE_MAX || after.is_none() || Instant::now() >= deadline {
                    return Ok((found, after));
                }
            }
        };
        self.blocking(deadline, UNLISTED, scan).await
    }

    /// Returns buckets with their states in memory, if present. Skips a bucket that was reset since
    /// its row was read.
    fn buckets(&self, rows: &[(RowKey, Row)]) -> Vec<Bucket> {
        let bucket = |(row_key, row): &(RowKey, Row)| {
            let (key, kind) = Kind::parse(row_key)?;
            let place = self.shared.place(row_key.clone());
            let shard = self.shared.lock(place.shard);
            let entry = shard.find(&place).and_then(|slot| shard.entry(slot));
            let state = entry.map_or(Some(row.state), |entry| entry.state)?;
            Some(Bucket {
                key: key.to_vec(),
                kind,
                state,
            })
        };
        rows.iter().filter_map(bucket).collect()
    }
}

/// Returns the rows of the store above `after` whose keys begin with `prefix`, in order.
fn page(
    shared: &Shared,
    prefix: &[u8],
    after: Option<&[u8]>,
    limit: usize,
) -> Result<Page<(RowKey, Row)>, crate::store::StoreError> {
    let rows = shared.store.scan(prefix, after, limit)?;
    let next = rows
        .last()
        .filter(|_| rows.len() == limit)
        .map(|(row_key, _)| row_key.to_vec());
    Ok((rows, next))
}
