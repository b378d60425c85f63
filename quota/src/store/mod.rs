//! The buckets on disk, and the interface for the engine.
//!
//! A data directory holds `format` (the version of everything in it), `lock`, `clock` (see
//! `crate::clock`), `store` (the database), and `synced`: the number of the last commit that was on
//! disk. Each commit carries its number as a row, so a database that lost a part of its end is
//! noticed, and refused instead of granting those tokens again.

mod database;
mod directory;
mod error;
mod expiry;
mod journals;
mod log;
mod opened;
mod row;
#[cfg(test)]
mod tests;
mod versions;

pub(crate) use database::{DatabaseStore, Sizes};
pub(crate) use error::{OpenError, StoreError, caught};
pub(crate) use row::{Kind, Row, RowKey, State};

use std::time::Duration;

/// Rows to write, for a commit or to settle them: a key and a value each, or no value to remove the
/// row.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    bytes: Vec<u8>,
    rows: Vec<Span>,
}

/// Where a row is in `bytes`.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: usize,
    key_end: usize,
    end: usize,
    /// Eight bytes of the key after the beginning that all keys share, to sort by.
    beginning: u64,
}

impl Rows {
    pub(crate) fn push(&mut self, key: &[u8], row: Option<&Row>) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        if let Some(row) = row {
            row.encode(&mut self.bytes);
        }
        self.rows.push(Span {
            from,
            key_end,
            end: self.bytes.len(),
            beginning: 0,
        });
    }

    /// Sorts the rows by their keys: the store writes them several times as fast.
    pub(crate) fn sort(&mut self) {
        let Self { bytes, rows } = self;
        let key = |row: &Span| bytes.get(row.from..row.key_end).unwrap_or_default();
        let first = rows.first().map(key).unwrap_or_default();
        let shared_by = |row: &Span| {
            first
                .iter()
                .zip(key(row))
                .take_while(|(a, b)| a == b)
                .count()
        };
        // Keys often begin alike: the eight bytes after that decide nearly every comparison.
        let shared = rows.iter().map(shared_by).min().unwrap_or(0);
        let beginning = |row: &Span| {
            let rest = key(row).get(shared..).unwrap_or_default();
            let mut beginning = [0; 8];
            beginning
                .iter_mut()
                .zip(rest)
                .for_each(|(to, from)| *to = *from);
            u64::from_be_bytes(beginning)
        };
        rows.iter_mut()
            .for_each(|row| row.beginning = beginning(row));
        rows.sort_unstable_by(|a, b| {
            a.beginning
                .cmp(&b.beginning)
                .then_with(|| key(a).cmp(key(b)))
        });
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
    }

    pub(crate) const fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the keys and values; the value of a removed row is empty.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.rows.iter().map(|row| {
            (
                &self.bytes[row.from..row.key_end],
                &self.bytes[row.key_end..row.end],
            )
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Committed {
    /// Bytes added to the log.
    pub(crate) bytes: u64,
    /// Time of the synchronisation with the disk.
    pub(crate) sync: Duration,
}

/// A store of rows. All its functions block.
pub(crate) trait Store: std::fmt::Debug + Send + Sync {
    /// Returns the settled row of a bucket; `None` if it has none, as a full bucket.
    fn get(&self, key: &[u8]) -> Result<Option<Row>, StoreError>;

    /// Writes changes to the log as the commit of this number, which is above all earlier ones, and
    /// calls `pause` between its parts. All are on disk when this returns; after an error some may be.
    /// [`Store::get`] and [`Store::scan`] do not see them.
    fn commit(
        &self,
        number: u64,
        rows: &Rows,
        pause: &mut dyn FnMut(),
    ) -> Result<Committed, StoreError>;

    /// Writes rows to the place that [`Store::get`] and [`Store::scan`] read.
    fn settle(&self, rows: &Rows) -> Result<(), StoreError>;

    /// Drops the commits up to this number, whose changes are settled, from the log.
    fn forget(&self, number: u64) -> Result<(), StoreError>;

    /// Returns the rows above `after` that begin with `prefix`, in order.
    fn scan(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(RowKey, Row)>, StoreError>;

    /// Closes the store and opens it again, which settles all changes in the log.
    fn reopen(&self) -> Result<(), StoreError>;

    /// Removes the rows of full buckets.
    fn sweep(&self) -> Result<(), StoreError>;

    /// Returns the size of the files; 0 if it is unknown, as while the store is closed.
    fn disk_bytes(&self) -> u64;
}
