//! Directives: messages of a parent that set limits, modes and drop ratios of its children's keys.

mod board;
mod catalogued;
mod fanout;
mod headroom;
mod leader;
mod sequence;
mod tail;
#[cfg(test)]
mod tests;
mod unlisted;

pub use board::{Board, Posted};
pub use catalogued::{CATALOGUED_MAX, CatalogueNews, take_answers};
pub use fanout::{Audience, AudienceUpdate, BucketUpdate, Chunk, Message};
pub use headroom::{Headroom, PoolDepth, ZonePool};
pub use leader::{EPOCH_STEP_MAX, Leader, SentLead};
pub use sequence::{Sequence, StaleDirective};
pub use tail::{ClassTerms, LIMITED_MAX, NewShare, TailCut};
pub use unlisted::{NEAREST_BYTES_MAX, Unlisted};

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::decision::coherent::Coherence;
use crate::decision::token_bucket::TokenCount;
use crate::decision::{Coin, Mode};
use crate::kill::{Kill, KillNews};
use crate::law::Weight;
use crate::law::presence::Presences;
use crate::law::tail::Standing;
use crate::names::{Bucket, DEFAULT_TENANT, Key, KeyId, Tenant};
use crate::quantity::{DropRatio, Limit, Rate};
use crate::quota::BucketQuotas;
use crate::report::{Echo, InstanceId};
use crate::rollout::Cohort;

/// The epoch (term) of a controller: higher with every start, so that messages of an older controller are
/// refused. Never 0 in a message.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(pub u64);

/// The grants in one message, at most; further ones wait for the next.
pub const GRANTS_MAX: usize = 64;
/// The standings in one message, at most; further ones wait for the next.
pub const STANDINGS_MAX: usize = 16_384;

/// A message from a parent to a child.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Directives {
    /// The controller that decided.
    pub lead: SentLead,
    /// Numbers the parent's messages on this stream, from 1.
    pub seq: u64,
    /// The kills that the parent holds.
    pub kills: KillNews,
    /// The acknowledgement of the child's reports.
    pub echo: Echo,
    /// The time since the controller last covered a report of the parent; absent if it never did. A
    /// controller sends zero, each hop adds its own monotonic wait, and a relay never resets it.
    pub upstream_age: Option<Duration>,
    /// The report interval; absent means unchanged.
    pub report_interval: Option<Duration>,
    /// The parent's instance, only in the first message of a stream.
    pub parent: Option<InstanceId>,
    /// The number of children that the receiver had when it last reported counts here, also in an earlier
    /// process. A restarted aggregator waits for as many. Absent if unknown, and for clients.
    pub children: Option<u32>,
    /// To an aggregator: the known number of aggregators between it and the controller, the parent included.
    /// A controller sends 0.
    pub above: u32,
    /// To a client that has just joined: tokens for immediate requests, by bucket, in addition to
    /// the tokens of its pool. They are granted once and lapse. At most [`GRANTS_MAX`].
    pub grants: BTreeMap<Bucket, TokenCount>,
    /// To a client: the standings of unlisted names that it reported and that differ from those sent before on this
    /// stream, by its own ids, ascending. At most [`STANDINGS_MAX`].
    pub standings: Vec<(KeyId, Standing)>,
    /// To an aggregator: the rate that each of these names may pass there, which is its part of the name's tenant limit.
    /// Names that are not here may pass all of theirs. At most [`LIMITED_MAX`]. Absent means unchanged.
    pub limits: Option<Vec<(Key, Rate)>>,
    /// What the catalogue of tenants says.
    pub catalogue: CatalogueNews,
    /// The changes, by bucket.
    pub buckets: Vec<BucketDirective>,
}

/// The directive of one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketDirective {
    /// The bucket.
    pub bucket: Bucket,
    /// True if `keys` is the whole state: an absent tenant does not have its own directive anymore.
    pub whole: bool,
    /// The terms of the bucket, for all its keys.
    pub terms: Terms,
    /// The directives of tenants, in the order of names; a tenant without an entry uses that of its
    /// class.
    pub keys: Vec<KeyDirective>,
}

