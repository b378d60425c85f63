//! The requests that one instance can have decided in the time that its report covers. Counts beyond that are
//! cut, so that no child drives a sum of its parent beyond 64 bits.

use std::time::Duration;

use super::{New, Origin, Tally};

/// The requests/s that one client is believed to decide, unless set.
pub const DECISIONS_PER_S_MAX: u64 = 1_000_000;
/// The clients below one aggregator that are believed.
pub const CLIENTS_MAX: u32 = 10_000_000;
/// An instance may report this many times the rate of its own past.
const HISTORY_FACTOR: f64 = 100.0;
/// The time over which the rate of the past is smoothed.
const HISTORY_TIME: Duration = Duration::from_secs(60);
/// The unused allowance that a report leaves to the next, in time. Counts and the clock are not read at once.
const CARRIED: Duration = Duration::from_secs(1);
/// The longest time that a report is taken to cover, and the time taken where it is unknown: by a first report,
/// and by counts that were sent to another parent before or come late.
const COVERED_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The allowance of one child.
#[derive(Debug)]
pub(super) struct Allowance {
    /// Requests/s that one client may decide.
    per_s_max: f64,
    /// Requests/s in the past, none of it above the setting: a child that raises its own history cannot raise
    /// its bound without end.
    history: f64,
    /// The clients behind the child in its present report.
    clients: u32,
    /// The time that the present report covers.
    span: Option<Duration>,
    /// Requests that were counted of the present report and describe that time.
    counted: u64,
    /// Requests that may still be counted for that time.
    left: u64,
    /// Requests that may still be counted for an unknown time.
    late_left: u64,
}

impl Allowance {
    pub(super) const fn new(per_s_max: u64) -> Self {
        Self {
            per_s_max: per_s_max as f64,
            history: 0.0,
            clients: 0,
            span: None,
            counted: 0,
            left: 0,
            late_left: 0,
        }
    }

    /// Begins a report that covers `span`, of a child with so many clients. `late_room` is the room of the parent
    /// for counts whose time nothing verifies. Returns the requests that evidence in the report can be about.
    pub(super) fn begin(&mut self, span: Option<Duration>, clients: u32, late_room: u64) -> u64 {
        let setting = self.setting(self.clients);
        if let Some(span) = self.span.filter(|span| !span.is_zero()) {
            let rate = (self.counted as f64 / span.as_secs_f64()).min(setting);
            let weight = (span.as_secs_f64() / HISTORY_TIME.as_secs_f64()).min(1.0);
            self.history += (rate - self.history) * weight;
        }
        // Clients that left since the last report are in the counts of this one.
        let per_s = self.per_s(self.clients.max(clients));
        let covered = span.unwrap_or(COVERED_MAX).min(COVERED_MAX);
        let carried = (self.left as f64).min(per_s * CARRIED.as_secs_f64());
        self.left = (per_s.mul_add(covered.as_secs_f64(), carried)) as u64;
        self.late_left = ((per_s * COVERED_MAX.as_secs_f64()) as u64).min(late_room);
        if span.is_none_or(|span| span > CARRIED) {
            self.left = self.left.min(late_room);
        }
        (self.clients, self.span, self.counted) = (clients, span, 0);
        self.left
    }

    /// Takes new counts out of the allowance, and cuts them to what is left. Returns the requests that were cut.
    #[inline]
    pub(super) fn take(&mut self, new: &mut New) -> u64 {
        let offered = new.delta.counts.offered;
        let late = if new.origin == Origin::TakenOver { offered } else { new.delta.late.offered };
        let (late_taken, taken) = (late.min(self.late_left), (offered - late).min(self.left));
        self.late_left -= late_taken;
        self.left -= taken;
        self.counted += taken;
        let allowed = late_taken + taken;
        if allowed < offered {
            new.delta = new.delta.scaled(allowed, offered);
        }
        offered - allowed
    }

    /// The most requests that a single report can add.
    pub(super) fn report_max(&self, clients: u32) -> u64 {
        let per_s = self.setting(self.clients.max(clients)) * HISTORY_FACTOR;
        (per_s * (2 * COVERED_MAX + CARRIED).as_secs_f64()) as u64
    }

    /// The most requests that were given up as unconfirmed and are believed.
    pub(super) fn unconfirmed_max(&self) -> u64 {
        (self.per_s(self.clients) * COVERED_MAX.as_secs_f64()) as u64
    }

    fn per_s(&self, clients: u32) -> f64 {
        self.setting(clients).max(HISTORY_FACTOR * self.history)
    }

    fn setting(&self, clients: u32) -> f64 {
        self.per_s_max * f64::from(clients.clamp(1, CLIENTS_MAX))
    }
}

impl Tally {
    /// Returns `part / whole` of every count, rounded down, which keeps counts consistent.
    fn scaled(self, part: u64, whole: u64) -> Self {
        let scale = |count: u64| (u128::from(count) * u128::from(part) / u128::from(whole)) as u64;
        Self { counts: self.counts.map(scale), late: self.late.map(scale) }
    }
}
