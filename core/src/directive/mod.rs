//! What a parent tells a child about its keys, and in which order it may be believed.

mod board;
mod fanout;
mod sequence;
#[cfg(test)]
mod tests;

pub use board::{Board, Posted};
pub use fanout::{Audience, Chunk, Edition, Fanout, Message};
pub use sequence::{Sequence, StaleDirective};

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::decision::Coin;
use crate::decision::Mode;
use crate::decision::coherent::Coherence;
use crate::kill::drill::Drill;
use crate::kill::{Kill, KillGeneration};
use crate::law::Weight;
use crate::law::presence::Presences;
use crate::names::{Bucket, Tenant};
use crate::quantity::DropRatio;
use crate::quantity::{Limit, Rate};
use crate::report::{Echo, InstanceId};
use crate::rollout::Cohort;

/// One reign of a controller: grows with every start, so that an older controller is never believed again. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

/// A message from a parent to a child.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Directives {
    /// The controller's epoch, whoever passes it on; absent when the parent has not heard a controller, and then
    /// nothing but kill generations and echo is in the message.
    pub epoch: Option<Epoch>,
    /// Numbers the parent's messages on this stream, from 1.
    pub seq: u64,
    /// The highest kill generation held.
    pub kill: KillGeneration,
    /// Those of single buckets: all that are held in the first message of a stream, and then what changed.
    pub kills: BTreeMap<Bucket, KillGeneration>,
    /// The latest drill heard of.
    pub drill: Drill,
    /// The hash of the policy in force; absent before there is one.
    pub policy_hash: Option<u64>,
    /// The receipt for the child's reports.
    pub echo: Echo,
    /// How long ago the controller last covered a report of the parent; absent when it never did. A controller says
    /// zero, each hop adds its own monotonic wait, and a relay never resets it.
    pub upstream_age: Option<Duration>,
    /// How often to report; absent means keep what you hold.
    pub report_interval: Option<Duration>,
    /// Who speaks; in the first message of a stream, and nowhere else.
    pub parent: Option<InstanceId>,
    /// How many children the receiver had when it last reported counts here, in whatever process; so that one that
    /// restarted knows whom to wait for. Absent when that is not known, or it has none by its nature.
    pub children: Option<u32>,
    /// To an aggregator: how many aggregators there are on its way to the controller, the parent among them, as far as
    /// that knows. A controller says 0.
    pub above: u32,
    /// What changed, by bucket.
    pub buckets: Vec<BucketDirective>,
}

/// What holds for one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketDirective {
    /// Which bucket.
    pub bucket: Bucket,
    /// True when `keys` is the whole state: a tenant that is not in it has no directive of its own any more.
    pub whole: bool,
    /// What holds for all its keys.
    pub terms: Terms,
    /// Per tenant, in the order of names; a tenant without an entry uses that of the default class.
    pub keys: Vec<KeyDirective>,
}

/// What holds for a bucket as a whole. Always told in full, but for what only one kind of child needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// What the bucket may admit over all zones. Without a number it clears every value of every key.
    pub limit: Limit,
    /// What becomes of refusals, as far as the kill generations held allow.
    pub mode: Mode,
    /// The kill generations that whoever decided the mode knew of.
    pub kill: Kill,
    /// Which instances carry refusals out in canary.
    pub cohort: Cohort,
    /// How clients turn a ratio into decisions.
    pub coin: Coin,
    /// What a coherent coin draws by, the same throughout the fleet; absent where the coin is another one. One that has none
    /// draws independently.
    pub coherence: Option<Coherence>,
    /// What a zone keeps to while the controller is silent.
    pub on_silence: OnSilence,
    /// To an aggregator: among how many children a limit per tenant and a floor are divided.
    pub presences: Option<Presences>,
    /// To an aggregator: its part of the limit while the controller is silent. Absent: keep what you hold.
    pub hold: Option<Rate>,
    /// To a client: how many clients share the zone's guard.
    pub clients: Option<u32>,
}

/// What a zone keeps to while the controller is silent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnSilence {
    /// The rate it was given last, so the limit holds whatever traffic does. The default.
    #[default]
    Allocation,
    /// The drop ratio it was given last, so no traffic is refused only because it moved between zones.
    Ratio,
}

/// What holds for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDirective {
    /// Whose requests.
    pub tenant: Tenant,
    /// What is directed.
    pub values: Values,
}

/// What is directed for a key. Absent: keep what you hold, or admit and count if you hold nothing; never to be
/// mistaken for zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// The probability of refusal.
    pub ratio: Option<DropRatio>,
    /// To an aggregator: what its clients may pass of this key.
    pub rate: Option<Rate>,
    /// To an aggregator: what the guards of its clients leave room for, before their slack.
    pub cap: Option<Rate>,
    /// To an aggregator: what it divides by while the controller is silent.
    pub entitlement: Option<Entitlement>,
    /// To a client: what all guards of the zone together let pass of this key.
    pub guard: Option<Rate>,
    /// To a client: what is offered in the zone, of which its own part of the guard is a share.
    pub offered: Option<Rate>,
}

/// What a tenant may claim in a bucket when there is not enough for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entitlement {
    /// Its share relative to the others, boosts included.
    pub weight: Weight,
    /// What it is not dropped below, over all zones.
    pub floor: Rate,
    /// What it never passes, over all zones.
    pub tenant_limit: Option<Rate>,
    /// Whether policy lists it. All that are not listed share the entitlement of the default class.
    pub declared: bool,
}

impl Values {
    /// These values where they are present, else those of `held`.
    #[must_use]
    pub fn or(self, held: Self) -> Self {
        Self {
            ratio: self.ratio.or(held.ratio),
            rate: self.rate.or(held.rate),
            cap: self.cap.or(held.cap),
            entitlement: self.entitlement.or(held.entitlement),
            guard: self.guard.or(held.guard),
            offered: self.offered.or(held.offered),
        }
    }

    /// What is left where there is no limit: nothing but the entitlement.
    #[must_use]
    pub fn without_limit(self) -> Self {
        Self { entitlement: self.entitlement, ..Self::default() }
    }
}
