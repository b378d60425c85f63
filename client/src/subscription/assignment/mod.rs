//! The assignment of buckets to aggregators, for a client that has several aggregators in its zone.
//!
//! A bucket is a named limit of a service, such as `checkout`. A client reports the counts of each
//! bucket to an aggregator and applies the drop ratios that it returns; the aggregators do the same
//! with the controller. With several aggregators, exactly one of them is the *owner* of a bucket:
//! the client reports the bucket's counts only to it and applies only its ratios, so that no
//! request is counted twice.
//!
//! This module decides which aggregator owns which bucket, and when a bucket moves to another
//! owner. It is pure: it opens no connection and reads no clock. The subscription passes in the
//! time, the events of the streams and the state of its sessions, and carries out the changes.
//!
//! # Rules
//! 1. **Every bucket has a home**, the aggregator that should own it. It is chosen among the
//!    candidates only by the names of bucket and aggregators (rendezvous hashing), so all clients
//!    of a zone agree without asking each other.
//! 2. **A candidate is an aggregator that is listed and not gone.** The settings or DNS list the
//!    aggregators. One is gone while its stream has been lost for more than the
//!    [failover delay](FAILOVER_DELAY_DEFAULT) of 20 s, or while it was never reached and was
//!    listed at least 3 s ago (or the failover delay, if that is shorter). It is a candidate again
//!    when it answers. Without any candidate every bucket stays where it is, and a new bucket has
//!    no owner until its home is live.
//! 3. **A bucket starts at its home, and moves whenever its owner is not its home**, by failover or
//!    by handback. At the start of either, the new owner must be live and in contact with the
//!    controller; otherwise it could not serve the bucket, and the bucket stays. A bucket without an
//!    owner moves to its home once that is live.
//! 4. **Failover: the owner is gone.** The bucket moves without draining. If the owner has crashed,
//!    the counts are lost that had not reached the controller through it. A lost owner therefore
//!    keeps its buckets for the failover delay. It may return in that time.
//! 5. **Handback: the owner is live**, but the home has returned, is new, or the owner is not
//!    listed anymore. The bucket *drains* before it moves: the client holds back new counts until
//!    all earlier ones are confirmed, which means that the controller has them. So the move loses
//!    no count. If that takes more than 3 s, the bucket stops draining, and tries again 10 s later.
//! 6. **A handback is never urgent.** It begins only when the home has been live for 5 s (an
//!    aggregator that flaps gets no bucket), the home has sent values that apply to the bucket or no
//!    aggregator has, and the owner is in contact with the controller too.
//! 7. **Ratios are frozen while a bucket drains and for 2 s after its move.** While it drains, its
//!    owner sees the traffic stop. After the move, the new owner has shown the controller no
//!    traffic of the bucket yet, and would refuse nearly all of it. A bucket without any directive
//!    takes the new owner's ratios immediately.
//!
//! # States
//! ```text
//!  aggregator: NeverReached --- answers ------------------------------> Live
//!              Live --- its stream ends ------------------------------> Lost
//!              Lost --- answers again --------------------------------> Live
//!              NeverReached for 3 s, or Lost for the failover delay --> gone
//!
//!  bucket:     Settled --- handback begins ---------------------------> Draining
//!              Draining --- all counts sent are confirmed ------------> Moved
//!              Draining --- 3 s are over, or no reason to move -------> Settled
//!              any state --- failover --------------------------------> Moved
//!              Moved --- 2 s are over: the new ratios apply ----------> Settled
//! ```
//! [`liveness`] has the states of the aggregators, [`placement`] the states of one bucket, and
//! [`Assignment`] applies the rules to all of them.

pub(crate) mod endpoints;
mod liveness;
mod placement;
mod rendezvous;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::quantity::MonoTime;

pub(crate) use liveness::EndpointId;
use liveness::Liveness;
use placement::Placement;

/// The default time that a lost aggregator keeps its buckets.
///
/// A restart takes seconds, and the clients reconnect over as many seconds again. Meanwhile they apply the
/// directives they hold, and the controller reserves the share of the silent aggregator for 30 s
/// ([`HELD`](plimsoll_core::law::presence::HELD)). A client that moves earlier has its rate reserved twice
/// for the rest of the 30 s, at the former owner and at the new one, and about half of its traffic is
/// refused. A client that moves later uses capacity that was given to others meanwhile. With 20 s, a loss at
/// 0 s is noticed by 3 s, the buckets have moved by 23 s, and the new owner's roll-ups have shown their
/// traffic by 25 s, before the reserved share begins to shrink at 30 s. The overlap of a few seconds is
/// accepted.
pub const FAILOVER_DELAY_DEFAULT: Duration = Duration::from_secs(20);

