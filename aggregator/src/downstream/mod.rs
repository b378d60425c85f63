//! Everything below this aggregator: the sessions of its children and the directives for clients and child
//! aggregators.

mod child_aggregators;
mod classes;
mod foreign;
mod newcomers;
mod standings;
mod traffic;

pub(crate) use child_aggregators::{ChildAggregator, ChildAggregators};
pub(crate) use foreign::{ForeignClients, is_foreign};
pub(crate) use newcomers::Newcomers;
pub(crate) use standings::{SentStandings, Standings};
pub(crate) use traffic::{Shares, Traffic};

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_core::directive::{Board, CatalogueNews, Message, take_answers};
use plimsoll_core::exchange::sessions::{self, Head, Sessions};
use plimsoll_core::exchange::{StreamId, StreamRejected};
use plimsoll_core::kill::Kills;
use plimsoll_core::law::tail::Standing;
use plimsoll_core::law::{Parameters, parameters};
use plimsoll_core::names::{Bucket, KeyId};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{CLIENTS_MAX, ClientCounts, Echo, Identity, InstanceId, Report, Role};

use crate::zone::bounds::Bounds;

/// Time that a client still counts as one that shares limits, after its stream has ended.
const LEFT_GRACE: Duration = Duration::from_millis(1_500);

/// For this long after it joined, a client may have smaller parts than its traffic needs.
const JOIN_SETTLES: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Downstream {
    pub(crate) sessions: Sessions,
    pub(crate) aggregators: ChildAggregators,
    pub(crate) foreign: ForeignClients,
    pub(crate) newcomers: Newcomers,
    pub(crate) standings: Standings,
    pub(crate) client_board: Board,
    /// The time of the latest division of limits, and true if there were clients; `None` if it is due.
    divided: Option<(MonoTime, bool)>,
    /// The time when the latest client greeted.
    joined: Option<MonoTime>,
}

impl Downstream {
    pub(crate) fn new(own: InstanceId, bounds: &Bounds) -> Self {
        Self {
            sessions: Sessions::new(own, bounds.children_max, bounds.keys_per_child_max)
                .with_keys_of_aggregators(bounds.keys_max)
                .with_decisions_per_s_max(bounds.decisions_per_s_max),
            aggregators: ChildAggregators::default(),
            foreign: ForeignClients::default(),
            newcomers: Newcomers::default(),
            standings: Standings::default(),
            client_board: Board::default(),
            divided: None,
            joined: None,
        }
    }

    /// Opens the session of a child. `board` holds the current directives: child aggregators are
    /// sent all buckets that the policy names, since a zone holds policy before its clients have
    /// traffic.
    ///
    /// # Errors
    /// When the stream is superseded, there is no room for another child, or the instance has greeted with another
    /// role, zone or service.
    pub(crate) fn greet(
        &mut self,
        now: MonoTime,
        stream: StreamId,
        identity: Identity,
        report: &Report,
        board: &Board,
    ) -> Result<(), StreamRejected> {
        let child = self.sessions.open(now, stream, identity.clone())?;
        if identity.role == Role::Aggregator {
            let named = board.iter().filter(|(_, posted)| posted.terms().named);
            named.for_each(|(bucket, _)| child.subscribe(bucket));
            if let Some(replaced) = self.aggregators.greet(now, &identity, report) {
                self.sessions.remove(replaced);
            }
            self.divided = None;
        } else {
            self.joined = Some(now);
            self.standings.open(identity.instance);
        }
        Ok(())
    }

    pub(crate) fn close(&mut self, now: MonoTime, stream: StreamId) -> Option<InstanceId> {
        let instance = self.sessions.close(now, stream)?;
        self.aggregators.close(now, instance);
        Some(instance)
    }

    pub(crate) fn remove(&mut self, instance: InstanceId) {
        self.sessions.remove(instance);
        self.aggregators.by_instance.remove(&instance);
    }

    pub(crate) fn prune(&mut self, now: MonoTime) {
        self.sessions.prune(now);
        self.aggregators.prune(now);
        let sessions = &self.sessions;
        self.standings
            .prune(|client| sessions.get(client).is_some());
        self.newcomers.prune(now, |client| {
            sessions
                .get(client)
                .is_some_and(|child| child.stream.is_some())
        });
    }

    pub(crate) fn connected(&self) -> u32 {
        u32::try_from(self.sessions.connected_count()).unwrap_or(u32::MAX)
    }

    pub(crate) fn clients_below(&self) -> ClientCounts {
        self.sessions.clients().at_most(CLIENTS_MAX)
    }

    /// The number of clients that are connected or have just left.
    pub(crate) fn clients(&self, now: MonoTime) -> usize {
        let children = self.sessions.connected_count() + self.sessions.left_within(now, LEFT_GRACE);
        children.saturating_sub(self.aggregators.within(now, LEFT_GRACE))
    }

    pub(crate) fn is_settled(&self, now: MonoTime) -> bool {
        self.joined
            .is_none_or(|joined| now.since(joined) >= JOIN_SETTLES)
    }

    pub(crate) fn subscribe_aggregators(&mut self, bucket: &Bucket) {
        for instance in self.aggregators.by_instance.keys() {
            if let Some(child) = self.sessions.get_mut(*instance) {
                child.subscribe(bucket);
            }
        }
    }

    pub(crate) fn remove_buckets(&mut self, gone: &BTreeSet<Bucket>) {
        self.client_board.remove(gone);
        self.aggregators
            .by_instance
            .values_mut()
            .for_each(|child| child.board.remove(gone));
        self.sessions.unsubscribe(gone);
    }

