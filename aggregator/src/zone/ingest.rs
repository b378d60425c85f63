//! The entries of one report on their way into the zone's tables.

use std::time::Duration;

use plimsoll_core::directive::Board;
use plimsoll_core::names::{Key, KeyId, Place};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Counts, Ledger, New, Origin, Outbox};

use crate::downstream::Traffic;
use crate::fast_loop::FastLoop;
use crate::key_counts::KeyCounts;

/// The entries of a report, buffered until all have been checked and placed. Each table is then updated in
/// one short loop, so that the processor waits for the memory of many entries at a time.
#[derive(Debug, Default)]
pub(super) struct EntryBuffer {
    entries: Vec<(KeyId, Counts)>,
    /// The late parts, by position of the entry.
    late: Vec<(usize, Counts)>,
}

/// The ledger of one report: the tables that its entries go into.
pub(super) struct Ingest<'a> {
    pub(super) buffer: &'a mut EntryBuffer,
    pub(super) now: MonoTime,
    pub(super) keys: &'a mut KeyCounts,
    pub(super) fast_loop: &'a mut FastLoop,
    pub(super) board: &'a Board,
    pub(super) outbox: &'a mut Outbox,
    /// The span from which a report shows nothing about the present rate.
    pub(super) late_from: Duration,
    pub(super) is_all_late: bool,
    /// The traffic of the child aggregator that sent the report; `None` if a client sent it.
    pub(super) child_traffic: Option<&'a mut Traffic>,
    /// The time that the report covers, if it shows something about the present rate.
    pub(super) span: Option<Duration>,
}

impl Ingest<'_> {
    fn find(&mut self, key: &Key, came: u64) -> Option<Place> {
        let found = self.keys.find(key, came)?;
        if found.is_new {
            let id = found.place.id;
            self.fast_loop.add_key(id, self.keys.key(id), self.board);
            // The counts of the key that had this id before are settled, or the id would not be free.
            self.outbox.replace(id);
        }
        Some(found.place)
    }

    /// Moves the buffered entries into the tables. Returns the number of requests that came late.
    pub(super) fn finish(self) -> u64 {
        let EntryBuffer { entries, late } = self.buffer;
        for (id, counts) in &*entries {
            self.keys.add(*id, *counts);
        }
        let mut came_late = 0;
        for (entry, late) in late.drain(..) {
            came_late += late.offered;
            debug_assert!(entry < entries.len(), "a late part without an entry");
            if let Some((id, counts)) = entries.get_mut(entry) {
                self.keys.add_late(*id, late);
                *counts = counts.since(late);
            }
        }
        match self.child_traffic {
            Some(traffic) => self.fast_loop.add_to_child(entries, self.span, traffic),
            None => self.fast_loop.add(entries),
        }
        entries.clear();
        came_late
    }
}

impl Ledger for Ingest<'_> {
    fn begin(&mut self, span: Option<Duration>, first_span: bool) {
        self.is_all_late = span.is_none_or(|span| span >= self.late_from);
        self.span = span.filter(|_| !self.is_all_late);
        if self.child_traffic.is_none() {
            self.fast_loop.begin(self.now, span.unwrap_or_default(), first_span);
        }
    }

    fn place(&mut self, key: &Key) -> Option<Place> {
        self.find(key, 0)
    }

    #[inline]
    fn add(&mut self, place: Option<Place>, key: &Key, new: New) -> Option<Place> {
        let place = match place {
            Some(place) if self.keys.is_current(place) => place,
            _ => self.find(key, new.delta.counts.offered)?,
        };
        let late = if self.is_all_late || new.origin == Origin::TakenOver {
            new.delta.counts
        } else {
            new.delta.late
        };
        if late != Counts::ZERO {
            self.buffer.late.push((self.buffer.entries.len(), late));
        }
        self.buffer.entries.push((place.id, new.delta.counts));
        Some(place)
    }
}
