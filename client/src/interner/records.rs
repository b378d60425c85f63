//! The names of ids, stored as words so that a lookup compares them without copying.

use plimsoll_core::names::NAME_BYTES_MAX;

use crate::hot::sync::{AtomicU32, AtomicU64, Ordering, zeroed};

/// Words of a record: one cache line.
const WORDS: usize = 8;
/// The longest name that fits its record.
const SHORT_MAX: usize = (WORDS - 1) * 8;
/// Words of a longer name in its record, whose last word then is the number of the overflow cell with the
/// others.
const LONG_HEAD: usize = WORDS - 2;
/// Words of an overflow cell.
const CELL_WORDS: usize = NAME_BYTES_MAX / 8 - LONG_HEAD;
/// The number of ids for each overflow cell.
const IDS_PER_CELL: usize = 8;

/// The flag of a tombstoned name in the first word of its record, which makes lookups miss it. Bits 0 to 7 of
/// that word are the length, 8 to 39 the owner.
const TOMBSTONE: u64 = 1 << 63;

/// One record for each id, and overflow cells for long names.
#[derive(Debug)]
pub(crate) struct Records {
    rows: Vec<AtomicU64>,
    cells: Vec<AtomicU64>,
    /// The number of cells that were ever used.
    cells_used: AtomicU32,
    /// The first cell of the linked list of free cells, plus one; a free cell's first word leads to the next.
    cells_free: AtomicU32,
}

/// An owner and a name, read back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) owner: u32,
    bytes: [u8; NAME_BYTES_MAX],
    length: usize,
}