    /// Returns true if limits have to be divided anew between clients and child aggregators: once a
    /// tick, or immediately when the first client arrived or the last one left. Records the
    /// division.
    pub(crate) fn begin_division(
        &mut self,
        now: MonoTime,
        has_clients: bool,
        parameters: &Parameters,
    ) -> bool {
        let is_due = self.divided.is_none_or(|(at, had_clients)| {
            // Occasions come a little early or late. Half a period decides which one is meant.
            had_clients != has_clients
                || now.since(at) + parameters::FAST_PERIOD / 2 >= parameters.tick
        });
        if is_due {
            self.divided = Some((now, has_clients));
        }
        is_due
    }

    pub(crate) const fn is_undivided(&self) -> bool {
        self.divided.is_none()
    }

    /// Sends every child the whole state again and divides limits anew, as if nothing had been sent.
    pub(crate) fn resend_all(&mut self) {
        self.sessions
            .iter_mut()
            .for_each(sessions::ChildSession::resend_all);
        self.divided = None;
    }

    pub(crate) fn take_standings(&mut self, stream: StreamId) -> Vec<(KeyId, Standing)> {
        let Some(child) = self.sessions.by_stream(stream) else {
            return Vec::new();
        };
        self.standings.of(child.identity.instance).take()
    }

    /// Takes what the child of a stream is told of the catalogue: a client of its keys, an aggregator of names.
    pub(crate) fn take_catalogued(&mut self, stream: StreamId) -> CatalogueNews {
        let Some(child) = self.sessions.by_stream(stream) else {
            return CatalogueNews::default();
        };
        let instance = child.identity.instance;
        let mut news = CatalogueNews::default();
        match self.aggregators.by_instance.get_mut(&instance) {
            Some(aggregator) => news.names = take_answers(&mut aggregator.catalogued),
            None => news.keys = self.standings.of(instance).classes.take(),
        }
        news
    }

    /// The version of all directives for children. It grows with every change.
    pub(crate) fn version(&self) -> u64 {
        self.client_board.version() + self.aggregators.changes
    }

    /// The next message for the child of a stream, if there is news or a heartbeat is due. `values` is false
    /// while values are withheld. `hops` is the number of aggregators between this one and the controller.
    pub(crate) fn next_message(
        &mut self,
        now: MonoTime,
        stream: StreamId,
        head: Head,
        values: bool,
        kills: &Kills,
        hops: u32,
    ) -> Option<Message> {
        let child = self.sessions.by_stream(stream)?;
        let echo = Echo {
            covered: child.books.seq(),
            confirmed: child.confirmed,
        };
        let Some(aggregator) = self
            .aggregators
            .by_instance
            .get_mut(&child.identity.instance)
        else {
            return child.next_message(now, head, &mut self.client_board, values, echo, kills);
        };
        let mut message =
            child.next_message(now, head, &mut aggregator.board, values, echo, kills)?;
        message.head.children = aggregator.children;
        message.head.above = hops.saturating_add(1);
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::names::{Name, Zone};

    use super::*;

    fn at(ms: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_millis(ms))
    }

    fn identity(role: Role, instance: u128) -> Identity {
        Identity {
            instance: InstanceId(instance),
            name: Name::new("host:1").unwrap(),
            service: Name::new("shop").unwrap(),
            zone: Zone::new("a").unwrap(),
            role,
        }
    }

    fn downstream() -> Downstream {
        Downstream::new(InstanceId(100), &Bounds::default())
    }

    fn greet(downstream: &mut Downstream, stream: u64, identity: Identity) {
        let (report, board) = (Report::default(), Board::default());
        downstream
            .greet(at(0), StreamId(stream), identity, &report, &board)
            .unwrap();
    }

    #[test]
    fn departed_clients_count_briefly_unlike_aggregators() {
        let mut downstream = downstream();
        greet(&mut downstream, 1, identity(Role::Client, 1));
        greet(&mut downstream, 2, identity(Role::Aggregator, 2));
        assert_eq!((downstream.connected(), downstream.clients(at(0))), (2, 1));
        assert_eq!(downstream.close(at(0), StreamId(1)), Some(InstanceId(1)));
        assert_eq!(
            (downstream.clients(at(1_500)), downstream.clients(at(1_501))),
            (1, 0)
        );
    }

    #[test]
    fn restarted_child_aggregator_replaces_its_old_session() {
        let mut downstream = downstream();
        greet(&mut downstream, 1, identity(Role::Aggregator, 1));
        greet(&mut downstream, 2, identity(Role::Aggregator, 2));
        assert!(downstream.sessions.is_superseded(StreamId(1)));
        assert_eq!(
            (
                downstream.connected(),
                &downstream.aggregators.path(0).0[..]
            ),
            (1, &[InstanceId(2)][..])
        );
    }

    #[test]
    fn limits_are_divided_per_tick_and_arrival() {
        let parameters = Parameters::default();
        let mut downstream = downstream();
        assert!(downstream.begin_division(at(0), false, &parameters));
        assert!(!downstream.begin_division(at(100), false, &parameters));
        assert!(
            downstream.begin_division(at(100), true, &parameters),
            "the first client came"
        );
        let next = parameters.tick.as_millis() as u64 + 100;
        assert!(!downstream.begin_division(at(next - 100), true, &parameters));
        assert!(downstream.begin_division(at(next), true, &parameters));
        assert!(!downstream.is_undivided());
        greet(&mut downstream, 1, identity(Role::Aggregator, 1));
        assert!(downstream.is_undivided());
        assert!(downstream.begin_division(at(next), true, &parameters));
    }
}
