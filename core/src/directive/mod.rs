//! What a parent tells a child about its keys, and in which order it may be believed.

mod board;
mod order;

pub use board::{Board, Posted};
pub use order::{Order, Stale};

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bucket::{Bucket, Tenant};
use crate::kill::KillGeneration;
use crate::rate::Limit;
use crate::ratio::DropRatio;
use crate::report::{Echo, InstanceId};
use crate::rollout::Mode;

/// One reign of a controller: grows with every start, so that an older controller is never believed again. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

/// A message from a parent to a child.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Directives {
    /// The controller's epoch, whoever passes it on; absent when the parent has not heard a controller, and then
    /// nothing but kill generation and echo is in the message.
    pub epoch: Option<Epoch>,
    /// Numbers the parent's messages on this stream, from 1.
    pub seq: u64,
    /// The highest kill generation held.
    pub kill: KillGeneration,
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
    /// What the bucket may admit. Without a number it clears every ratio.
    pub limit: Limit,
    /// What becomes of refusals.
    pub mode: Mode,
    /// Per tenant; a tenant without an entry uses that of the default class.
    pub keys: Vec<KeyDirective>,
}

/// What holds for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDirective {
    /// Whose requests.
    pub tenant: Tenant,
    /// The probability of refusal. Absent: keep what you hold, or admit and count if you hold nothing. Never to be
    /// mistaken for zero.
    pub ratio: Option<DropRatio>,
}

#[cfg(test)]
mod tests;
