//! The entries of one report on their way into the zone's tables.

use std::time::Duration;

use plimsoll_core::bucket::Key;
use plimsoll_core::directive::Board;
use plimsoll_core::report::{Counts, Ledger, New, Outbox, Pedigree, Place};
use plimsoll_core::time::MonoTime;

use crate::accounts::Accounts;
use crate::flows::Flows;

/// Where they go.
pub(super) struct Entering<'a> {
    pub(super) now: MonoTime,
    pub(super) accounts: &'a mut Accounts,
    pub(super) flows: &'a mut Flows,
    pub(super) board: &'a Board,
    pub(super) outbox: &'a mut Outbox,
    /// A report that covers this much says nothing about the present rate.
    pub(super) late_from: Duration,
    pub(super) all_late: bool,
    /// It is the report of an aggregator below.
    pub(super) of_branch: bool,
    /// What it took to gather, if that says something about the present rate.
    pub(super) span: Option<Duration>,
    /// Requests that came late.
    pub(super) late: u64,
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
}

impl Ledger for Entering<'_> {
    fn begin(&mut self, span: Option<Duration>, first_span: bool) {
        self.all_late = span.is_none_or(|span| span >= self.late_from);
        self.span = span.filter(|_| !self.all_late);
        if self.of_branch {
            self.flows.begin_branch();
        } else {
            self.flows.begin(self.now, span.unwrap_or_default(), first_span);
        }
    }

    fn place(&mut self, key: &Key) -> Option<Place> {
        self.find(key, 0)
    }

    #[inline]
    fn add(&mut self, place: Option<Place>, key: &Key, new: New) -> Option<Place> {
        let mut delta = new.delta;
        if self.all_late || new.pedigree == Pedigree::TakenOver {
            delta.late = delta.counts;
        }
        self.late += delta.late.offered;
        let place = match place {
            Some(place) if self.accounts.is_current(place) => place,
            _ => self.find(key, delta.counts.offered)?,
        };
        self.accounts.add(place.id, &delta);
        let timely = if delta.late == Counts::ZERO { delta.counts } else { delta.counts.since(delta.late) };
        self.flows.add(place.id, timely);
        Some(place)
    }
}
