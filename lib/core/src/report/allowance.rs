//! The requests that one instance can have decided in the time that its report covers. Counts beyond that are
//! cut, so that no child drives a sum of its parent beyond 64 bits.
//!
//! A request is counted out of two budgets. One is for the time between two reports, as far as the clock of the
//! parent confirms it: no other child has any part in it. The other is for everything else: first reports,
//! counts of an unknown time, and spans that only the child's clock shows. It is a token bucket in time: a day for
//! a new instance, and as much again as is confirmed. Both are bounded by the share of the instance in the
//! parent's range (`Shares` of the sessions), and the second one also by the parent's room for late counts.

use std::time::Duration;

use super::{New, Origin, Tally};
use crate::quantity::MonoTime;

/// The requests/s that one client is believed to decide, unless set.
pub const DECISIONS_PER_S_MAX: u64 = 1_000_000;
/// The clients below one aggregator that are believed.
pub const CLIENTS_MAX: u32 = 1_000_000;
/// An instance may report this many times the rate in its past, even above its setting.
const HISTORY_FACTOR: f64 = 100.0;
/// The time over which the rate of the past is smoothed.
const HISTORY_TIME: Duration = Duration::from_secs(60);
/// The unused allowance that a report leaves to the next, in time. Counts and the clock are not
/// read in the same moment.
const CARRIED: Duration = Duration::from_secs(1);
/// Time before the first report of an instance that its counts cover without room for late ones:
/// three of the maximum report intervals.
const FIRST: Duration = Duration::from_secs(3);
/// Maximum time that a report is taken to cover, and the time taken where it is unknown: by a first
/// report, and by counts that were sent to another parent before or come late.
const COVERED_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The parent's time may be this many times shorter than the child's and still confirm it, as in the comparison
/// of clocks.
const CLOCKS_MAX: u32 = 2;

#[derive(Debug, Default)]
pub(super) struct Allowance {
    /// Requests/s that one client may decide.
    per_s_max: f64,
    /// Number of clients that is believed: 1 for a client, regardless of its report.
    clients_max: u32,
    /// Requests/s in the past, none of it above the setting: a child that raises its own history cannot raise
    /// its bound without end.
    history: f64,
    /// The clients of the present report, as it claims.
    clients: u32,
    /// The time that the present report covers, by the child's clock; `None` if it is unknown.
    span: Option<Duration>,
    /// Requests that were counted of the present report and describe that time.
    counted: u64,
    /// Requests that may still be counted for the part of that time that is confirmed.
    left: u64,
    /// Requests that may still be counted for the rest of it, out of the second budget.
    unconfirmed_left: u64,
    arrived: MonoTime,
    /// The time of the parent that no report has used yet, times `CLOCKS_MAX`.
    own_time: Duration,
    /// Seconds of unknown time that are left, of at most [`COVERED_MAX`].
    late_s: f64,
    /// Requests/s of the present report, the price of a second of unknown time.
    per_s: f64,
    /// Requests of unverified times that the parent still counts, of any child.
    late_room: u64,
    share: Share,
}

#[derive(Clone, Copy, Debug, Default)]
struct Share {
    left: u64,
    /// The half that late counts leave to verified ones.
    verified: u64,
}

/// The requests of one part of a report that were cut, and those counted out of the second budget.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    pub(super) cut: u64,
    pub(super) late: u64,
}

impl Allowance {
    pub(super) fn new(per_s_max: u64, clients_max: u32) -> Self {
        Self {
            per_s_max: per_s_max as f64,
            clients_max,
            late_s: COVERED_MAX.as_secs() as f64,
            share: Share {
                left: u64::MAX,
                verified: u64::MAX / 2,
            },
            ..Self::default()
        }
    }

    /// Sets aside a share for the instance, in place of what is left of the last one, which is returned.
    pub(super) const fn renew_share(&mut self, share: u64) -> u64 {
        let left = self.share.left;
        self.share = Share {
            left: share,
            verified: share / 2,
        };
        left
    }

    pub(super) const fn share_left(&self) -> u64 {
        self.share.left
    }

    /// Sets the parent's room for counts of unverified times, for the next part of a report.
    pub(super) const fn set_late_room(&mut self, late_room: u64) {
        self.late_room = late_room;
    }

