//! The headroom of one bucket in this zone: the first excess, the grants to new clients, and the slack and depth
//! of its clients' pools.

use plimsoll_core::decision::token_bucket::TokenCount;
use plimsoll_core::directive::{Headroom, Terms, ZonePool};
use plimsoll_core::law::presence::Presences;
use plimsoll_core::law::{FirstExcess, Grants, LearnedDepth, Slack, parameters};
use plimsoll_core::quantity::{MonoTime, Rate};
use plimsoll_core::report::Counts;

use super::allowances::rounded;

#[derive(Debug, Default)]
pub(super) struct BucketHeadroom {
    excess: FirstExcess,
    grants: Grants,
    slack: Slack,
    depth: LearnedDepth,
    /// Requests/s that its clients may pass of all keys together; 0 in overload.
    room: f64,
    /// The time of the latest directive, on the grid.
    directed: Option<MonoTime>,
}

impl BucketHeadroom {
    /// Accounts for a directive: clients have `room`, and `offered` is what they offer just now. Returns true
    /// if a first excess may still pass: a few requests above the room, before ratios follow.
    pub(super) fn on_directive(&mut self, now: MonoTime, room: f64, offered: f64) -> bool {
        let directed = self.directed.replace(now).unwrap_or(now);
        self.room = room;
        let span = now.since(directed);
        self.excess.on_span(room, offered, span);
        self.grants.on_span(room, offered, span);
        self.excess.is_left()
    }

    /// Takes tokens for a client that has just joined and lacks `wanted` of them; `None` while there are too few.
    pub(super) fn grant(&mut self, wanted: f64) -> Option<TokenCount> {
        self.grants.take(wanted)
    }

    pub(super) fn on_period(&mut self, counts: Counts, settled: bool) {
        self.slack.on_period(counts, self.room);
        self.depth.on_period(counts, self.room, settled);
    }

    /// The pool of clients with this headroom, who offer `offered` requests/s in the bucket. `sharing` is the
    /// weight of all that share a limit here.
    pub(super) fn pool(
        &self,
        headroom: Option<f64>,
        offered: f64,
        terms: &Terms,
        sharing: f64,
    ) -> ZonePool {
        let zones = terms.presences.unwrap_or(Presences::ONE).as_f64() * sharing;
        let even = terms.limit.per_second().map_or(0.0, Rate::per_second) / zones;
        ZonePool {
            rate: headroom
                .and_then(|headroom| rounded(headroom * self.slack.factor()))
                .map_or(Headroom::None, Headroom::Shared),
            offered: rounded(offered).unwrap_or_default(),
            depth: self.depth.factor(),
            burst: TokenCount::new(parameters::POOL_BURST.as_secs_f64() * even),
        }
    }
}
