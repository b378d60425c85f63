//! Kill orders that the controller has not confirmed yet: given at an aggregator, below it, or at a controller above that
//! could not save them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::kill::{KILL_ORDERS_MAX, KILLED_BUCKETS_MAX, KillGeneration, KillOrder, OrderId};
use crate::names::Bucket;
use crate::quantity::MonoTime;

/// The number of orders from which on none of child aggregators is added. The rest of [`KILL_ORDERS_MAX`] is
/// for orders given here: at most one for each scope.
const RELAYED_MAX: usize = KILL_ORDERS_MAX - (KILLED_BUCKETS_MAX + 1);

/// The unconfirmed kill orders. An order that has ended stays until the controller knows: a controller that
/// did not know of the kill may have decided to enforce meanwhile.
#[derive(Debug, Default)]
pub(super) struct Orders(BTreeMap<OrderId, Held>);

#[derive(Clone, Copy, Debug)]
struct Held {
    /// The order as it was at the time `at`.
    order: KillOrder,
    at: MonoTime,
    /// The first report of the present stream with the order.
    sent: Option<u64>,
}

impl Orders {
    pub(super) fn give(
        &mut self,
        now: MonoTime,
        id: OrderId,
        generation: KillGeneration,
        ends_held: bool,
    ) {
        let order = KillOrder {
            generation,
            age: Duration::ZERO,
            ends_held,
        };
        self.enter(now, id, order);
    }

    fn enter(&mut self, now: MonoTime, id: OrderId, order: KillOrder) {
        let held = Held {
            order,
            at: now,
            sent: None,
        };
        self.0.insert(id, held);
    }

    /// Enters an order of a child aggregator. Returns true if it is new, or a later state of it.
    pub(super) fn relay(&mut self, now: MonoTime, id: &OrderId, order: KillOrder) -> bool {
        let is_new = match self.0.get(id) {
            Some(held) => held.order.generation < order.generation,
            None => self.0.len() < RELAYED_MAX,
        };
        if is_new {
            self.enter(now, id.clone(), order);
        }
        is_new
    }

    /// Enters an order of the controller above, or the end of one that is held. Later reports carry it until a controller
    /// confirms it.
    pub(super) fn on_parent(&mut self, now: MonoTime, id: &OrderId, order: KillOrder) {
        if order.is_in_force() || self.0.contains_key(id) {
            self.relay(now, id, order);
        }
    }

    pub(super) fn generation(&self, id: &OrderId) -> Option<KillGeneration> {
        self.0.get(id).map(|held| held.order.generation)
    }

    pub(super) fn on_open(&mut self) {
        self.0.values_mut().for_each(|held| held.sent = None);
    }

    /// Returns the orders for report `seq`: all that were not sent on the present stream.
    pub(super) fn next(&mut self, now: MonoTime, seq: u64) -> BTreeMap<OrderId, KillOrder> {
        let unsent = self.0.iter_mut().filter(|(_, held)| held.sent.is_none());
        unsent
            .map(|(id, held)| {
                let age = held.order.age.saturating_add(now.since(held.at));
                held.sent = Some(seq);
                (id.clone(), KillOrder { age, ..held.order })
            })
            .collect()
    }

    /// Drops the orders in the reports up to `confirmed`: the controller decides modes with knowledge of them
    /// from now on.
    pub(super) fn confirm(&mut self, confirmed: u64) {
        self.0
            .retain(|_, held| held.sent.is_none_or(|sent| sent > confirmed));
    }

    pub(super) fn in_force(&self) -> impl Iterator<Item = &OrderId> {
        self.0
            .iter()
            .filter(|(_, held)| held.order.is_in_force())
            .map(|(id, _)| id)
    }

    /// Returns true if an order, active or ended, concerns a bucket.
    pub(super) fn concern(&self, bucket: &Bucket) -> bool {
        self.0
            .keys()
            .any(|id| id.scope.bucket().is_none_or(|alone| alone == bucket))
    }
}
