//! The takeover by a controller that has just started: zones live on their holds until enough of their
//! traffic is known to send them rates.

use plimsoll_core::law::{Parameters, parameters};
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::MonoTime;

use crate::aggregators::{Aggregator, Aggregators};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Takeover {
    started_at: MonoTime,
    /// True once rates are sent.
    pub(crate) leading: bool,
    /// True if the state at the start had aggregators.
    knows_aggregators: bool,
    /// Maximum number of aggregators that were expected at a time since the start, or since one was dismissed.
    pub(crate) expected: usize,
    /// True once all aggregators that the state names were sent rates: nothing is reserved any more.
    is_complete: bool,
}

impl Takeover {
    pub(crate) const fn new(started_at: MonoTime, knows_aggregators: bool) -> Self {
        Self {
            started_at,
            leading: false,
            knows_aggregators,
            expected: 0,
            is_complete: false,
        }
    }

    /// Returns true once every aggregator that reported before the start has had time to come back.
    pub(crate) fn has_waited(&self, now: MonoTime) -> bool {
        now.since(self.started_at) >= parameters::HOLDS_KEPT
    }

    /// Chooses the aggregators that are sent rates from now on.
    ///
    /// The first rates are sent once every connected aggregator has shown its traffic, or `START_WAIT` after the
    /// start if one is connected. Afterwards an aggregator that arrives with a hold stays on it until it has shown its
    /// traffic or as much time has passed. An aggregator without any hold is sent rates immediately.
    pub(crate) fn on_tick(
        &mut self,
        now: MonoTime,
        aggregators: &mut Aggregators,
        parameters: &Parameters,
    ) {
        let waited = now.since(self.started_at) >= parameters::START_WAIT;
        let has_shown = |aggregator: &Aggregator| {
            aggregator.rated_reports > 0
                || now.since(aggregator.greeted_at) >= parameters::START_WAIT
        };
        if !self.leading {
            let connected = aggregators.iter();
            let connected = connected.filter(|(_, it)| !it.is_silent(parameters));
            let mut connected = connected.peekable();
            let any = connected.peek().is_some();
            self.leading =
                any && (waited || connected.all(|(_, aggregator)| has_shown(aggregator)));
        }
        if self.leading {
            for aggregator in aggregators.by_place.values_mut() {
                aggregator.served |= has_shown(aggregator) || aggregator.holds.is_empty();
            }
        }
    }

    /// The share, 0..=1, of the rates of missing zones that is still reserved for them. It begins with all of it, and
    /// shrinks to nothing, because some of these zones may never return. Nothing is reserved once all known aggregators
    /// are sent rates, as `all_served` tells.
    pub(crate) fn reserved_share(&mut self, now: MonoTime, all_served: bool) -> f64 {
        // Later, missing aggregators are given up and unknown.
        self.is_complete |= self.knows_aggregators && all_served && !self.has_waited(now);
        if self.is_complete {
            return 0.0;
        }
        let left = parameters::HOLDS_GONE.saturating_sub(now.since(self.started_at));
        (left.as_secs_f64() / (parameters::HOLDS_GONE - parameters::HOLDS_KEPT).as_secs_f64())
            .min(1.0)
    }

    /// The part of a bucket's `limit` in requests/s that may be divided: all of it, less the
    /// reserved share of what missing zones live on. An aggregator without a hold has restarted,
    /// and had an even part among the `expected` ones.
    pub(crate) fn divisible(
        bucket: &Bucket,
        limit: f64,
        aggregators: &Aggregators,
        expected: usize,
        reserved_share: f64,
    ) -> f64 {
        if reserved_share <= 0.0 {
            return limit;
        }
        let served = aggregators.iter().filter(|(_, it)| it.served);
        let even = limit / expected.max(served.clone().count()) as f64;
        let brought = |aggregator: &Aggregator| {
            aggregator
                .first_holds
                .get(bucket)
                .map_or(even, |hold| hold.per_second())
        };
        let held: f64 = served.map(|(_, aggregator)| brought(aggregator)).sum();
        limit - reserved_share * (limit - held).max(0.0)
    }
}