impl Record {
    pub(crate) fn name(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl Records {
    pub(crate) fn new(ids: usize) -> Self {
        Self {
            rows: zeroed(ids * WORDS),
            cells: zeroed(Self::cells_for(ids) * CELL_WORDS),
            cells_used: AtomicU32::new(0),
            cells_free: AtomicU32::new(0),
        }
    }

    /// Returns the number of overflow cells, that is of long names.
    pub(crate) const fn cells_for(ids: usize) -> usize {
        ids.div_ceil(IDS_PER_CELL)
    }

    pub(crate) const fn is_long(name: &[u8]) -> bool {
        name.len() > SHORT_MAX
    }

    #[inline(always)]
    fn row(&self, id: u32) -> Option<&[AtomicU64; WORDS]> {
        self.rows.as_chunks().0.get(id as usize)
    }

    fn cell(&self, cell: u64) -> Option<&[AtomicU64; CELL_WORDS]> {
        self.cells.as_chunks().0.get(usize::try_from(cell).ok()?)
    }

    /// True if an id has this name and is not tombstoned. An id outside the table has no name.
    #[inline(always)]
    pub(crate) fn is(&self, id: u32, owner: u32, name: &[u8]) -> bool {
        let Some(row) = self.row(id) else { return false };
        // A reader that sees the next name's header sees no word of the previous name.
        let differs = row[0].load(Ordering::Acquire) ^ header(owner, name.len());
        if name.len() > SHORT_MAX {
            return differs == 0 && self.is_long_name(row, name);
        }
        differs_short(row, differs, name) == 0
    }

    /// True if an id has this name and is tombstoned.
    pub(crate) fn is_tombstone_of(&self, id: u32, owner: u32, name: &[u8]) -> bool {
        let Some(row) = self.row(id) else { return false };
        let differs = row[0].load(Ordering::Relaxed) ^ header(owner, name.len()) ^ TOMBSTONE;
        if name.len() > SHORT_MAX {
            return differs == 0 && self.is_long_name(row, name);
        }
        differs_short(row, differs, name) == 0
    }

    #[cold]
    #[inline(never)]
    fn is_long_name(&self, row: &[AtomicU64; WORDS], name: &[u8]) -> bool {
        let words = name.len().div_ceil(8);
        (0..words).all(|at| {
            self.word(row, at, words).is_some_and(|word| word.load(Ordering::Relaxed) == word_of(name, at))
        })
    }

    /// Returns the place of a word of a name.
    fn word<'a>(&'a self, row: &'a [AtomicU64; WORDS], at: usize, words: usize) -> Option<&'a AtomicU64> {
        if words < WORDS || at < LONG_HEAD {
            return row.get(at + 1);
        }
        let cell = row[WORDS - 1].load(Ordering::Relaxed);
        self.cell(cell)?.get(at - LONG_HEAD)
    }

    /// True if an id's name is tombstoned. After false, [`read`](Self::read) returns a whole name.
    pub(crate) fn is_tombstone(&self, id: u32) -> bool {
        self.row(id).is_some_and(|row| row[0].load(Ordering::Acquire) & TOMBSTONE != 0)
    }

    /// True if an id's name occupies a cell.
    pub(crate) fn has_cell(&self, id: u32) -> bool {
        let first = self.row(id).map_or(0, |row| row[0].load(Ordering::Relaxed));
        (first & 0xFF) as usize > SHORT_MAX
    }

    /// True if a cell is free.
    pub(crate) fn has_free_cell(&self) -> bool {
        self.cells_free.load(Ordering::Relaxed) != 0
            || self.cell(u64::from(self.cells_used.load(Ordering::Relaxed))).is_some()
    }

    /// Tombstones a name, or revives it.
    pub(crate) fn set_tombstone(&self, id: u32, tombstone: bool) {
        if let Some(row) = self.row(id) {
            let first = row[0].load(Ordering::Relaxed) & !TOMBSTONE;
            row[0].store(first | if tombstone { TOMBSTONE } else { 0 }, Ordering::Release);
        }
    }

    /// Writes the name of an id. One writer at a time. Returns false when the name needs a cell and none is
    /// free.
    pub(crate) fn write(&self, id: u32, owner: u32, name: &[u8]) -> bool {
        let Some(row) = self.row(id) else { return false };
        if self.has_cell(id) {
            self.free_cell(row[WORDS - 1].load(Ordering::Relaxed));
        }
        if Self::is_long(name) {
            let Some(cell) = self.take_cell() else { return false };
            row[WORDS - 1].store(cell, Ordering::Relaxed);
        }
        let words = name.len().div_ceil(8);
        for at in 0..words {
            if let Some(word) = self.word(row, at, words) {
                word.store(word_of(name, at), Ordering::Relaxed);
            }
        }
        row[0].store(header(owner, name.len()), Ordering::Release);
        true
    }

    fn take_cell(&self) -> Option<u64> {
        let Some(free) = self.cells_free.load(Ordering::Relaxed).checked_sub(1) else {
            let used = self.cells_used.load(Ordering::Relaxed);
            self.cell(u64::from(used))?;
            self.cells_used.store(used + 1, Ordering::Relaxed);
            return Some(u64::from(used));
        };
        let next = self.cell(u64::from(free))?[0].load(Ordering::Relaxed);
        self.cells_free.store(next as u32, Ordering::Relaxed);
        Some(u64::from(free))
    }

    fn free_cell(&self, cell: u64) {
        if let Some(words) = self.cell(cell) {
            words[0].store(u64::from(self.cells_free.load(Ordering::Relaxed)), Ordering::Relaxed);
            self.cells_free.store(cell as u32 + 1, Ordering::Relaxed);
        }
    }

    /// Returns the owner and the name of an id, tombstoned or not; `None` before its first name. Must not run
    /// while the id may get another name.
    pub(crate) fn read(&self, id: u32) -> Option<Record> {
        let row = self.row(id)?;
        let first = row[0].load(Ordering::Acquire);
        let length = (first & 0xFF) as usize;
        let (owner, mut bytes) = ((first >> 8) as u32, [0; NAME_BYTES_MAX]);
        let words = length.div_ceil(8);
        for at in 0..words {
            let word = self.word(row, at, words)?.load(Ordering::Relaxed);
            spell(bytes.get_mut(..length)?, at, word);
        }
        (length != 0).then_some(Record { owner, bytes, length })
    }
}

const fn header(owner: u32, length: usize) -> u64 {
    (owner as u64) << 8 | length as u64
}

/// Returns zero if the words of a row are those of a short name and `differs` was zero. Every word is read
/// with a load of fixed width, so that no byte is copied.
#[inline(always)]
fn differs_short(row: &[AtomicU64; WORDS], mut differs: u64, name: &[u8]) -> u64 {
    // Most names have 9 to 24 bytes: these are compared without a loop, whose exit would be mispredicted.
    if let (Some(first), Some(last), 9..=24) = (name.first_chunk::<8>(), name.last_chunk::<8>(), name.len()) {
        differs |= row[1].load(Ordering::Relaxed) ^ u64::from_le_bytes(*first);
        let at = if let Some(second) = name.get(8..16).filter(|_| name.len() > 16) {
            let second = second.first_chunk::<8>().map_or(0, |chunk| u64::from_le_bytes(*chunk));
            differs |= row[2].load(Ordering::Relaxed) ^ second;
            3
        } else {
            2
        };
        return differs | (row[at].load(Ordering::Relaxed) ^ u64::from_le_bytes(*last));
    }
    let (chunks, rest) = name.as_chunks::<8>();
    for (word, chunk) in row[1..].iter().zip(chunks) {
        differs |= word.load(Ordering::Relaxed) ^ u64::from_le_bytes(*chunk);
    }
    if !rest.is_empty() {
        let word = row.get(chunks.len() + 1).map_or(0, |word| word.load(Ordering::Relaxed));
        differs |= word ^ last_word(name);
    }
    differs
}

/// Returns the word of a name from byte `8 * at` on.
fn word_of(name: &[u8], at: usize) -> u64 {
    name.as_chunks::<8>().0.get(at).map_or_else(|| last_word(name), |chunk| u64::from_le_bytes(*chunk))
}

/// Returns the last eight bytes of a name, or all of a shorter one, some of them twice; the length makes it
/// unambiguous.
#[inline]
fn last_word(name: &[u8]) -> u64 {
    if let Some(last) = name.last_chunk::<8>() {
        return u64::from_le_bytes(*last);
    }
    if let (Some(first), Some(last)) = (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        return u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32;
    }
    let byte = |at: usize| u64::from(name.get(at).copied().unwrap_or_default());
    byte(0) | byte(name.len() / 2) << 8 | byte(name.len().saturating_sub(1)) << 16
}

/// Writes the bytes of a word into the name they came from.
fn spell(name: &mut [u8], at: usize, word: u64) {
    let length = name.len();
    if let Some(chunk) = name.as_chunks_mut::<8>().0.get_mut(at) {
        *chunk = word.to_le_bytes();
    } else if let Some(last) = name.last_chunk_mut::<8>() {
        *last = word.to_le_bytes();
    } else if length >= 4 {
        for (byte, from) in name.iter_mut().zip(word.to_le_bytes()) {
            *byte = from;
        }
        if let Some(last) = name.last_chunk_mut::<4>() {
            *last = ((word >> 32) as u32).to_le_bytes();
        }
    } else {
        for (at, from) in [0, length / 2, length.saturating_sub(1)].into_iter().zip(word.to_le_bytes()) {
            if let Some(byte) = name.get_mut(at) {
                *byte = from;
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_length_are_read_back_and_distinguished() {
        let records = Records::new(8);
        let text: Vec<u8> = (0..NAME_BYTES_MAX).map(|at| b'a' + (at * 7 % 26) as u8).collect();
        for length in 1..=NAME_BYTES_MAX {
            let name = &text[..length];
            assert!(records.write(3, 9, name), "length {length}");
            let read = records.read(3).unwrap();
            assert_eq!((read.owner, read.name()), (9, name));
            assert!(records.is(3, 9, name) && !records.is(3, 8, name) && !records.is(4, 9, name));
            assert!(!records.is(3, 9, &text[..length - 1]) && !records.is_tombstone_of(3, 9, name));
            for at in 0..length {
                let mut other = name.to_vec();
                other[at] = b'_';
                assert!(!records.is(3, 9, &other), "length {length}, byte {at}");
            }
            records.set_tombstone(3, true);
            assert!(!records.is(3, 9, name) && records.is_tombstone_of(3, 9, name));
        }
    }

    #[test]
    fn cells_of_long_names_are_reused() {
        let records = Records::new(16);
        let long = "x".repeat(SHORT_MAX + 1);
        assert!(records.write(0, 0, long.as_bytes()) && records.write(1, 1, long.as_bytes()));
        assert!(!records.has_free_cell() && !records.write(2, 2, long.as_bytes()));
        assert!(records.write(0, 0, b"short") && records.has_free_cell());
        assert!(records.write(2, 2, long.as_bytes()) && !records.has_free_cell());
        assert!(records.is(1, 1, long.as_bytes()) && records.is(2, 2, long.as_bytes()));
    }
}