    /// Begins a report that covers `span`, if known, and arrived at `now`, of a child with so many clients. Returns the
    /// requests that evidence in the report can be about.
    pub(super) fn begin(&mut self, now: MonoTime, span: Option<Duration>, clients: u32) -> u64 {
        let setting = self.setting(self.clients);
        if let Some(span) = self.span.filter(|span| !span.is_zero()) {
            let rate = (self.counted as f64 / span.as_secs_f64()).min(setting);
            let weight = (span.as_secs_f64() / HISTORY_TIME.as_secs_f64()).min(1.0);
            self.history += (rate - self.history) * weight;
        }
        // Clients that left since the last report are in the counts of this one.
        self.per_s = self.per_s(self.clients.max(clients));
        let covered = span.unwrap_or(COVERED_MAX).min(COVERED_MAX);
        let confirmed = match span {
            Some(_) => {
                let passed = now.since(self.arrived).min(COVERED_MAX) * CLOCKS_MAX;
                self.own_time = (self.own_time + passed).min(COVERED_MAX * CLOCKS_MAX);
                covered.min(self.own_time)
            }
            None => FIRST,
        };
        self.own_time = self.own_time.saturating_sub(confirmed);
        self.late_s = (self.late_s + confirmed.as_secs_f64()).min(COVERED_MAX.as_secs_f64());
        let carried = (self.left as f64).min(self.per_s * CARRIED.as_secs_f64());
        self.left = (self.per_s.mul_add(confirmed.as_secs_f64(), carried)) as u64;
        let rest = covered.saturating_sub(confirmed);
        self.unconfirmed_left = (self.per_s * rest.as_secs_f64()) as u64;
        (self.arrived, self.clients, self.span, self.counted) = (now, clients, span, 0);
        self.left.saturating_add(self.unconfirmed_left)
    }

    /// Takes new counts out of the allowance, and cuts them to what is left. Adds to `taken`.
    #[inline]
    pub(super) fn take(&mut self, new: &mut New, taken: &mut Taken) {
        // Refusals from memory take of it too: nothing else bounds their sum.
        let asked = new.delta.counts.asked();
        let late = if new.origin == Origin::TakenOver {
            asked
        } else {
            new.delta.late.asked()
        };
        let present = asked.saturating_sub(late);
        let confirmed = present.min(self.left).min(self.share.left);
        self.left -= confirmed;
        self.share.left -= confirmed;
        let mut allowed = confirmed;
        if allowed < asked {
            let rest = self.take_late((present - confirmed).min(self.unconfirmed_left));
            self.unconfirmed_left -= rest;
            let late = self.take_late(late);
            taken.late = taken.late.saturating_add(rest + late);
            self.counted += rest;
            allowed += rest + late;
        }
        self.counted += confirmed;
        if allowed < asked {
            new.delta = new.delta.scaled(allowed, asked);
            taken.cut = taken.cut.saturating_add(asked - allowed);
        }
    }

    /// Takes requests of unverified times. Returns the number that may be counted.
    fn take_late(&mut self, requests: u64) -> u64 {
        let shared = self.share.left.saturating_sub(self.share.verified);
        let late_left = (self.late_s * self.per_s) as u64;
        let taken = requests.min(late_left).min(self.late_room).min(shared);
        if taken > 0 {
            self.late_s = (self.late_s - taken as f64 / self.per_s).max(0.0);
            self.late_room -= taken;
            self.share.left -= taken;
        }
        taken
    }

    /// The requests that the instance can have decided in the longest time that a report covers.
    pub(super) fn unconfirmed_max(&self) -> u64 {
        (self.per_s(self.clients) * COVERED_MAX.as_secs_f64()) as u64
    }

    fn per_s(&self, clients: u32) -> f64 {
        self.setting(clients).max(HISTORY_FACTOR * self.history)
    }

    fn setting(&self, clients: u32) -> f64 {
        self.per_s_max * f64::from(clients.clamp(1, self.clients_max))
    }
}

impl Tally {
    fn scaled(self, part: u64, whole: u64) -> Self {
        let scale = |count: u64| (u128::from(count) * u128::from(part) / u128::from(whole)) as u64;
        Self {
            counts: self.counts.map(scale),
            late: self.late.map(scale),
        }
    }
}
