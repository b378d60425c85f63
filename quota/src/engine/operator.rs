//! The buckets as operators see them: one key, pages in the order of the keys, the busiest, and back to full.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::quota::{Balance, Gcra, QuotaRate};
use tokio::time::Instant;

use super::Engine;
use super::reader::Loaded;
use super::shared::Moment;
use crate::operation::Unavailable;
use crate::store::{Kind, Row, RowKey, State, Store, StoreError};

/// The buckets of one page, at most.
pub const PAGE_MAX: usize = 1_000;
/// The entries of [`Engine::top`](super::Engine::top), at most.
pub const TOP_MAX: usize = 1_000;

/// The time for which an operator waits for the store.
const OPERATOR_DEADLINE: Duration = Duration::from_secs(5);

/// One bucket and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketState {
    /// The key.
    pub key: Vec<u8>,
    /// The kind of the bucket.
    pub kind: BucketKind,
}

/// The kind of a bucket, with its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketKind {
    /// A token bucket.
    Tokens {
        /// The parameters.
        rate: QuotaRate,
        /// The balance, refilled up to the time of the question by the server's clock.
        balance: Balance,
    },
    /// The state of `CL.THROTTLE`.
    Throttle {
        /// The state; its time is that of the server's clock in nanoseconds.
        gcra: Gcra,
    },
}

/// Some buckets, in the order of their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The buckets.
    pub entries: Vec<BucketState>,
    /// The place to go on from, opaque; `None` after the last bucket.
    pub next: Option<Vec<u8>>,
}

/// A busy bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopEntry {
    /// The key.
    pub key: Vec<u8>,
    /// The parameters of a token bucket; `None` for a throttle.
    pub rate: Option<QuotaRate>,
    /// The operations on it, in a count that halves each minute.
    pub asked: u64,
    /// Those that were refused, in a count that halves each minute.
    pub refused: u64,
}

impl Engine {
    /// Returns all buckets of one key, at most [`PAGE_MAX`].
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn get(&self, now_ms: u64, key: &[u8]) -> Result<Vec<BucketState>, Unavailable> {
        let deadline = Instant::now() + OPERATOR_DEADLINE;
        self.settle(deadline).await?;
        let (rows, _) = self.rows_of(key, None, deadline).await?;
        Ok(rows.iter().filter_map(|(row_key, row)| self.bucket(now_ms, row_key, row)).collect())
    }

    /// Returns a page of the buckets whose keys begin with `prefix`, after the place where an earlier page ended.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn list(
        &self,
        now_ms: u64,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Page, Unavailable> {
        let limit = limit.clamp(1, PAGE_MAX);
        let deadline = Instant::now() + OPERATOR_DEADLINE;
        self.settle(deadline).await?;
        let (prefix, after) = (prefix.to_vec(), after.map(<[u8]>::to_vec));
        let rows = self.blocking(deadline, move |store| store.scan(&prefix, after.as_deref(), limit)).await?;
        let next = rows.last().filter(|_| rows.len() == limit).map(|(row_key, _)| row_key.to_vec());
        let entries = rows.iter().filter_map(|(row_key, row)| self.bucket(now_ms, row_key, row)).collect();
        Ok(Page { entries, next })
    }

