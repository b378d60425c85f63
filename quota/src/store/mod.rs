//! The buckets on disk, and what the engine asks of them.
//!
//! A data directory holds `format` (the version of all that follows), `lock`, `store` (the database), and `synced`: the number
//! of the last commit that was on disk. Each commit carries its number as a row, so a database that lost a part of its end is
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
pub(crate) use error::OpenError;
pub(crate) use error::{StoreError, caught};
pub(crate) use row::{Kind, Row, RowKey, State};

use std::time::Duration;

/// The rows of one commit: each a key and a value, or nothing to remove the row.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    bytes: Vec<u8>,
    rows: Vec<Place>,
}

/// The place of a row: its beginning, the end of its key and the end of its value.
#[derive(Clone, Copy, Debug)]
struct Place {
    from: usize,
    key_end: usize,
    end: usize,
    /// Bytes of the key that order it, as far as they do, while rows are sorted.
    beginning: u64,
}

impl Rows {
    /// Adds a row, or the removal of one.
    pub(crate) fn push(&mut self, key: &[u8], row: Option<&Row>) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        if let Some(row) = row {
            row.encode(&mut self.bytes);
        }
        self.rows.push(Place { from, key_end, end: self.bytes.len(), beginning: 0 });
    }

    /// Sorts the rows by their keys: the store takes them several times as fast.
    pub(crate) fn sort(&mut self) {
        let Self { bytes, rows } = self;
        let key = |row: &Place| bytes.get(row.from..row.key_end).unwrap_or_default();
        let first = rows.first().map(key).unwrap_or_default();
        let shared_by = |row: &Place| first.iter().zip(key(row)).take_while(|(a, b)| a == b).count();
        // Keys often begin alike: the first bytes in which they differ decide nearly every comparison.
        let shared = rows.iter().map(shared_by).min().unwrap_or(0);
        let beginning = |row: &Place| {
            let rest = key(row).get(shared..).unwrap_or_default();
            let mut beginning = [0; 8];
            beginning.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            u64::from_be_bytes(beginning)
        };
        rows.iter_mut().for_each(|row| row.beginning = beginning(row));
        rows.sort_unstable_by(|a, b| a.beginning.cmp(&b.beginning).then_with(|| key(a).cmp(key(b))));
    }

    /// Removes all rows, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
    }

    pub(crate) const fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the keys and values; the value of a removed row is empty.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.rows.iter().map(|row| (&self.bytes[row.from..row.key_end], &self.bytes[row.key_end..row.end]))
    }
}

/// The cost of a commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Committed {
    /// The bytes that it added to the log.
    pub(crate) bytes: u64,
    /// The time that the synchronisation took.
    pub(crate) sync: Duration,
}

/// A store of rows. All its functions block.
pub(crate) trait Store: std::fmt::Debug + Send + Sync {
    /// Returns a row.
    fn get(&self, key: &[u8]) -> Result<Option<Row>, StoreError>;

    /// Writes changes as the commit of this number, which is above all earlier ones, and calls `pause` between its parts. All are
    /// on disk when this returns; after an error some may be. [`Store::get`] and [`Store::scan`] do not see them.
    fn commit(&self, number: u64, rows: &Rows, pause: &mut dyn FnMut()) -> Result<Committed, StoreError>;

    /// Writes some rows to where [`Store::get`] and [`Store::scan`] find them.
    fn settle(&self, rows: &Rows) -> Result<(), StoreError>;

    /// Forgets the changes of the commits up to this number, all of which are settled.
    fn forget(&self, number: u64) -> Result<(), StoreError>;

    /// Returns rows in order whose keys begin with `prefix` and are above `after`.
    fn scan(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(RowKey, Row)>, StoreError>;

    /// Opens the store again after a commit that failed.
    fn reopen(&self) -> Result<(), StoreError>;

    /// Removes the rows of buckets that are full again.
    fn sweep(&self) -> Result<(), StoreError>;

    /// Returns the bytes on disk.
    fn disk_bytes(&self) -> u64;
}
