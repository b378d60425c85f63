//! The liveness of a client's aggregators: which of them are live, lost or gone, and so which may own
//! buckets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::quantity::MonoTime;

use super::rendezvous;

/// Time after its listing when an aggregator without an answer is gone. One attempt to connect takes up to 2 s. The
/// failover delay need not pass: no counts were sent to the aggregator, so moving its buckets counts none twice.
pub(super) const NEVER_REACHED_MAX: Duration = Duration::from_secs(3);
/// The time that an aggregator must have been live before a bucket is handed back to it, so that a flapping
/// one gets none.
pub(super) const STEADY_AFTER: Duration = Duration::from_secs(5);

/// An aggregator, numbered by its first listing. Numbers are never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EndpointId(pub(crate) u32);

pub(crate) struct Liveness {
    failover_delay: Duration,
    aggregators: BTreeMap<EndpointId, Aggregator>,
    next: u32,
    candidates: Vec<EndpointId>,
}

struct Aggregator {
    name: Arc<str>,
    /// False once the settings or DNS do not name it anymore. It keeps its stream until its buckets
    /// have left.
    is_listed: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It was listed at this time, and has not answered.
    NeverReached(MonoTime),
    /// It answered on its present stream at this time.
    Live(MonoTime),
    /// Its stream ended at this time.
    Lost(MonoTime),
}

impl Liveness {
    pub(super) const fn new(failover_delay: Duration) -> Self {
        Self {
            failover_delay,
            aggregators: BTreeMap::new(),
            next: 0,
            candidates: Vec::new(),
        }
    }

    pub(super) fn list(
        &mut self,
        now: MonoTime,
        names: &[Arc<str>],
    ) -> Vec<(EndpointId, Arc<str>)> {
        for aggregator in self.aggregators.values_mut() {
            aggregator.is_listed = names.contains(&aggregator.name);
        }
        let mut new = Vec::new();
        for name in names {
            if self
                .aggregators
                .values()
                .any(|aggregator| aggregator.name == *name)
            {
                continue;
            }
            let id = EndpointId(self.next);
            self.next += 1;
            let state = State::NeverReached(now);
            self.aggregators.insert(
                id,
                Aggregator {
                    name: Arc::clone(name),
                    is_listed: true,
                    state,
                },
            );
            new.push((id, Arc::clone(name)));
        }
        new
    }

    pub(crate) fn on_live(&mut self, now: MonoTime, id: EndpointId) {
        if let Some(aggregator) = self.aggregators.get_mut(&id)
            && !aggregator.is_live()
        {
            aggregator.state = State::Live(now);
        }
    }

    /// Records that a stream ended. An aggregator that has not answered on it keeps the state it had before.
    pub(crate) fn on_lost(&mut self, now: MonoTime, id: EndpointId) {
        if let Some(aggregator) = self.aggregators.get_mut(&id)
            && aggregator.is_live()
        {
            aggregator.state = State::Lost(now);
        }
    }

    pub(super) fn remove_unlisted(
        &mut self,
        is_used: impl Fn(EndpointId) -> bool,
    ) -> Vec<EndpointId> {
        let mut removed = Vec::new();
        self.aggregators.retain(|id, aggregator| {
            let is_kept = aggregator.is_listed || is_used(*id);
            removed.extend((!is_kept).then_some(*id));
            is_kept
        });
        removed
    }

    /// Returns true if the candidates have changed.
    pub(super) fn update_candidates(&mut self, now: MonoTime) -> bool {
        let present = self
            .aggregators
            .iter()
            .filter(|(_, aggregator)| aggregator.is_listed);
        let present = present
            .map(|(id, _)| *id)
            .filter(|id| !self.is_gone(now, *id));
        let candidates: Vec<EndpointId> = present.collect();
        let changed = candidates != self.candidates;
        self.candidates = candidates;
        changed
    }

    pub(super) fn home(&self, bucket: &str) -> Option<EndpointId> {
        let named = |id: &EndpointId| {
            self.aggregators
                .get(id)
                .map(|aggregator| (*id, &*aggregator.name))
        };
        rendezvous::home(bucket, self.candidates.iter().filter_map(named))
    }

    pub(super) fn is_live(&self, id: EndpointId) -> bool {
        matches!(self.state(id), Some(State::Live(_)))
    }

    pub(super) fn is_steady(&self, now: MonoTime, id: EndpointId) -> bool {
        matches!(self.state(id), Some(State::Live(since)) if now.since(since) >= STEADY_AFTER)
    }

    pub(super) fn is_gone(&self, now: MonoTime, id: EndpointId) -> bool {
        match self.state(id) {
            Some(State::Live(_)) => false,
            Some(State::NeverReached(since)) => {
                now.since(since) >= NEVER_REACHED_MAX.min(self.failover_delay)
            }
            Some(State::Lost(since)) => now.since(since) >= self.failover_delay,
            None => true,
        }
    }

    fn state(&self, id: EndpointId) -> Option<State> {
        self.aggregators.get(&id).map(|aggregator| aggregator.state)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (EndpointId, &str, bool)> {
        self.aggregators
            .iter()
            .map(|(id, aggregator)| (*id, &*aggregator.name, aggregator.is_live()))
    }
}

impl Aggregator {
    const fn is_live(&self) -> bool {
        matches!(self.state, State::Live(_))
    }
}