    /// Makes all buckets of one key full again, and returns their number. It is on disk when this returns.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn reset(&self, now_ms: u64, key: &[u8]) -> Result<u64, Unavailable> {
        let deadline = Instant::now() + OPERATOR_DEADLINE;
        self.settle(deadline).await?;
        let mut moment = Moment::new(now_ms);
        let (mut count, mut after) = (0, None);
        loop {
            let (rows, next) = self.rows_of(key, after, deadline).await?;
            for (row_key, _) in &rows {
                self.reset_row(row_key, &mut moment, deadline).await?;
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

    /// Makes a bucket full.
    async fn reset_row(
        &self,
        row_key: &RowKey,
        moment: &mut Moment,
        deadline: Instant,
    ) -> Result<(), Unavailable> {
        while !self.reset_in_memory(row_key, moment) {
            let place = self.shared.place(row_key.clone());
            match self.readers.load(vec![place], deadline).await? {
                Loaded::All => {}
                Loaded::Failed => return Err(Unavailable::Store),
                Loaded::Full => self.settle(deadline).await?,
            }
            if Instant::now() >= deadline {
                return Err(Unavailable::Busy);
            }
        }
        Ok(())
    }

    /// Returns the keys that were asked most, and those that were refused most, at most `n` of either. They are among the
    /// buckets in memory, which hold those that are used.
    pub fn top(&self, n: usize) -> (Vec<TopEntry>, Vec<TopEntry>) {
        let now_ms = self.shared.clock.load(std::sync::atomic::Ordering::Relaxed);
        let minute = Moment::new(now_ms).minute;
        let n = n.min(TOP_MAX);
        let (mut asked, mut refused) = (Vec::new(), Vec::new());
        for shard in 0..self.shared.shards.len() {
            let shard = self.shared.lock(shard);
            for entry in shard.entries() {
                let counts = entry.counts(minute);
                asked.extend((counts.0 > 0).then(|| (counts.0, counts, entry.key.clone())));
                refused.extend((counts.1 > 0).then(|| (counts.1, counts, entry.key.clone())));
            }
            keep_top(&mut asked, n);
            keep_top(&mut refused, n);
        }
        let entries = |top: Vec<Counted>| top.into_iter().filter_map(top_entry).collect();
        (entries(asked), entries(refused))
    }

    /// Saves all balances.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn close(&self) -> Result<(), Unavailable> {
        self.save(Instant::now() + OPERATOR_DEADLINE).await?;
        Ok(())
    }

    /// Waits until all changes so far are on disk, and returns the number of the commit.
    async fn save(&self, deadline: Instant) -> Result<u64, Unavailable> {
        let number = self.shared.progress.next();
        self.shared.want_commit();
        self.shared.progress.wait(number, deadline).await?;
        Ok(number)
    }

    /// Waits until all changes so far are where the store finds them.
    async fn settle(&self, deadline: Instant) -> Result<(), Unavailable> {
        let number = self.save(deadline).await?;
        self.shared.settling.wait(number, deadline).await
    }

    /// Returns rows of one key, at most twice [`PAGE_MAX`], and the place to go on from. Rows of other keys lie between them: keys
    /// are any bytes.
    async fn rows_of(
        &self,
        key: &[u8],
        after: Option<Vec<u8>>,
        deadline: Instant,
    ) -> Result<(Vec<(RowKey, Row)>, Option<Vec<u8>>), Unavailable> {
        let (key, prefix, until) = (key.to_vec(), Kind::prefix(key), deadline.into_std());
        let scan = move |store: &dyn Store| {
            let (mut found, mut after) = (Vec::new(), after);
            loop {
                let rows = store.scan(&prefix, after.as_deref(), PAGE_MAX)?;
                after = rows.last().filter(|_| rows.len() == PAGE_MAX).map(|(row_key, _)| row_key.to_vec());
                found.extend(
                    rows.into_iter().filter(|(row_key, _)| {
                        Kind::parse(row_key).is_some_and(|(of, _)| of == key.as_slice())
                    }),
                );
                // Nobody waits after the deadline.
                if found.len() >= PAGE_MAX || after.is_none() || std::time::Instant::now() >= until {
                    return Ok((found, after));
                }
            }
        };
        self.blocking(deadline, scan).await
    }

    /// Asks the store on a thread that may block.
    async fn blocking<T: Send + 'static>(
        &self,
        deadline: Instant,
        ask: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Unavailable> {
        let shared = Arc::clone(&self.shared);
        let asked = tokio::task::spawn_blocking(move || {
            ask(&*shared.store).inspect_err(|error| {
                shared.counters.failed();
                tracing::error!(%error, "buckets cannot be listed");
            })
        });
        let asked = tokio::time::timeout_at(deadline, asked).await;
        asked.ok().and_then(Result::ok).and_then(Result::ok).ok_or(Unavailable::Store)
    }

    /// Returns the state of a bucket: that in memory, if it is there.
    fn bucket(&self, now_ms: u64, row_key: &RowKey, row: &Row) -> Option<BucketState> {
        let (key, kind) = Kind::parse(row_key)?;
        let place = self.shared.place(row_key.clone());
        let shard = self.shared.lock(place.shard);
        let entry = shard.find(place.hash, row_key).and_then(|slot| shard.entry(slot));
        let kind = match (kind, entry.map_or(Some(row.state), |entry| entry.state)?) {
            (Kind::Tokens(rate), State::Tokens(balance)) => {
                BucketKind::Tokens { rate, balance: balance.refilled(rate, now_ms) }
            }
            (Kind::Throttle, State::Throttle(gcra)) => BucketKind::Throttle { gcra },
            _ => return None,
        };
        Some(BucketState { key: key.to_vec(), kind })
    }

    /// Makes a bucket full. Returns false if it is not in memory.
    fn reset_in_memory(&self, row_key: &RowKey, moment: &mut Moment) -> bool {
        let place = self.shared.place(row_key.clone());
        let mut shard = self.shared.lock(place.shard);
        let Some(slot) = shard.find(place.hash, row_key) else { return false };
        if let Some(entry) = shard.entry_mut(slot) {
            entry.set(None, moment.now_ms, moment.now_ms);
        }
        moment.note_commit(shard.set_changed(slot));
        self.shared.note(moment);
        true
    }
}

/// A count to sort by, both counts, and the key in the store.
type Counted = (u32, (u32, u32), Box<[u8]>);

fn keep_top(top: &mut Vec<Counted>, n: usize) {
    top.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.2.cmp(&b.2)));
    top.truncate(n);
}

fn top_entry((_, (asked, refused), row_key): Counted) -> Option<TopEntry> {
    let (key, kind) = Kind::parse(&row_key)?;
    let rate = match kind {
        Kind::Tokens(rate) => Some(rate),
        Kind::Throttle => None,
    };
    Some(TopEntry { key: key.to_vec(), rate, asked: asked.into(), refused: refused.into() })
}