/// The terms of a bucket as a whole. Always sent in full, except for quotas, and for fields that only one kind of
/// child needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// True if the policy lists the bucket by its exact name: it then has room on every tier before buckets
    /// that children ask for, and every aggregator is sent it.
    pub named: bool,
    /// Set if no entry of the policy covers the bucket: its requests are counted and never limited.
    /// Absent for a bucket with a limit that is only not known yet.
    pub unlisted: Option<Unlisted>,
    /// The limit over all zones. A limit without a number clears every value of every key but its entitlement.
    pub limit: Limit,
    /// The mode, subject to the kill generations held.
    pub mode: Mode,
    /// The kill generations known when the mode was decided.
    pub kill: Kill,
    /// The canary cohort.
    pub cohort: Cohort,
    /// The coin for turning a ratio into decisions at clients.
    pub coin: Coin,
    /// The key and salt of a coherent coin, equal throughout the fleet; absent for other coins. Without them
    /// a client draws independently.
    pub coherence: Option<Coherence>,
    /// To an aggregator: the number of children between which tenant limits and floors are divided. Absent counts as one.
    pub presences: Option<Presences>,
    /// To an aggregator: its hold, the part of the limit while the controller is silent. Absent means
    /// unchanged.
    pub hold: Option<Rate>,
    /// To an aggregator: its part of the bucket's shared headroom. Absent means unchanged.
    pub headroom: Option<Headroom>,
    /// To a client: the number of clients that share the zone's guard. Without it the client has no guard.
    pub clients: Option<u32>,
    /// To a client: the headroom pool of the zone. Absent means unchanged.
    pub pool: Option<ZonePool>,
    /// To a client: the levels for cutting unlisted names. Absent means unchanged.
    pub cut: Option<TailCut>,
    /// To an aggregator: its part of the traffic of new unlisted names. Absent means unchanged.
    pub new_share: Option<NewShare>,
    /// The same two for the class of each plan, by its name. Empty means unchanged.
    pub plans: BTreeMap<Tenant, ClassTerms>,
    /// The exact quotas, which clients enforce behind the coin. Absent means unchanged.
    pub quotas: Option<BucketQuotas>,
}

/// The directive of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDirective {
    /// The tenant.
    pub tenant: Tenant,
    /// The values.
    pub values: Values,
}

/// The values of a key. An absent value means unchanged; a child that holds none admits and counts. Absent is
/// not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// The probability of refusal.
    pub ratio: Option<DropRatio>,
    /// To an aggregator: the rate that its clients may pass of this key.
    pub rate: Option<Rate>,
    /// To an aggregator: the rate of its clients' guards, before their slack.
    pub cap: Option<Rate>,
    /// To an aggregator: the tenant's claim, for the division while the controller is silent.
    pub entitlement: Option<Entitlement>,
    /// To a client: the rate of all guards of the zone together.
    pub guard: Option<Rate>,
    /// To a client: the offered rate of the zone; the client's share of it sets its part of the guard.
    pub offered: Option<Rate>,
    /// True if the tenant limit, and not the bucket's limit, stops the key: it has no part of the headroom.
    pub at_tenant_limit: Option<bool>,
}

/// The claim of a tenant on an overloaded bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entitlement {
    /// The weight, boosts included.
    pub weight: Weight,
    /// The floor over all zones.
    pub floor: Rate,
    /// The tenant limit over all zones.
    pub tenant_limit: Option<Rate>,
    /// The entry that sets it.
    pub limit_owner: LimitOwner,
}

/// The entry of the policy that sets the limit of a tenant in a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitOwner {
    /// The bucket, for all tenants.
    #[default]
    Bucket,
    /// The plan of the tenant.
    Plan,
    /// The tenant.
    Tenant,
}

impl LimitOwner {
    /// Returns the word for texts about a limit: `bucket`, `plan` or `tenant`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bucket => "bucket",
            Self::Plan => "plan",
            Self::Tenant => "tenant",
        }
    }
}

impl Terms {
    /// Returns the terms of a class of unlisted names.
    pub fn of_class(&self, class: &str) -> ClassTerms {
        match class {
            DEFAULT_TENANT => ClassTerms {
                cut: self.cut,
                new_share: self.new_share,
            },
            _ => self.plans.get(class).copied().unwrap_or_default(),
        }
    }

    /// Sets the terms of classes of unlisted names, in place of those of all classes.
    pub fn set_classes(&mut self, classes: impl IntoIterator<Item = (Tenant, ClassTerms)>) {
        let mut plans: BTreeMap<Tenant, ClassTerms> = classes.into_iter().collect();
        let default = plans.remove(DEFAULT_TENANT).unwrap_or_default();
        (self.cut, self.new_share) = (default.cut, default.new_share);
        self.plans = plans;
    }

    /// Returns these terms; terms whose absence means unchanged are taken from `held`.
    pub fn or(self, held: &Self) -> Self {
        Self {
            hold: self.hold.or(held.hold),
            headroom: self.headroom.or(held.headroom),
            pool: self.pool.or(held.pool),
            cut: self.cut.or(held.cut),
            new_share: self.new_share.or(held.new_share),
            plans: if self.plans.is_empty() {
                held.plans.clone()
            } else {
                self.plans
            },
            quotas: self.quotas.or_else(|| held.quotas.clone()),
            ..self
        }
    }
}

impl Values {
    /// Returns these values where present, else the values of `held`.
    pub fn or(self, held: Self) -> Self {
        Self {
            ratio: self.ratio.or(held.ratio),
            rate: self.rate.or(held.rate),
            cap: self.cap.or(held.cap),
            entitlement: self.entitlement.or(held.entitlement),
            guard: self.guard.or(held.guard),
            offered: self.offered.or(held.offered),
            at_tenant_limit: self.at_tenant_limit.or(held.at_tenant_limit),
        }
    }

    /// Returns the values for a bucket without a limit: only the entitlement.
    pub fn without_limit(self) -> Self {
        Self {
            entitlement: self.entitlement,
            ..Self::default()
        }
    }
}
