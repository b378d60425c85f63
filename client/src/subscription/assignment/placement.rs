//! The placement of one bucket: its owner, its home, and how far a move between the two has come.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::quantity::MonoTime;

use super::liveness::Liveness;
use super::{Change, EndpointId, SessionState};

/// Maximum time that a bucket drains. A confirmation takes a fraction of it.
pub(super) const DRAIN_MAX: Duration = Duration::from_secs(3);
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(10);
/// The time from the move of a bucket's counts until the new owner's ratios apply: two ticks of the
/// controller and the way to it and back.
pub(super) const RATIOS_AFTER: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(super) struct Placement {
    pub(super) bucket: Arc<str>,
    pub(super) owner: Option<EndpointId>,
    /// The aggregator that should own the bucket.
    home: Option<EndpointId>,
    draining_since: Option<MonoTime>,
    retry_at: MonoTime,
    /// The time until when the former owner's ratios are kept.
    ratios_kept_until: Option<MonoTime>,
}

impl Placement {
    pub(super) fn new(bucket: &str, home: Option<EndpointId>) -> Self {
        Self {
            bucket: bucket.into(),
            owner: home,
            home,
            ..Self::default()
        }
    }

    /// Sets the home. Without one, because no candidate is left, the bucket stays where it is.
    pub(super) fn set_home(&mut self, home: Option<EndpointId>) {
        self.home = home.or(self.owner);
    }

    pub(super) fn is_subscribed(&self, at: EndpointId) -> bool {
        [self.owner, self.home].contains(&Some(at))
    }

    pub(super) const fn is_draining(&self) -> bool {
        self.draining_since.is_some()
    }

    pub(super) const fn ratios_apply(&self) -> bool {
        self.draining_since.is_none() && self.ratios_kept_until.is_none()
    }

    pub(super) fn on_tick(
        &mut self,
        now: MonoTime,
        bucket: usize,
        aggregators: &Liveness,
        sessions: &impl SessionState,
    ) -> Option<Change> {
        if self.ratios_kept_until.is_some_and(|until| now >= until) {
            self.ratios_kept_until = None;
            return Some(Change::RatiosApply(bucket));
        }
        let target = self
            .home
            .filter(|home| Some(*home) != self.owner && aggregators.is_live(*home));
        let Some(to) = target else {
            return self.stay(bucket);
        };
        let Some(from) = self.owner else {
            return Some(self.go(now, bucket, to));
        };
        if aggregators.is_gone(now, from) {
            return sessions
                .reaches_controller(to)
                .then(|| self.go(now, bucket, to));
        }
        if !aggregators.is_live(from) {
            // The owner may return, and still know the counts that it has not confirmed.
            return self.stay(bucket);
        }
        match self.draining_since {
            None => {
                let may_leave = now >= self.retry_at
                    && aggregators.is_steady(now, to)
                    && sessions.has_directive(bucket, to)
                    && sessions.reaches_controller(from)
                    && sessions.reaches_controller(to);
                self.draining_since = may_leave.then_some(now);
                None
            }
            Some(_) if sessions.is_confirmed(bucket, from) => Some(self.go(now, bucket, to)),
            Some(since) if now.since(since) >= DRAIN_MAX => {
                self.retry_at = now + RETRY_AFTER;
                self.stay(bucket)
            }
            Some(_) => None,
        }
    }

    /// Stops draining: the bucket stays, and the counts held back are reported to its owner after all.
    fn stay(&mut self, bucket: usize) -> Option<Change> {
        let was_draining = self.draining_since.take().is_some();
        (was_draining && self.ratios_apply()).then_some(Change::RatiosApply(bucket))
    }

    fn go(&mut self, now: MonoTime, bucket: usize, to: EndpointId) -> Change {
        let from = self.owner.replace(to);
        self.draining_since = None;
        // A bucket that had no owner has no ratios to keep.
        self.ratios_kept_until = from.map(|_| now + RATIOS_AFTER);
        Change::Moved { bucket, from, to }
    }
}
