//! The range of counts, which all children of a parent share.
//!
//! Totals are 64 bits wide, and a parent counts fewer than 2^63 requests in its life, regardless of
//! what its children report. Each instance has a share set aside from its first greeting: the range that
//! is free then, divided by the number of places for children plus one. Shares are disjoint, so
//! their sum never exceeds the range, regardless of how many instances join and leave; an instance
//! that is forgotten gives the rest of its share back. A child that uses up its share is cut, and
//! no other one. A share is for [`SHARE_TIME`], then there is a new one. With 20,000 places all
//! taken, the smallest share is `2^63 / 20,001 / e`, or 1.7e14: 65 million requests/s for all of
//! the 30 days. With the 1,000 places of a controller it is 3.4e15: 1.3e9 requests/s.
//!
//! Instances can be invented, each with a day of unknown time. So all counts of unverified times together have one
//! token bucket: 2^56 requests, and 2^30 more each second, which is less than 2^62 in a hundred years. At least half of
//! each share, and half of the range, is for counts of times that the parent's own clock confirms.

use std::time::Duration;

use super::ChildSession;
use crate::quantity::MonoTime;
use crate::report::Books;

/// All requests that a parent counts in its life are fewer.
const RANGE: u64 = 1 << 63;
/// Time until an instance has a new share.
const SHARE_TIME: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Maximum number of requests of unverified times counted together, of all children.
const LATE_MAX: u64 = 1 << 56;
/// Requests/s of unverified times that are counted in the long run, of all children.
const LATE_PER_S: u64 = 1 << 30;

#[derive(Debug)]
pub(super) struct Shares {
    places: u64,
    /// The rest that is neither counted nor set aside.
    free: u64,
    late_room: u64,
    /// The time of the latest fill of the room for late counts.
    filled: MonoTime,
}

impl Shares {
    pub(super) fn new(places: usize) -> Self {
        let places = u64::try_from(places).unwrap_or(u64::MAX).saturating_add(1);
        Self {
            places,
            free: RANGE - 1,
            late_room: LATE_MAX,
            filled: MonoTime::ZERO,
        }
    }

    /// Sets a share aside for a new instance. Returns the start of its time.
    pub(super) const fn open(&mut self, now: MonoTime, books: &mut Books) -> MonoTime {
        let share = self.free / self.places;
        self.free -= share;
        books.renew_share(share);
        now
    }

    /// Sets a new share aside once the last one was for long enough.
    pub(super) fn renew(&mut self, now: MonoTime, child: &mut ChildSession) {
        if now.since(child.share_since) >= SHARE_TIME {
            self.free += child.books.renew_share(0);
            child.share_since = self.open(now, &mut child.books);
        }
    }

    /// Takes back what a forgotten instance leaves of its share.
    pub(super) const fn give_back(&mut self, books: &Books) {
        self.free += books.share_left();
    }

    /// The requests of unverified times that may be counted.
    pub(super) fn late_room(&mut self, now: MonoTime) -> u64 {
        // Whole seconds, so that no reading loses the rest of one.
        let seconds = now.since(self.filled).as_secs();
        if seconds > 0 {
            self.filled = self.filled + Duration::from_secs(seconds);
            let filled = self
                .late_room
                .saturating_add(seconds.saturating_mul(LATE_PER_S));
            self.late_room = filled.min(LATE_MAX);
        }
        self.late_room
    }

    pub(super) const fn take_late(&mut self, counted: u64) {
        self.late_room = self.late_room.saturating_sub(counted);
    }
}
