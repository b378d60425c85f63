//! The durable state of a controller: its epoch, the current kills, the rollout stage of each
//! entry, and its children. Pure: the store saves it, the brain decides by it.

mod expired;
mod kills;
mod stages;
pub mod store;
#[cfg(test)]
mod tests;

pub use expired::{ExpiredAggregator, ExpiredAggregators};
pub use kills::{BucketSwitch, Command, End, Held};
pub(crate) use kills::{Now, hex};
pub use stages::{
    BeforeKill, Cause, Change, CohortSums, Evidence, HISTORY_MAX, QueryEvidence, SavedSlot,
    SavedStageStats, Stage,
};

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use plimsoll_core::decision::coherent::{Coherence, CoinKey};
use plimsoll_core::directive::Epoch;
use plimsoll_core::kill::{KillGeneration, Scope};
use plimsoll_core::names::{Bucket, Name, Zone};
use plimsoll_policy::{Offered, Policy, PolicyTexts};
use serde::{Deserialize, Serialize};

/// The state that a controller keeps across restarts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DurableState {
    /// The epoch. It grows with every start, and beyond epochs of earlier controllers that aggregators name.
    pub epoch: Epoch,
    /// The fleet's key for coherent coins; without one they draw independently.
    pub coin_key: Option<CoinKey>,
    /// The texts of the current policy; the next start compares the files with them; `None` before
    /// the first one.
    #[serde(default)]
    pub policy: Option<Arc<PolicyTexts>>,
    /// The hash of the policy that guardrails hold back, which a restart does not release.
    #[serde(default)]
    pub held: Option<String>,
    /// The hash of the policy that is held back for any reason, and since when in seconds since 1970; a restart that holds
    /// it again keeps the time.
    #[serde(default)]
    pub held_since: Option<(String, i64)>,
    /// The texts of the policy before the last change, to which an undo returns.
    #[serde(default)]
    pub earlier: Option<Arc<PolicyTexts>>,
    /// The policy of the files, if it was undone.
    #[serde(default)]
    pub undone: Option<Undone>,
    /// The traffic at the busiest moment of the last minutes; guardrails judge by it after a
    /// restart.
    #[serde(default)]
    pub traffic: Offered,
    /// The kill generation of the fleet; odd means killed.
    pub kill: KillGeneration,
    /// True while the policy file has `kill_switch: true`.
    pub killed_by_file: bool,
    /// The command that kills the fleet, or a kill that was learned from a child.
    pub killed_by_command: Option<Command>,
    /// The latest command that ended kills of the fleet.
    #[serde(default)]
    pub fleet_kill_ended: Option<End>,
    /// The kill switches of buckets that had their own kill at some time.
    #[serde(default)]
    pub bucket_kills: BTreeMap<Bucket, BucketSwitch>,
    /// The generation of every other bucket. The kills of buckets up to it have ended and are forgotten.
    #[serde(default)]
    pub forgotten: KillGeneration,
    /// Stored kill orders that were carried out, by the revisions at which they were created, until they are deleted.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub orders_done: BTreeSet<u64>,
    /// True until the first policy is applied, if an earlier state could not be read or the policy could not be
    /// recorded: new entries begin in shadow.
    pub lost: bool,
    /// The reason why the state differs from the state that the fleet knew, until an operator
    /// acknowledges it.
    #[serde(default)]
    pub loss: Option<String>,
    /// The stage of each entry of the policy, a bucket or a pattern.
    pub stages: BTreeMap<String, Stage>,
    /// The latest changes of stages, oldest first.
    #[serde(default)]
    pub history: VecDeque<Change>,
    /// The number of changes ever made.
    #[serde(default)]
    pub changes: u64,
    /// The statistics of each entry's stage at the last save. Statistics of another build begin
    /// anew.
    #[serde(default, deserialize_with = "stages::readable")]
    pub stage_stats: BTreeMap<String, SavedStageStats>,
    /// The time of the last tick in seconds since 1970: boosts that end later are still to be judged.
    #[serde(default)]
    pub ticked_s: Option<i64>,
    /// The aggregators that a restart waits for, by zone and stable name: they have greeted, and have neither left nor
    /// expired, nor been forgotten.
    pub children: BTreeSet<(Zone, Name)>,
    /// The aggregators without a farewell whose shares were released.
    #[serde(default)]
    pub expired: ExpiredAggregators,
}

