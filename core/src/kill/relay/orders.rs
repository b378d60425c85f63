//! Kill orders given at an aggregator that the controller has not confirmed yet.

use std::collections::{BTreeMap, BTreeSet};

use crate::kill::Scope;
use crate::names::Bucket;
use crate::report::Report;

/// The unconfirmed kill orders by scope.
#[derive(Debug, Default)]
pub(super) struct Orders(BTreeMap<Scope, Order>);

/// An unconfirmed kill order.
#[derive(Clone, Copy, Debug)]
struct Order {
    /// False once the kill has ended, here or at a child. The entry stays until the controller knows: a
    /// controller that did not know of the kill may have decided to enforce meanwhile.
    killed: bool,
    /// The first report of the present stream with the order.
    sent: Option<u64>,
}

impl Orders {
    /// Enters an order given here, or its end. Without an order for the scope the end needs no entry: the
    /// controller knows the kill, and the generation shows its end.
    pub(super) fn give(&mut self, scope: &Scope, killed: bool) {
        let order = Order { killed, sent: None };
        if killed {
            self.0.insert(scope.clone(), order);
        } else if let Some(held) = self.0.get_mut(scope) {
            *held = order;
        }
    }

    /// Enters an order of a child aggregator. Returns true if it is new.
    pub(super) fn relay(&mut self, scope: Scope) -> bool {
        let before = self.0.insert(scope, Order { killed: true, sent: None });
        before.is_none_or(|before| !before.killed)
    }

    /// Enters the end of a child aggregator's order, unless an order for the scope is held: the end of one
    /// order does not end another. Returns true if it is new.
    pub(super) fn relay_end(&mut self, scope: Scope) -> bool {
        let is_new = !self.0.contains_key(&scope);
        self.0.entry(scope).or_insert(Order { killed: false, sent: None });
        is_new
    }

    /// Starts a new stream, on which every order is sent again.
    pub(super) fn on_open(&mut self) {
        self.0.values_mut().for_each(|order| order.sent = None);
    }

    /// Fills a report, after its number was set, with the orders that were not sent on the present stream.
    pub(super) fn fill(&mut self, report: &mut Report) {
        report.ordered = self.unsent(true);
        report.ended = self.unsent(false);
        self.0.values_mut().for_each(|order| order.sent = order.sent.or(Some(report.seq)));
    }

    fn unsent(&self, killed: bool) -> BTreeSet<Scope> {
        let unsent = self.0.iter().filter(|(_, order)| order.killed == killed && order.sent.is_none());
        unsent.map(|(scope, _)| scope.clone()).collect()
    }

    /// Drops the orders in the reports up to `confirmed`: the controller decides modes with knowledge of them
    /// from now on.
    pub(super) fn confirm(&mut self, confirmed: u64) {
        self.0.retain(|_, order| order.sent.is_none_or(|sent| sent > confirmed));
    }

    /// The scopes of orders in force.
    pub(super) fn in_force(&self) -> impl Iterator<Item = &Scope> {
        self.0.iter().filter(|(_, order)| order.killed).map(|(scope, _)| scope)
    }

    /// Returns true if an order, in force or ended, concerns a bucket.
    pub(super) fn concern(&self, bucket: &Bucket) -> bool {
        self.0.keys().any(|scope| scope.bucket().is_none_or(|alone| alone == bucket))
    }
}
