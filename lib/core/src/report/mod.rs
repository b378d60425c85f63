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
use crate::kill::{KillNews, KillsBelow};
use crate::law::tail::Tail;
use crate::names::{Bucket, Key, KeyId, Name, Tenant};
use crate::quantity::{MonoTime, Rate};

/// Maximum number of [callers](ReportedNames::callers) in one report.
pub const CALLERS_MAX: usize = 400;
/// Maximum number of [callers](ReportedNames::callers) of one bucket that an aggregator reports, and that a
/// controller shows.
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

/// What only the greeting has, the first report of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Greeting {
    /// The identity of the child; absent in every other report.
    pub identity: Option<Identity>,
    /// From an aggregator: its version of Plimsoll. Shown to operators, without effect.
    pub version: Option<Name>,
    /// From an aggregator: the holds of its buckets, from any controller.
    pub holds: BTreeMap<Bucket, Rate>,
    /// From a client: the unlisted names that it holds as established, which an aggregator that has
    /// just started does not know.
    pub established: BTreeSet<Key>,
}

impl From<Option<Identity>> for Greeting {
    fn from(identity: Option<Identity>) -> Self {
        Self {
            identity,
            ..Self::default()
        }
    }
}

/// What an aggregator reports about the names of tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportedNames {
    /// The demand of each class of unlisted names that cuts some of them.
    pub tails: BTreeMap<Key, Tail>,
    /// Names that may exceed their tenant limit over all zones, with their rates here. At most
    /// [`LIMITED_MAX`](crate::directive::LIMITED_MAX).
    pub limited: Vec<(Key, Rate)>,
    /// Every 5 s: the unlisted names with the highest rates, with their rates here. Empty means
    /// unchanged. Shown to operators, without effect. At most [`CALLERS_MAX`].
    pub callers: Vec<(Key, Rate)>,
    /// Unlisted names without a plan that the catalogue of tenants may have. At most
    /// [`CATALOGUED_MAX`](crate::directive::CATALOGUED_MAX).
    pub asked: Vec<Tenant>,
}

/// Changes to the buckets that a child subscribes to. A key in the report subscribes to its bucket as well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionChanges {
    /// New subscriptions on this stream, and from time to time all of them again: a parent drops a
    /// bucket that no child asks for any more.
    pub added: Vec<Bucket>,
    /// Buckets that the child does not hold anymore. They apply before `added`.
    pub ended: Vec<Bucket>,
}

impl From<Vec<Bucket>> for SubscriptionChanges {
    fn from(added: Vec<Bucket>) -> Self {
        Self {
            added,
            ended: Vec::new(),
        }
    }
}

/// Numbers of clients: the child itself, or those connected to it and to the aggregators below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounts {
    /// From an aggregator: the connected clients.
    pub connected: u32,
    /// The clients that are killed locally, by a kill file.
    pub killed_locally: u32,
    /// The clients whose store of exact quotas does not answer.
    pub quota_store_down: u32,
}

impl ClientCounts {
    /// Returns these numbers, each at most `max`.
    pub fn at_most(self, max: u32) -> Self {
        Self {
            connected: self.connected.min(max),
            killed_locally: self.killed_locally.min(max),
            quota_store_down: self.quota_store_down.min(max),
        }
    }

    /// Returns the sums with other clients.
    pub const fn plus(self, other: Self) -> Self {
        Self {
            connected: self.connected.saturating_add(other.connected),
            killed_locally: self.killed_locally.saturating_add(other.killed_locally),
            quota_store_down: self.quota_store_down.saturating_add(other.quota_store_down),
        }
    }
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

impl From<Option<Leader>> for ReportedLead {
    fn from(leader: Option<Leader>) -> Self {
        Self {
            leader,
            ..Self::default()
        }
    }
}

/// One message from a child to its parent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The number of the child's message on this stream, from 1.
    pub seq: u64,
    /// True if further parts of the report follow. Until the last one, parts carry only number, time, clients,
    /// definitions and tallies.
    pub more: bool,
    /// What only the greeting has, the first report of a stream.
    pub greeting: Greeting,
    /// The child's monotonic time. Absent while no counts are sent: until the parent has answered on this stream,
    /// and from an aggregator that has just started.
    pub time: Option<MonoTime>,
    /// The controllers that the child knows of.
    pub lead: ReportedLead,
    /// The kills that the child holds.
    pub kills: KillNews,
    /// From an aggregator: what its children report about kills.
    pub kills_below: KillsBelow,
    /// The number of connected children of the child.
    pub children: u32,
    /// The clients that the report is about.
    pub clients: ClientCounts,
    /// From an aggregator: the chain of aggregators below it; empty in a greeting.
    pub path: Path,
    /// The buckets that the child subscribes to.
    pub subscriptions: SubscriptionChanges,
    /// The modes of buckets: in a greeting all that have something to say, then only changes.
    pub modes: BTreeMap<Bucket, ReportedMode>,
    /// From an aggregator: the names that its clients send.
    pub names: ReportedNames,
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

/// The acknowledgement of a child's reports by its parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Echo {
    /// The highest report merged here; 0 when none was.
    pub covered: u64,
    /// The highest report contained in a roll-up that the controller has covered; 0 when none is.
    pub confirmed: u64,
}
