//! The kills in one message, in either direction.

use std::collections::BTreeMap;

use super::drill::{Drill, Spread};
use super::{KillClaim, KillGeneration, KillOrder, OrderId, Scope};
use crate::names::{Bucket, Zone};
use crate::report::InstanceId;

/// The kill generations, kill orders and drill that the sender of a message holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KillNews {
    /// The generation of the whole fleet.
    pub fleet: KillGeneration,
    /// The generations of single buckets: all in the first message of a stream, then changes. A child sends all
    /// again from time to time.
    pub buckets: BTreeMap<Bucket, KillGeneration>,
    /// From an aggregator: kills ordered there or below it, and their ends, that the controller has
    /// not confirmed yet, once per stream. Each order is a new kill, regardless of its generation.
    /// After an end the buckets concerned have to be in shadow, regardless of decisions made
    /// without knowledge of the kill. From a controller: the kills that it could not save, and their ends. At most
    /// [`KILL_ORDERS_MAX`](super::KILL_ORDERS_MAX).
    pub orders: BTreeMap<OrderId, KillOrder>,
    /// The latest drill.
    pub drill: Drill,
}

/// What the children of an aggregator report about kills and drills.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KillsBelow {
    /// The generations that children hold above the aggregator's own and that moved nothing: all in a greeting,
    /// then changes, and from time to time all again.
    pub claims: BTreeMap<Scope, KillClaim>,
    /// The highest drill number of its children.
    pub drill: Drill,
    /// The time that the drill took to reach the clients below it, by zone, if that changed.
    pub spreads: BTreeMap<Zone, Spread>,
}

impl KillNews {
    /// Returns the generations of all scopes in the message, in order.
    pub fn generations(&self) -> impl Iterator<Item = (Scope, KillGeneration)> {
        let buckets = self.buckets.iter();
        let buckets =
            buckets.map(|(bucket, generation)| (Scope::Bucket(bucket.clone()), *generation));
        std::iter::once((Scope::Fleet, self.fleet)).chain(buckets)
    }

    /// Returns the generation of a scope; `None` if the message has none.
    pub fn generation(&self, scope: &Scope) -> Option<KillGeneration> {
        match scope {
            Scope::Fleet => Some(self.fleet),
            Scope::Bucket(bucket) => self.buckets.get(bucket).copied(),
        }
    }

    /// Returns true if the message has an order for a scope, or its end.
    pub fn has_order(&self, scope: &Scope) -> bool {
        let first = OrderId {
            scope: scope.clone(),
            given_at: InstanceId(0),
        };
        self.orders
            .range(first..)
            .next()
            .is_some_and(|(id, _)| id.scope == *scope)
    }
}

impl From<KillGeneration> for KillNews {
    /// Returns the news of a kill of the fleet, or of its end.
    fn from(fleet: KillGeneration) -> Self {
        Self {
            fleet,
            ..Self::default()
        }
    }
}
