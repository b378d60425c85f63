//! Counts as differences: what a stream has told so far of each key, and what the next message adds to that.

use plimsoll_core::bucket::KeyId;
use plimsoll_core::report::{Counts, Tallies, Tally};

use crate::{Invalid, wire};

/// What one stream has told so far, the same at both of its ends. By the stream's key ids, which are dense.
#[derive(Debug, Default)]
pub(super) struct Told {
    counts: Vec<Counts>,
    /// Empty until there is a late part.
    late: Vec<Counts>,
}

impl Told {
    /// An id is given to a key, which begins at zero; false if an id below it was not given out before.
    pub(super) fn define(&mut self, id: KeyId) -> bool {
        let at = id.index();
        if let Some(late) = self.late.get_mut(at) {
            *late = Counts::ZERO;
        }
        if at == self.counts.len() {
            self.counts.push(Counts::ZERO);
        }
        let Some(counts) = self.counts.get_mut(at) else { return false };
        *counts = Counts::ZERO;
        true
    }

    /// What `tally` adds to what was told of the key, which is then told.
    pub(super) fn advance(&mut self, id: KeyId, tally: Tally) -> Tally {
        let at = id.index();
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

    /// Adds up the differences of one part. Linear in its keys.
    ///
    /// # Errors
    /// When columns are not as long as the ids, an id was not given out, or a sum exceeds what a count holds.
    pub(super) fn add_up(&mut self, part: &wire::Report) -> Result<Tallies, Invalid> {
        let keys = part.gaps.len();
        let counts = Columns::of("counts", part.counts.as_ref(), keys)?;
        let late = Columns::of("late", part.late.as_ref(), keys)?;
        if late.any() && self.late.len() < self.counts.len() {
            self.late.resize(self.counts.len(), Counts::ZERO);
        }
        let mut tallies = Tallies::with_capacity(keys);
        let mut due = 0_usize;
        for (at, gap) in part.gaps.iter().enumerate() {
            let index = due.saturating_add(*gap as usize);
            due = index.saturating_add(1);
            let id = KeyId(u32::try_from(index).map_err(|_| Invalid::Undefined(u32::MAX))?);
            let held = self.counts.get_mut(index).ok_or(Invalid::Undefined(id.0))?;
            counts.add(at, held).ok_or(Invalid::Overflow(id.0))?;
            let mut tally = Tally { counts: *held, late: Counts::ZERO };
            if let Some(held) = self.late.get_mut(index) {
                late.add(at, held).ok_or(Invalid::Overflow(id.0))?;
                tally.late = *held;
            }
            tallies.push(id, tally);
        }
        Ok(tallies)
    }
}

/// The columns of a part: each as long as its ids, or empty if nothing in it changed.
struct Columns<'a> {
    offered: &'a [u64],
    dropped: &'a [u64],
    /// The three that are seldom there.
    others: Option<[&'a [u64]; 3]>,
}

impl<'a> Columns<'a> {
    fn of(field: &'static str, columns: Option<&'a wire::Columns>, keys: usize) -> Result<Self, Invalid> {
        let Some(columns) = columns else { return Ok(Self { offered: &[], dropped: &[], others: None }) };
        let others = [&columns.guard_dropped, &columns.would_dropped, &columns.would_guard_dropped];
        for column in [&columns.offered, &columns.dropped].into_iter().chain(others) {
            if !column.is_empty() && column.len() != keys {
                return Err(Invalid::Columns { field, got: column.len(), due: keys });
            }
        }
        Ok(Self {
            offered: &columns.offered,
            dropped: &columns.dropped,
            others: others.iter().any(|column| !column.is_empty()).then(|| others.map(Vec::as_slice)),
        })
    }

    fn any(&self) -> bool {
        !self.offered.is_empty() || !self.dropped.is_empty() || self.others.is_some()
    }

    /// Adds the differences of the key at this place; `None` if one is too much.
    #[inline]
    fn add(&self, at: usize, to: &mut Counts) -> Option<()> {
        let plus = |held: &mut u64, column: &[u64]| {
            if let Some(difference) = column.get(at) {
                *held = held.checked_add(*difference)?;
            }
            Some(())
        };
        plus(&mut to.offered, self.offered)?;
        plus(&mut to.dropped, self.dropped)?;
        if let Some([guard, would, would_guard]) = self.others {
            plus(&mut to.guard_dropped, guard)?;
            plus(&mut to.would_dropped, would)?;
            plus(&mut to.would_guard_dropped, would_guard)?;
        }
        Some(())
    }
}

/// What the differences of one key take on the wire at most, columns of zeros included.
pub(super) fn bytes(gap: u32, new: Tally) -> usize {
    let of = |counts: Counts| -> usize {
        let Counts { offered, dropped, guard_dropped, would_dropped, would_guard_dropped } = counts;
        let columns = [offered, dropped, guard_dropped, would_dropped, would_guard_dropped];
        columns.into_iter().map(varint).sum()
    };
    varint(u64::from(gap)) + of(new.counts) + of(new.late)
}

/// How many bytes a number takes.
const fn varint(number: u64) -> usize {
    (64 - (number | 1).leading_zeros()).div_ceil(7) as usize
}

/// Adds the differences of one key to the columns.
pub(super) fn put(columns: &mut Option<wire::Columns>, new: Counts) {
    let columns = columns.get_or_insert_default();
    columns.offered.push(new.offered);
    columns.dropped.push(new.dropped);
    columns.guard_dropped.push(new.guard_dropped);
    columns.would_dropped.push(new.would_dropped);
    columns.would_guard_dropped.push(new.would_guard_dropped);
}

/// Leaves out the columns in which nothing changed.
pub(super) fn leave_out_zeros(columns: &mut Option<wire::Columns>) {
    let Some(all) = columns else { return };
    let wire::Columns { offered, dropped, guard_dropped, would_dropped, would_guard_dropped } = all;
    let each = [offered, dropped, guard_dropped, would_dropped, would_guard_dropped];
    let mut left = false;
    for column in each {
        if column.iter().all(|difference| *difference == 0) {
            column.clear();
        }
        left |= !column.is_empty();
    }
    if !left {
        *columns = None;
    }
}