/// A policy that an operator has undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undone {
    /// Its hash.
    pub hash: String,
    /// The operator and the reason.
    pub why: String,
}

impl DurableState {
    /// Returns the state of a controller that never ran before.
    pub fn first_start() -> Self {
        Self::default()
    }

    /// Returns the state of a controller with an unreadable saved state: every entry begins in
    /// shadow.
    pub fn lost() -> Self {
        Self {
            lost: true,
            ..Self::first_start()
        }
    }

    pub(crate) fn coherence(&self) -> Option<Coherence> {
        Some(Coherence {
            key: self.coin_key?,
            salt: self.epoch.0,
        })
    }

    /// Returns since when the policy with this hash is held back, in seconds since 1970; `None` before a tick has noted it.
    pub(crate) fn held_since_s(&self, hash: &str) -> Option<i64> {
        let (held, since_s) = self.held_since.as_ref()?;
        (held == hash).then_some(*since_s)
    }

    /// Applies a policy. A mode that differs from the one in the policy before is an operator's order.
    pub(crate) fn on_policy(&mut self, policy: &Policy) {
        if self.policy.as_ref() == Some(policy.texts()) {
            // A restart, maybe after the modes of a held policy: only a changed mode is an order.
            policy
                .entries()
                .for_each(|(name, entry)| self.recall_mode(&name, entry.mode));
        } else {
            self.earlier = self.policy.take();
            self.undone = None;
        }
        self.policy = Some(Arc::clone(policy.texts()));
        self.held = None;
        self.killed_by_file = policy.kill_switch;
        let entries: BTreeMap<String, _> = policy.entries().collect();
        self.stages.retain(|name, _| entries.contains_key(name));
        for (name, entry) in entries {
            self.on_mode(
                &name,
                entry.mode,
                entry.rollout.require_gates,
                self.is_entry_killed(&name),
            );
        }
        self.stage_stats
            .retain(|name, _| self.stages.contains_key(name));
        self.lost = false;
        self.settle_generation(&Scope::Fleet, policy);
        self.settle_held(policy);
    }

    /// Applies the urgent parts of a held policy: its kill switch, and lowered modes. `in_force` is
    /// the policy that stays active.
    pub(crate) fn on_held(&mut self, held: &Policy, in_force: &Policy) {
        self.held = Some(held.hash().to_string());
        self.on_urgent(held, in_force, held.kill_switch);
    }

    /// Applies the urgent parts of a policy that cannot be recorded. It ends no kill, and a restart judges it anew.
    pub(crate) fn on_unlogged(&mut self, offered: &Policy, in_force: &Policy) {
        self.on_urgent(
            offered,
            in_force,
            self.killed_by_file || offered.kill_switch,
        );
    }

    fn on_urgent(&mut self, offered: &Policy, in_force: &Policy, killed_by_file: bool) {
        self.killed_by_file = killed_by_file;
        for (name, entry) in offered.entries() {
            self.on_mode_held(&name, entry.mode);
        }
        self.settle_generation(&Scope::Fleet, in_force);
    }

    /// Applies the current policy again, after the files have returned to it from a held one.
    pub(crate) fn on_recall(&mut self, policy: &Policy) {
        self.held = None;
        for (name, entry) in policy.entries() {
            self.recall_mode(&name, entry.mode);
        }
        self.killed_by_file = policy.kill_switch;
        self.settle_generation(&Scope::Fleet, policy);
    }

    pub(crate) fn is_entry_killed(&self, entry: &str) -> bool {
        let alone = self
            .bucket_kills
            .iter()
            .find(|(bucket, _)| bucket.as_str() == entry);
        // The causes count: the generation may follow them only later.
        let fleet = self.killed_by_file || self.killed_by_command.is_some();
        fleet || alone.is_some_and(|(_, switch)| switch.generation.is_killed())
    }
}
