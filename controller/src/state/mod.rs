//! What a controller must not forget: its epoch, which kills are in force, how far each bucket has been rolled out, and
//! who its children were. Pure: the store writes it, the brain decides by it.

mod kills;
mod stages;
pub mod store;

pub use kills::{BucketSwitch, Command, Held};
pub use stages::{Cause, Change, Exhibit, HISTORY_MAX, QueryExhibit, Stage, Sums};

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use plimsoll_core::names::{Bucket, Name, Zone};
use plimsoll_core::decision::coherent::{Coherence, CoinKey};
use plimsoll_core::directive::Epoch;
use plimsoll_core::kill::{KillGeneration, Scope};
use plimsoll_policy::Policy;
use serde::{Deserialize, Serialize};

use crate::rollout::SavedTrial;

/// The state of one controller across its restarts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Durable {
    /// Grows with every start, and beyond whatever a child claims to have heard.
    pub epoch: Epoch,
    /// The fleet's key for coherent coins; absent until somebody has drawn one, and then such coins draw independently.
    pub coin_key: Option<CoinKey>,
    /// The kill switch: odd means killed.
    pub kill: KillGeneration,
    /// The policy file says killed.
    pub killed_by_file: bool,
    /// Somebody says killed by command, or it was learned from a child.
    #[serde(deserialize_with = "kills::command_or_flag")]
    pub killed_by_command: Option<Command>,
    /// The switches of buckets that were killed alone at some time.
    #[serde(default)]
    pub bucket_kills: BTreeMap<Bucket, BucketSwitch>,
    /// Earlier state could not be read: whatever is not known begins in shadow.
    pub lost: bool,
    /// How far each entry of the policy, a bucket's name or a pattern, has been rolled out.
    pub stages: BTreeMap<String, Stage>,
    /// How they came to be where they are: the latest changes, in their order.
    #[serde(default)]
    pub history: VecDeque<Change>,
    /// How many changes there ever were.
    #[serde(default)]
    pub changes: u64,
    /// What gates had seen of each entry's stage when it was last written down.
    #[serde(default)]
    pub trials: BTreeMap<String, SavedTrial>,
    /// The aggregators that reported last, by zone and stable name.
    pub children: BTreeSet<(Zone, Name)>,
}

impl Durable {
    /// The state of a controller that never ran before.
    #[must_use]
    pub fn first_start() -> Self {
        Self {
            epoch: Epoch(0),
            coin_key: None,
            kill: KillGeneration::default(),
            killed_by_file: false,
            killed_by_command: None,
            bucket_kills: BTreeMap::new(),
            lost: false,
            stages: BTreeMap::new(),
            history: VecDeque::new(),
            changes: 0,
            trials: BTreeMap::new(),
            children: BTreeSet::new(),
        }
    }

    /// The state of a controller whose state was there and cannot be read: everything is in shadow.
    #[must_use]
    pub fn lost() -> Self {
        Self { lost: true, ..Self::first_start() }
    }

    /// What coherent coins draw by in this epoch.
    #[must_use]
    pub fn coherence(&self) -> Option<Coherence> {
        Some(Coherence { key: self.coin_key?, salt: self.epoch.0 })
    }

    /// Takes up a policy: what changed in it since the last one is somebody's act.
    pub fn on_policy(&mut self, policy: &Policy) {
        self.killed_by_file = policy.kill_switch();
        let exact = policy.exact_buckets().map(|(bucket, entry)| (bucket.to_string(), entry));
        let entries: BTreeMap<String, _> = exact.chain(policy.patterns()).collect();
        self.stages.retain(|name, _| entries.contains_key(name));
        for (name, entry) in entries {
            self.on_mode(&name, entry.mode(), entry.rollout().require_gates, self.is_entry_killed(&name));
        }
        self.trials.retain(|name, _| self.stages.contains_key(name));
        self.lost = false;
        self.turn(&Scope::Fleet, policy);
        self.settle_held(policy);
    }

    /// Takes of a policy that is held back what must not wait: its kill switch, and modes that ask for less. `in_force` is
    /// the one that stays.
    pub fn on_held(&mut self, held: &Policy, in_force: &Policy) {
        self.killed_by_file = held.kill_switch();
        for (bucket, entry) in held.exact_buckets() {
            self.on_mode_held(bucket.as_str(), entry.mode());
        }
        for (pattern, entry) in held.patterns() {
            self.on_mode_held(&pattern, entry.mode());
        }
        self.turn(&Scope::Fleet, in_force);
    }

    /// The files say again what is in force, after others were held back.
    pub fn on_recall(&mut self, policy: &Policy) {
        for (bucket, entry) in policy.exact_buckets() {
            self.recall_mode(bucket.as_str(), entry.mode());
        }
        for (pattern, entry) in policy.patterns() {
            self.recall_mode(&pattern, entry.mode());
        }
        self.killed_by_file = policy.kill_switch();
        self.turn(&Scope::Fleet, policy);
    }

