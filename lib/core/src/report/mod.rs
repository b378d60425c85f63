//! Reports: messages of a child with cumulative counts for its parent. Cumulative counts make loss,
//! repetition and reordering harmless.

mod allowance;
mod books;
mod counts;
mod evidence;
mod identity;
mod ingest;
mod outbox;
mod rejected;
mod tallies;
#[cfg(test)]
mod tests;
mod weighing;

pub use allowance::{CLIENTS_MAX, DECISIONS_PER_S_MAX};
pub use books::Books;
pub use counts::{COLUMNS, Counts, Tally};
pub use evidence::{COHORTS_MAX, CohortKey, Evidence, Outcomes, Side};
pub use identity::{Identity, InstanceId, Role};
pub use ingest::{Entered, Entry, Ledger, New, Origin};
pub use outbox::{Handover, Outbox};
pub use rejected::InvalidReport;
pub use tallies::Tallies;
pub use weighing::{INSTANCE_WEIGHT_MAX, Weighing};

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::decision::Mode;
use crate::directive::Leader;
use crate::exchange::path::Path;
use crate::kill::drill::{Drill, Spread};
use crate::kill::{KillClaim, KillGeneration, KillOrder, OrderId, Scope};
use crate::law::tail::Tail;
use crate::names::{Bucket, Key, KeyId, Name, Tenant, Zone};
use crate::quantity::{MonoTime, Rate};

/// Maximum number of [callers](Report::callers) in one report.
pub const CALLERS_MAX: usize = 400;
/// Maximum number of [callers](Report::callers) of one bucket that an aggregator reports, and that a controller shows.
pub const CALLERS_PER_BUCKET_MAX: usize = 20;

/// Defines a key on a stream, and where its books continue (see [`Books`]).
///
/// The ids of a stream are dense: a new id is the number of ids defined so far. An id that is defined again
/// belongs to another key from then on; all counts sent for the previous key were confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDefinition {
    /// The key.
    pub key: Key,
    /// Its counts that the controller has confirmed; zero for a key that this instance never sent before.
    pub base: Counts,
    /// Its counts in the last report sent on any earlier stream; zero for a key that this instance never sent
    /// before.
    pub sent: Counts,
    /// True if the parent may continue from its own memory of the key: it was the last parent that
    /// this instance sent counts of the key to, and has merged some of them or never knew another
    /// key of this name. Any other parent forgets its own counts of the key: they cannot
    /// distinguish lost counts from counts of another parent, nor this key from an earlier one of
    /// the same name.
    pub continues: bool,
}

/// The mode of a bucket at a child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportedMode {
    /// From an aggregator, in a greeting: the mode that a controller sent it.
    pub directed: Option<Mode>,
    /// The clients, this one or those connected below, that carry out less than the mode that they were sent.
    pub unapplied: u32,
}

/// The controllers that a child knows of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportedLead {
    /// The greatest controller held, or at an aggregator a greater one that a child claims; absent if none is
    /// known. A client leaves out its instance if the parent itself named it.
    pub leader: Option<Leader>,
    /// From an aggregator: the age of the latest report that this controller has confirmed, which shows that
    /// it was alive then. Absent if it confirmed none, and if only clients know of it.
    pub age: Option<Duration>,
    /// From an aggregator: another controller that a child or the parent names. It has no effect, and is
    /// shown.
    pub other: Option<Leader>,
}

