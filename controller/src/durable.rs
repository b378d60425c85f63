//! What a controller must not forget: its epoch, the kill generation, how far each bucket has been rolled out, and
//! who its children were. Pure: the store writes it, the brain decides by it.

mod stages;

pub use stages::{Cause, Change, Exhibit, HISTORY_MAX, Stage, Sums};

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use plimsoll_core::bucket::{Name, Zone};
use plimsoll_core::coherence::{Coherence, CoinKey};
use plimsoll_core::directive::Epoch;
use plimsoll_core::kill::KillGeneration;
use plimsoll_core::policy::Policy;
use serde::{Deserialize, Serialize};

use crate::rollout::SavedTrial;

/// The state of one controller across its restarts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durable {
    /// Grows with every start, and beyond whatever a child claims to have heard.
    pub epoch: Epoch,
    /// The fleet's key for coherent coins; absent until somebody has drawn one, and then such coins draw independently.
    pub coin_key: Option<CoinKey>,
    /// The kill switch: odd means killed.
    pub kill: KillGeneration,
    /// The policy file says killed.
    pub killed_by_file: bool,
    /// A generation learned from a child says killed.
    pub killed_by_command: bool,
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
            killed_by_command: false,
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
        // There is no command yet to take a learned kill back, so switching the file off takes both back.
        if self.killed_by_file && !policy.kill_switch() {
            self.killed_by_command = false;
        }
        self.killed_by_file = policy.kill_switch();
        let exact = policy.exact_buckets().map(|(bucket, entry)| (bucket.to_string(), entry));
        let entries: BTreeMap<String, _> = exact.chain(policy.patterns()).collect();
        self.stages.retain(|name, _| entries.contains_key(name));
        let killed = self.killed_by_file || self.killed_by_command;
        for (name, entry) in entries {
            self.on_mode(&name, entry.mode(), entry.rollout().require_gates, killed);
        }
        self.trials.retain(|name, _| self.stages.contains_key(name));
        self.lost = false;
        self.turn_kill();
    }

    /// Takes of a policy that is held back what must not wait: its kill switch, and modes that ask for less.
    pub fn on_held(&mut self, policy: &Policy) {
        if self.killed_by_file && !policy.kill_switch() {
            self.killed_by_command = false;
        }
        self.killed_by_file = policy.kill_switch();
        for (bucket, entry) in policy.exact_buckets() {
            self.on_mode_held(bucket.as_str(), entry.mode());
        }
        for (pattern, entry) in policy.patterns() {
            self.on_mode_held(&pattern, entry.mode());
        }
        self.turn_kill();
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
        self.turn_kill();
    }

    /// Takes over what a child holds. An odd generation counts as a command.
    pub fn on_kill(&mut self, learned: KillGeneration) -> bool {
        if !self.kill.merge(learned) {
            return false;
        }
        self.killed_by_command |= learned.is_killed();
        self.turn_kill();
        true
    }

    /// Brings the generation in line with its two causes. An edge puts everything into shadow, and nothing leaves
    /// it by the edge back.
    fn turn_kill(&mut self) {
        let killed = self.killed_by_file || self.killed_by_command;
        self.kill = self.kill.turned(killed);
        if killed {
            self.put_in_shadow(Cause::Kill);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::policy::{ONE_CLASS_TENANTS, Source};
    use plimsoll_core::rollout::Mode;

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

    #[test]
    fn a_kill_learned_from_a_child_holds_until_the_file_is_switched_on_and_off() {
        let mut durable = Durable::first_start();
        durable.on_policy(&policy(false, "enforce", false));
        assert!(durable.on_kill(KillGeneration(7)));
        assert!(!durable.on_kill(KillGeneration(7)));
        assert_eq!((durable.kill, stage(&durable)), (KillGeneration(7), Mode::Shadow));
        durable.on_policy(&policy(false, "enforce", false));
        assert!(durable.kill.is_killed());
        durable.on_policy(&policy(true, "enforce", false));
        durable.on_policy(&policy(false, "enforce", false));
        assert_eq!(durable.kill, KillGeneration(8));
    }
}