    /// Whether an entry of the policy is killed: with the fleet, or as a bucket of that very name.
    #[must_use]
    pub fn is_entry_killed(&self, entry: &str) -> bool {
        let alone = self.bucket_kills.iter().find(|(bucket, _)| bucket.as_str() == entry);
        // By its causes, which a file may have changed before the generation follows.
        let fleet = self.killed_by_file || self.killed_by_command.is_some();
        fleet || alone.is_some_and(|(_, switch)| switch.generation.is_killed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_policy::{ONE_CLASS_TENANTS, Source};
    use plimsoll_core::decision::Mode;

    fn policy(kill: bool, mode: &str, gates: bool) -> Policy {
        let text = format!(
            "kill_switch: {kill}\nbuckets:\n  b: {{ limit: 1, mode: {mode} }}\n  \"p/*\": {{ limit: 1, mode: enforce }}\n\
             rollout: {{ require_gates: {gates} }}\n"
        );
        let policy = Source { name: "policy.yaml", text: &text };
        let tenants = Source { name: "tenants.yaml", text: ONE_CLASS_TENANTS };
        Policy::read(policy, tenants).unwrap().0
    }

    fn stage(durable: &Durable) -> Mode {
        durable.stages["b"].stage
    }

    #[test]
    fn a_first_start_begins_at_the_files_mode_and_a_loss_in_shadow() {
        let mut durable = Durable::first_start();
        durable.on_policy(&policy(false, "enforce", true));
        assert_eq!((stage(&durable), durable.stages["p/*"].stage), (Mode::Enforce, Mode::Enforce));

        let mut durable = Durable::lost();
        durable.on_policy(&policy(false, "enforce", false));
        assert_eq!((stage(&durable), durable.stages["p/*"].stage), (Mode::Shadow, Mode::Shadow));
        // Reading the same file again is nobody's act.
        durable.on_policy(&policy(false, "enforce", false));
        assert_eq!(stage(&durable), Mode::Shadow);
    }

    #[test]
    fn a_state_from_before_there_were_keys_is_read_and_a_key_survives_being_written() {
        let with_key = Durable { coin_key: Some(CoinKey::from_bytes([0xfe; 16])), ..Durable::first_start() };
        let text = serde_json::to_string(&with_key).unwrap();
        assert_eq!(serde_json::from_str::<Durable>(&text).unwrap(), with_key);
        assert!(!format!("{with_key:?}").contains("254"), "and it does not show");
        let mut older: serde_json::Value = serde_json::from_str(&text).unwrap();
        for later in ["coin_key", "history", "changes", "trials"] {
            older.as_object_mut().unwrap().remove(later).unwrap();
        }
        assert_eq!(serde_json::from_value::<Durable>(older).unwrap(), Durable::first_start());
        assert_eq!(Durable::lost().coherence(), None);
    }

    #[test]
    fn a_kill_leaves_shadow_behind_and_an_edge_of_the_mode_resumes() {
        let mut durable = Durable::first_start();
        durable.on_policy(&policy(false, "enforce", false));
        durable.on_policy(&policy(true, "enforce", false));
        assert!(durable.kill.is_killed());
        assert_eq!(stage(&durable), Mode::Shadow);
        let killed = durable.kill;
        durable.on_policy(&policy(true, "enforce", false));
        assert_eq!(durable.kill, killed, "no edge, no new generation");

        durable.on_policy(&policy(false, "enforce", false));
        assert!(!durable.kill.is_killed() && durable.kill > killed);
        assert_eq!(stage(&durable), Mode::Shadow);

        durable.on_policy(&policy(false, "shadow", false));
        durable.on_policy(&policy(false, "enforce", false));
        assert_eq!(stage(&durable), Mode::Enforce);
        assert_eq!(durable.stages["p/*"].stage, Mode::Shadow, "only what was changed resumes");
    }

    #[test]
    fn raising_the_mode_during_a_kill_does_not_survive_it() {
        let mut durable = Durable::first_start();
        durable.on_policy(&policy(true, "shadow", false));
        durable.on_policy(&policy(true, "enforce", false));
        assert_eq!(stage(&durable), Mode::Shadow);
        durable.on_policy(&policy(false, "enforce", false));
        assert_eq!(stage(&durable), Mode::Shadow);
    }

    #[test]
    fn raising_waits_for_its_gate_and_lowering_never_does() {
        let mut durable = Durable::first_start();
        durable.on_policy(&policy(false, "shadow", true));
        durable.on_policy(&policy(false, "enforce", true));
        assert_eq!((stage(&durable), durable.stages["b"].pending), (Mode::Shadow, Some(Mode::Enforce)));
        durable.on_policy(&policy(false, "enforce", false));
        assert_eq!((stage(&durable), durable.stages["b"].pending), (Mode::Enforce, None));
        durable.on_policy(&policy(false, "shadow", true));
        assert_eq!(stage(&durable), Mode::Shadow);
    }
}