/// One message from a child to its parent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The number of the child's message on this stream, from 1.
    pub seq: u64,
    /// True if further parts of the report follow. Until the last one, parts carry only definitions
    /// and tallies.
    pub more: bool,
    /// The identity of the child, only in the greeting, the first report of a stream.
    pub identity: Option<Identity>,
    /// From an aggregator, in a greeting: its version of Plimsoll. Shown to operators, without effect.
    pub version: Option<Name>,
    /// The child's monotonic time. Absent while no counts are sent: until the parent has answered on this stream,
    /// and from an aggregator that has just started.
    pub time: Option<MonoTime>,
    /// The controllers that the child knows of.
    pub lead: ReportedLead,
    /// The highest kill generation held.
    pub kill: KillGeneration,
    /// The kill generations of single buckets: all in a greeting, then changes, and from time to time all again.
    pub kills: BTreeMap<Bucket, KillGeneration>,
    /// From an aggregator: kills ordered there or below it, and their ends, that the controller has
    /// not confirmed yet, once per stream. Each order is a new kill, regardless of its generation.
    /// After an end the buckets concerned have to be in shadow, regardless of decisions made
    /// without knowledge of the kill.
    pub orders: BTreeMap<OrderId, KillOrder>,
    /// From an aggregator: generations that children hold above its own and that moved nothing. Sent like `kills`.
    pub claims: BTreeMap<Scope, KillClaim>,
    /// The latest drill.
    pub drill: Drill,
    /// From an aggregator: the highest drill number of its children.
    pub claimed_drill: Drill,
    /// From an aggregator: the time that the drill took to reach the clients below it, by zone, if that
    /// changed.
    pub spreads: BTreeMap<Zone, Spread>,
    /// The number of connected children of the child.
    pub children: u32,
    /// From an aggregator: the number of clients connected to it and to the aggregators below it.
    pub clients: u32,
    /// The clients, this one or those connected below, that are killed locally: by a kill file or by their
    /// environment.
    pub killed_locally: u32,
    /// The clients, this one or those connected below, whose store of exact quotas does not answer.
    pub quota_store_down: u32,
    /// From an aggregator: the chain of aggregators below it; empty in a greeting.
    pub path: Path,
    /// New subscriptions to buckets on this stream, and from time to time all of them again: a parent drops a
    /// bucket that no child asks for any more.
    pub subscriptions: Vec<Bucket>,
    /// Buckets that the child does not hold anymore. They apply before the subscriptions of the
    /// same report.
    pub unsubscriptions: Vec<Bucket>,
    /// From an aggregator, in a greeting: the holds of its buckets, from any controller.
    pub holds: BTreeMap<Bucket, Rate>,
    /// The modes of buckets: in a greeting all that have something to say, then only changes.
    pub modes: BTreeMap<Bucket, ReportedMode>,
    /// From a client, in a greeting: the unlisted names that it holds as established, which an aggregator that has
    /// just started does not know.
    pub established: BTreeSet<Key>,
    /// From an aggregator: the demand of each class of unlisted names that cuts some of them.
    pub tails: BTreeMap<Key, Tail>,
    /// From an aggregator: names that may exceed their tenant limit over all zones, with their rates here. At most
    /// [`LIMITED_MAX`](crate::directive::LIMITED_MAX).
    pub limited: Vec<(Key, Rate)>,
    /// From an aggregator, every 5 s: the unlisted names with the highest rates, with their rates here. Empty means
    /// unchanged. Shown to operators, without effect. At most [`CALLERS_MAX`].
    pub callers: Vec<(Key, Rate)>,
    /// From an aggregator: unlisted names without a plan that the catalogue of tenants may have. At most
    /// [`CATALOGUED_MAX`](crate::directive::CATALOGUED_MAX).
    pub asked: Vec<Tenant>,
    /// Keys new on this stream, by the child's ids. They apply before the tallies of the same report.
    pub definitions: BTreeMap<KeyId, KeyDefinition>,
    /// Cumulative counts by the child's ids; a key that is absent is unchanged.
    pub tallies: Tallies,
    /// The evidence for rollout gates since the last report with evidence.
    pub evidence: Evidence,
    /// True if the child stops in order: its share is released immediately. An aggregator with clients does not set
    /// it.
    pub leaving: bool,
}

impl Report {
    /// Returns true if the report names an order for a scope, or its end.
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

/// The acknowledgement of a child's reports by its parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Echo {
    /// The highest report merged here; 0 when none was.
    pub covered: u64,
    /// The highest report contained in a roll-up that the controller has covered; 0 when none is.
    pub confirmed: u64,
}
