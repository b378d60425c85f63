//! The commands that kill and that end kills, as the controller saves them.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_admin::kill_api::{KillOn, KillOrder};
use plimsoll_core::kill::KillGeneration;
use plimsoll_core::names::Text;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::InstanceId;
use serde::{Deserialize, Serialize};

/// The step in seconds of a saved rest of a time to live: it is saved once a step and not once a tick.
const LEFT_STEP_S: u64 = 30;

/// An operator's command to kill, or a kill that an aggregator reported; the latter's operator and
/// reason are unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// The reason; absent if an aggregator reported the kill.
    pub reason: Option<Text>,
    /// The name of the operator's token; without a token, the operator as given in the command.
    pub by: Option<Text>,
    /// The start in seconds since 1970 by this machine's clock; absent if it was not known.
    pub since_s: Option<i64>,
    /// The end in seconds since 1970, as expected when it was ordered; absent if the kill lasts until a command
    /// ends it.
    pub until_s: Option<i64>,
    /// The rest of the time to live in seconds, rounded up to a step; 0 once it has expired. A restart does not exceed it: a
    /// time of day that jumps back lengthens no kill.
    pub left_s: Option<u64>,
    /// The end by the clock of this process, from the first tick on.
    #[serde(skip)]
    pub ends_at: Option<MonoTime>,
    /// The controller process where it was given, by its id in hex; absent if an aggregator reported it.
    #[serde(
        rename = "controller",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub given_at: Option<String>,
    /// The processes with an active order, by their ids in hex, and the generation of each order. A reported kill ends
    /// with the last of them, and they outlast the time to live of an operator's command (`after_expiry`).
    #[serde(rename = "orders", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ordered_by: BTreeMap<String, KillGeneration>,
}

/// The latest command that ended the kills of a scope: orders given before it have ended as well, even if
/// their aggregator reports them only later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The time by the clock of this process; absent in a state that another process saved.
    #[serde(skip)]
    pub(super) at: Option<MonoTime>,
    /// The time in seconds since 1970; absent if it was not known.
    pub(super) at_s: Option<i64>,
    /// True if the buckets of the scope were put in shadow: it was killed then, or an order from before has arrived since.
    pub(super) was_killed: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// By the clock of this process.
    pub(crate) at: MonoTime,
    /// Seconds since 1970; unknown before the first tick.
    pub(crate) unix_s: Option<i64>,
}

/// A process, as the commands name it.
pub(crate) fn hex(instance: InstanceId) -> String {
    format!("{:032x}", instance.0)
}

impl Command {
    /// The command of an order that was given at `since_s`, in seconds since 1970, by this operator.
    pub(crate) fn ordered(order: &KillOn, by: Option<Text>, since_s: i64) -> Self {
        let until_s = |ttl| since_s.saturating_add(i64::try_from(ttl).unwrap_or(i64::MAX));
        Self {
            reason: Some(order.reason.clone()),
            by,
            since_s: Some(since_s),
            until_s: order.ttl_s.map(until_s),
            left_s: order.ttl_s,
            ..Self::default()
        }
    }

    pub(crate) fn learned(since_s: Option<i64>) -> Self {
        Self {
            since_s,
            ..Self::default()
        }
    }

    pub(crate) fn why(&self) -> String {
        self.reason.as_ref().map_or_else(
            || "reported by an aggregator".to_owned(),
            ToString::to_string,
        )
    }

    /// The kill that is left when this command expires: the orders given at aggregators.
    pub(super) fn after_expiry(&self, unix_s: i64) -> Option<Self> {
        let ordered_by = self.ordered_by.clone();
        (!ordered_by.is_empty()).then(|| Self {
            ordered_by,
            ..Self::learned(Some(unix_s))
        })
    }

    /// Counts down the time to live. Returns true if the rest should be saved.
    pub(super) fn count_down(&mut self, now: MonoTime, unix_s: i64) -> bool {
        let Some(until_s) = self.until_s else {
            return false;
        };
        let left = u64::try_from(until_s.saturating_sub(unix_s)).unwrap_or(0);
        let left = Duration::from_secs(left.min(self.left_s.unwrap_or(u64::MAX)));
        let ends_at = *self.ends_at.get_or_insert_with(|| now + left);
        let left_s = Some(saved_left_s(ends_at.since(now)));
        std::mem::replace(&mut self.left_s, left_s) != left_s
    }

    pub(super) fn is_expired(&self) -> bool {
        self.left_s == Some(0)
    }

    pub(super) const fn is_learned(&self) -> bool {
        self.reason.is_none()
    }
}

/// The rest of a time to live, as it is saved.
fn saved_left_s(left: Duration) -> u64 {
    let steps = left.as_secs().div_ceil(LEFT_STEP_S);
    match left.is_zero() {
        true => 0,
        false => steps.max(1) * LEFT_STEP_S,
    }
}

impl From<&Command> for KillOrder {
    fn from(command: &Command) -> Self {
        Self {
            reason: command.reason.clone(),
            by: command.by.clone(),
            since_s: command.since_s,
            until_s: command.until_s,
        }
    }
}

impl End {
    /// Returns true if an order of this age was given before the end. In doubt it was not: a kill
    /// that returns can be ended again.
    pub(super) fn is_after(&self, age: Duration, now: Now) -> bool {
        let passed = match (self.at, self.at_s, now.unix_s) {
            (Some(at), ..) => Some(now.at.since(at)),
            // Both times are cut to seconds.
            (None, Some(at_s), Some(unix_s)) => u64::try_from(unix_s.saturating_sub(at_s))
                .ok()
                .map(|passed| Duration::from_secs(passed + 1)),
            _ => None,
        };
        passed.is_some_and(|passed| age > passed)
    }
}
