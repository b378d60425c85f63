//! Delta encoding of counts: a message carries the increase of each count since the previous one of its
//! stream.

use plimsoll_core::names::KeyId;
use plimsoll_core::report::{COLUMNS, Counts, Tallies, Tally};
use prost::encoding::encoded_len_varint;

use crate::convert::DecodeError;
use crate::convert::scalars::check_column;
use crate::wire::{self, Columns as WireColumns};

/// Returns the columns in the order of [`Counts::columns`].
const fn columns_mut(columns: &mut WireColumns) -> [&mut Vec<u64>; COLUMNS] {
    [
        &mut columns.offered,
        &mut columns.dropped,
        &mut columns.guard_dropped,
        &mut columns.would_dropped,
        &mut columns.would_guard_dropped,
        &mut columns.quota_dropped,
        &mut columns.would_quota_dropped,
        &mut columns.quota_repeated,
        &mut columns.retried,
    ]
}

/// The counts sent so far on one stream, equal at both of its ends. Indexed by the stream's key ids, which
/// are dense.
#[derive(Debug, Default)]
pub(super) struct SentCounts {
    counts: Vec<Counts>,
    /// Late parts of the counts; empty until one is not zero.
    late: Vec<Counts>,
}

impl SentCounts {
    /// Assigns an id to a key. Its counts start at zero. Returns false if the id is neither the next one
    /// nor in use.
    pub(super) fn define(&mut self, id: KeyId) -> bool {
        let at = id.index();
        if let Some(late) = self.late.get_mut(at) {
            *late = Counts::ZERO;
        }
        if at == self.counts.len() {
            self.counts.push(Counts::ZERO);
        }
        let Some(counts) = self.counts.get_mut(at) else {
            return false;
        };
        *counts = Counts::ZERO;
        true
    }

    /// Records `tally` as sent and returns its increase since the last call for the key.
    pub(super) fn advance(&mut self, id: KeyId, tally: Tally) -> Tally {
        let at = id.index();
        debug_assert!(
            at < self.counts.len(),
            "id {at} has no definition on this stream"
        );
        if tally.late != Counts::ZERO && self.late.len() < self.counts.len() {
            self.late.resize(self.counts.len(), Counts::ZERO);
        }
        let mut before = Tally::ZERO;
        if let Some(counts) = self.counts.get_mut(at) {
            before.counts = std::mem::replace(counts, tally.counts);
        }
        if let Some(late) = self.late.get_mut(at) {
            before.late = std::mem::replace(late, tally.late);
        }
        tally.since(before)
    }

    /// Adds the deltas of one part and returns the new counts of its keys. Linear in their number.
    ///
    /// # Errors
    /// If a column is not as long as the list of ids, an id has no definition, or a sum exceeds 64 bits.
    pub(super) fn apply(&mut self, part: &mut wire::Report) -> Result<Tallies, DecodeError> {
        let keys = part.id_gaps.len();
        let counts = Columns::new("count_deltas", part.count_deltas.as_mut(), keys)?;
        let late = Columns::new("late_deltas", part.late_deltas.as_mut(), keys)?;
        if !late.is_empty() && self.late.len() < self.counts.len() {
            self.late.resize(self.counts.len(), Counts::ZERO);
        }
        let mut tallies = Tallies::with_capacity(keys);
        let mut next = 0_usize;
        for (at, gap) in part.id_gaps.iter().enumerate() {
            let index = next.saturating_add(*gap as usize);
            next = index.saturating_add(1);
            let id = KeyId(u32::try_from(index).map_err(|_| DecodeError::Undefined(u32::MAX))?);
            let held = self
                .counts
                .get_mut(index)
                .ok_or(DecodeError::Undefined(id.0))?;
            counts.add(at, held).ok_or(DecodeError::Overflow(id.0))?;
            let mut tally = Tally {
                counts: *held,
                late: Counts::ZERO,
            };
            if let Some(held) = self.late.get_mut(index) {
                late.add(at, held).ok_or(DecodeError::Overflow(id.0))?;
                tally.late = *held;
            }
            let ascends = tallies.push(id, tally);
            debug_assert!(ascends, "ids ascend by construction");
        }
        Ok(tallies)
    }
}

/// Columns of a part: each as long as the list of ids, or empty if all its numbers are zero.
struct Columns<'a>([&'a [u64]; COLUMNS]);

impl<'a> Columns<'a> {
    fn new(
        field: &'static str,
        columns: Option<&'a mut WireColumns>,
        keys: usize,
    ) -> Result<Self, DecodeError> {
        let Some(columns) = columns else {
            return Ok(Self([&[]; COLUMNS]));
        };
        let columns = columns_mut(columns).map(|column| column.as_slice());
        for column in columns.iter().filter(|column| !column.is_empty()) {
            check_column(field, column.len(), keys)?;
        }
        Ok(Self(columns))
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|column| column.is_empty())
    }

    /// Adds the deltas of the key at index `at`. Returns `None` on overflow.
    #[inline]
    fn add(&self, at: usize, to: &mut Counts) -> Option<()> {
        let mut sums = to.columns();
        for (sum, column) in sums.iter_mut().zip(self.0) {
            if let Some(delta) = column.get(at) {
                *sum = sum.checked_add(*delta)?;
            }
        }
        *to = Counts::of_columns(sums);
        Some(())
    }
}

/// Returns the maximum number of bytes of one key's gap and deltas on the wire, columns of zeros included.
pub(super) fn bytes_max(gap: u32, delta: Tally) -> usize {
    let deltas = delta
        .counts
        .columns()
        .into_iter()
        .chain(delta.late.columns());
    deltas.chain([u64::from(gap)]).map(encoded_len_varint).sum()
}

pub(super) fn push(columns: &mut Option<WireColumns>, delta: Counts) {
    let columns = columns_mut(columns.get_or_insert_default());
    columns
        .into_iter()
        .zip(delta.columns())
        .for_each(|(column, delta)| column.push(delta));
}

/// Clears columns of zeros, and drops the columns if none is left.
pub(super) fn trim_zeros(columns: &mut Option<WireColumns>) {
    let Some(present) = columns else { return };
    for column in columns_mut(present) {
        if column.iter().all(|delta| *delta == 0) {
            column.clear();
        }
    }
    columns.take_if(|present| *present == WireColumns::default());
}
