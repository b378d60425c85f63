//! The entries of one report on their way into the zone's tables.

use std::time::Duration;

use plimsoll_core::names::{Key, KeyId};
use plimsoll_core::directive::Board;
use plimsoll_core::report::{Counts, Ledger, New, Origin, Outbox, Place};
use plimsoll_core::quantity::MonoTime;

use crate::key_counts::KeyCounts;
use crate::downstream::Traffic;
use crate::fast_loop::FastLoop;

/// The entries of a report before they go into the tables, which is when all have been checked and found their places:
/// what is done for each then is so little that the memory of many is waited for at a time.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    entries: Vec<(KeyId, Counts)>,
    /// The late parts, by the entry's number.
    late: Vec<(usize, Counts)>,
}

/// Where they go.
pub(super) struct Entering<'a> {
    pub(super) arrived: &'a mut Arrived,
    pub(super) now: MonoTime,
    pub(super) accounts: &'a mut KeyCounts,
    pub(super) flows: &'a mut FastLoop,
    pub(super) board: &'a Board,
    pub(super) outbox: &'a mut Outbox,
    /// A report that covers this much says nothing about the present rate.
    pub(super) late_from: Duration,
    pub(super) all_late: bool,
    /// What is offered through the aggregator below whose report it is, if it is that of one.
    pub(super) branch: Option<&'a mut Traffic>,
    /// What it took to gather, if that says something about the present rate.
    pub(super) span: Option<Duration>,
}

impl Entering<'_> {
    fn find(&mut self, key: &Key, came: u64) -> Option<Place> {
        let found = self.accounts.find(key, came)?;
        if found.is_new
            && let Some(key) = self.accounts.keys().get(found.place.id.index())
        {
            self.flows.introduce(found.place.id, key, self.board);
            // Whatever had this id before is settled, or it would not have been given away.
            self.outbox.replace(found.place.id);
        }
        Some(found.place)
    }

    /// All entries have come: they go into the tables. Returns how many requests came late.
    pub(super) fn finish(self) -> u64 {
        let Arrived { entries, late } = self.arrived;
        for (id, counts) in &*entries {
            self.accounts.add(*id, *counts);
        }
        let mut came_late = 0;
        for (entry, late) in late.drain(..) {
            came_late += late.offered;
            if let Some((id, counts)) = entries.get_mut(entry) {
                self.accounts.add_late(*id, late);
                *counts = counts.since(late);
            }
        }
        match self.branch {
            Some(traffic) => self.flows.add_branch(entries, self.span, traffic),
            None => self.flows.add(entries),
        }
        entries.clear();
        came_late
    }
}

impl Ledger for Entering<'_> {
    fn begin(&mut self, span: Option<Duration>, first_span: bool) {
        self.all_late = span.is_none_or(|span| span >= self.late_from);
        self.span = span.filter(|_| !self.all_late);
        if self.branch.is_none() {
            self.flows.begin(self.now, span.unwrap_or_default(), first_span);
        }
    }

    fn place(&mut self, key: &Key) -> Option<Place> {
        self.find(key, 0)
    }

    #[inline]
    fn add(&mut self, place: Option<Place>, key: &Key, new: New) -> Option<Place> {
        let place = match place {
            Some(place) if self.accounts.is_current(place) => place,
            _ => self.find(key, new.delta.counts.offered)?,
        };
        let late = if self.all_late || new.pedigree == Origin::TakenOver {
            new.delta.counts
        } else {
            new.delta.late
        };
        if late != Counts::ZERO {
            self.arrived.late.push((self.arrived.entries.len(), late));
        }
        self.arrived.entries.push((place.id, new.delta.counts));
        Some(place)
    }
}