pub(crate) struct Assignment {
    pub(super) liveness: Liveness,
    /// By bucket id.
    placements: Vec<Placement>,
    /// Buckets moved from one aggregator to another so far.
    pub(crate) moves: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Moved {
        bucket: usize,
        /// The former owner; `None` if there was none.
        from: Option<EndpointId>,
        to: EndpointId,
    },
    /// The ratios of a bucket's owner may apply again, including ratios that it sent during the
    /// freeze.
    RatiosApply(usize),
}

pub(crate) trait SessionState {
    /// Returns true if the controller has all counts of a bucket that were reported to an aggregator.
    fn is_confirmed(&self, bucket: usize, at: EndpointId) -> bool;

    /// Returns true if an aggregator has sent values that apply to a bucket (no limit, a ratio or a guard),
    /// or if no aggregator has, so that a move to it takes no protection away.
    fn has_directive(&self, bucket: usize, at: EndpointId) -> bool;

    /// Returns true if an aggregator is in contact with the controller. Without contact it has only
    /// the share from before, and none for a bucket that arrives.
    fn reaches_controller(&self, at: EndpointId) -> bool;
}

// === Events ===

impl Assignment {
    pub(crate) const fn new(failover_delay: Duration) -> Self {
        Self {
            liveness: Liveness::new(failover_delay),
            placements: Vec::new(),
            moves: 0,
        }
    }

    /// Sets the list of aggregators. Returns the new ones, to which streams must be opened.
    pub(crate) fn list(
        &mut self,
        now: MonoTime,
        names: &[Arc<str>],
    ) -> Vec<(EndpointId, Arc<str>)> {
        let new = self.liveness.list(now, names);
        self.update_homes(now);
        new
    }

    pub(crate) fn remove_unused(&mut self) -> Vec<EndpointId> {
        let placements = &self.placements;
        self.liveness
            .remove_unlisted(|id| owned(placements, id) > 0)
    }

    /// Adds a bucket; ids are dense from 0. It starts at its home.
    pub(crate) fn add(&mut self, bucket: &str) {
        self.placements
            .push(Placement::new(bucket, self.liveness.home(bucket)));
    }

    /// Applies the rules. Linear in the buckets, and in buckets times aggregators when the candidates have
    /// changed.
    pub(crate) fn on_tick(&mut self, now: MonoTime, sessions: &impl SessionState) -> Vec<Change> {
        self.update_homes(now);
        let placements = self.placements.iter_mut().enumerate();
        let changes: Vec<Change> = placements
            .filter_map(|(bucket, placement)| {
                placement.on_tick(now, bucket, &self.liveness, sessions)
            })
            .collect();
        let is_move = |change: &&Change| matches!(change, Change::Moved { from: Some(_), .. });
        self.moves += changes.iter().filter(is_move).count() as u64;
        changes
    }

    fn update_homes(&mut self, now: MonoTime) {
        if self.liveness.update_candidates(now) {
            for placement in &mut self.placements {
                placement.set_home(self.liveness.home(&placement.bucket));
            }
        }
    }
}

// === Queries ===

impl Assignment {
    pub(crate) fn owner(&self, bucket: usize) -> Option<EndpointId> {
        self.placement(bucket)?.owner
    }

    /// Returns true if the client subscribes to a bucket at an aggregator: its owner or its home. The home
    /// has directives ready by the time it becomes the owner.
    pub(crate) fn is_subscribed(&self, bucket: usize, at: EndpointId) -> bool {
        self.placement(bucket)
            .is_some_and(|placement| placement.is_subscribed(at))
    }

    pub(crate) fn is_draining(&self, bucket: usize) -> bool {
        self.placement(bucket).is_some_and(Placement::is_draining)
    }

    /// Returns true if the ratios of a bucket's owner apply. Its modes and limits always do.
    pub(crate) fn ratios_apply(&self, bucket: usize) -> bool {
        self.placement(bucket).is_some_and(Placement::ratios_apply)
    }

    pub(crate) fn owns_any(&self, id: EndpointId) -> bool {
        owned(&self.placements, id) > 0
    }

    pub(crate) fn name(&self, id: EndpointId) -> Option<&str> {
        self.liveness
            .iter()
            .find(|(other, ..)| *other == id)
            .map(|(_, name, _)| name)
    }

    /// Returns each aggregator's name, whether it is live, and the number of buckets that it owns.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = (&str, bool, usize)> {
        self.liveness
            .iter()
            .map(move |(id, name, is_live)| (name, is_live, owned(&self.placements, id)))
    }

    fn placement(&self, bucket: usize) -> Option<&Placement> {
        let placement = self.placements.get(bucket);
        debug_assert!(placement.is_some(), "bucket {bucket} was never added");
        placement
    }
}

fn owned(placements: &[Placement], id: EndpointId) -> usize {
    let owners = placements.iter().map(|placement| placement.owner);
    owners.filter(|owner| *owner == Some(id)).count()
}

#[cfg(test)]
mod tests;
