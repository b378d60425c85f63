//! The rollout stage of each entry of the policy, and the history of its changes with their causes. Pure.

mod before_kill;

pub use before_kill::BeforeKill;

use std::collections::BTreeMap;

use plimsoll_core::decision::Mode;
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::Rate;
use plimsoll_core::rollout::gates::LatencyBasis;
use plimsoll_policy::UnixSeconds;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::state::DurableState;

/// Minimum number of instances for a gate to judge without a note on how few they are.
const FEW_INSTANCES: u32 = 5;
/// The number of changes that are kept; of more, renewals are removed first, the oldest before others.
pub const HISTORY_MAX: usize = 200;

/// The stage of one entry of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// The current mode.
    pub stage: Mode,
    /// The mode in the policy file. Only a change of it is an operator's order.
    pub file: Mode,
    /// The mode in the policy file that waits for its gate.
    pub pending: Option<Mode>,
    /// The number of the change that began the stage, or its evidence anew.
    pub change: u64,
    /// The stage that a kill took, until the entry moves again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_kill: Option<BeforeKill>,
}

/// One change of a stage, or the beginning of new evidence in the same stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The number of the change, from 1.
    pub number: u64,
    /// The time in seconds since 1970; `None` until the next tick.
    pub at_s: Option<i64>,
    /// The entry of the policy: a bucket or a pattern.
    pub entry: String,
    /// The mode before; `None` for a new entry.
    pub from: Option<Mode>,
    /// The mode from then on.
    pub to: Mode,
    /// The cause.
    pub cause: Cause,
    /// The reasons, in words.
    pub why: Vec<String>,
    /// The statistics of the stage that ended; `None` without any.
    pub evidence: Option<Evidence>,
}

/// The cause of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The entry is new in the policy.
    Appeared,
    /// An earlier state could not be read, or the first policy not be recorded.
    Lost,
    /// The state was lost, and aggregators had this mode from an earlier controller.
    Recovered,
    /// `mode` was changed in the policy file.
    File,
    /// A gate passed, and the policy file or `auto_promote` wants the next stage.
    Gate,
    /// An operator promoted it, and the gate passed or was not required.
    Promote,
    /// An operator promoted it although the gate did not pass.
    Forced,
    /// An operator returned it to shadow.
    Abort,
    /// The gate of canary failed.
    Breach,
    /// A zone has not reported for too long.
    Stale,
    /// A kill.
    Kill,
    /// An operator returned it to the stage that it had before a kill.
    Resume,
    /// The policy was edited so that more can be refused: the stage stays, and its evidence begins anew.
    Edit,
    /// A limit that moves by itself fell, or a tenant's share at the end of a boost: the stage stays, and its
    /// evidence begins anew.
    Drift,
    /// An operator began the evidence anew.
    Reset,
}

/// The statistics of a stage, over the window of its gate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// The time with data in the whole stage, in milliseconds.
    pub with_data_ms: u64,
    /// Requests in the canary cohort.
    pub canary: CohortSums,
    /// All other requests.
    pub control: CohortSums,
    /// True if no instance has reported a latency in the stage, and some say that they cannot: the gate out of
    /// canary does not compare latency.
    pub latency_unreported: bool,
    /// The results of the query gates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queries: Vec<QueryEvidence>,
}

impl Evidence {
    /// Returns what restricts the judgement of the gate out of `stage`, pass or not: latency that is not
    /// compared, and few instances.
    pub fn notes(&self, stage: Mode) -> Vec<String> {
        let is_unreported = self.latency_unreported && stage == Mode::Canary;
        let latency = is_unreported.then(|| LatencyBasis::NotReported.to_string());
        latency
            .into_iter()
            .chain(self.few_instances(stage))
            .collect()
    }

    /// Returns a note if the evidence of the gate out of `stage` rests on few instances: each
    /// counts for much.
    fn few_instances(&self, stage: Mode) -> Option<String> {
        let of_control = if stage == Mode::Canary {
            0
        } else {
            self.control.instances
        };
        let instances = self.canary.instances.saturating_add(of_control);
        let noun = if instances == 1 {
            "instance"
        } else {
            "instances"
        };
        (1..FEW_INSTANCES)
            .contains(&instances)
            .then(|| format!("the evidence rests on {instances} {noun} alone"))
    }
}

/// The result of one query gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QueryEvidence {
    /// The name of the gate.
    pub name: String,
    /// The value; `None` without a current answer.
    pub value: Option<f64>,
    /// The upper bound.
    pub max: Option<f64>,
    /// The lower bound.
    pub min: Option<f64>,
    /// The age of the answer in milliseconds.
    pub age_ms: Option<u64>,
    /// Why there is no current answer.
    pub unknown: Option<String>,
}

/// The sums over one cohort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CohortSums {
    /// Requests offered.
    pub offered: u64,
    /// Requests refused.
    pub refused: u64,
    /// Requests admitted that would have been refused in enforce.
    pub would_dropped: u64,
    /// Admitted requests that failed.
    pub failed: u64,
    /// Admitted requests with responses that no instance can observe.
    pub unobserved: u64,
    /// The 99th percentile of latency in microseconds, or a lower bound beyond the histogram's range; `None` without
    /// measured responses.
    pub p99_us: Option<u64>,
    /// Responses measured for it.
    pub samples: u64,
    /// The instances that had these requests: the most of any tick.
    pub instances: u32,
}

/// A saved slot: its time with requests in milliseconds, then the canary cohort and the control cohort. Each has the
/// offered, refused, would-dropped, failed and unobserved requests and the instances.
pub type SavedSlot = (u64, [u64; 6], [u64; 6]);

/// The saved stats of one entry's present stage. Latencies are not saved: they begin anew after a restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedStageStats {
    /// The number of the change that began the stage, or its evidence anew.
    pub change: u64,
    /// The time with requests in the stage, in milliseconds.
    pub with_data_ms: u64,
    /// The slots, the oldest first.
    pub slots: Vec<SavedSlot>,
    /// True if a latency was reported in the stage.
    pub has_latencies: bool,
    /// The lowest limit judged so far in requests/s, of each bucket with a limit that moves by
    /// itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lowest_limits: BTreeMap<Bucket, Rate>,
}

/// Reads the statistics if this build knows their format: an upgrade loses evidence at most.
pub(super) fn readable<'de, D>(from: D) -> Result<BTreeMap<String, SavedStageStats>, D::Error>
where
    D: Deserializer<'de>,
{
    let saved = BTreeMap::<String, serde_json::Value>::deserialize(from)?;
    let read = |(entry, stats)| Some((entry, serde_json::from_value(stats).ok()?));
    Ok(saved.into_iter().filter_map(read).collect())
}

impl Cause {
    /// Returns the word used in tables and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Appeared => "appeared",
            Self::Lost => "lost",
            Self::Recovered => "recovered",
            Self::File => "file",
            Self::Gate => "gate",
            Self::Promote => "promote",
            Self::Forced => "forced",
            Self::Abort => "abort",
            Self::Breach => "breach",
            Self::Stale => "stale",
            Self::Kill => "kill",
            Self::Resume => "resume",
            Self::Edit => "edit",
            Self::Drift => "drift",
            Self::Reset => "reset",
        }
    }

    /// Returns true if the stage stays and only its evidence begins anew.
    pub const fn is_renewal(self) -> bool {
        matches!(self, Self::Edit | Self::Drift | Self::Reset)
    }
}

impl Change {
    /// The time of the change as text.
    pub fn at(&self) -> String {
        self.at_s.map_or_else(
            || "just now".to_owned(),
            |at| UnixSeconds::from_secs(at).to_string(),
        )
    }
}

impl Stage {
    /// Applies the mode of the policy file. Returns the new current mode, if it changed.
    fn on_file(&mut self, file: Mode, require_gates: bool, killed: bool) -> Option<Mode> {
        let before = self.stage;
        let changed = file != self.file;
        self.file = file;
        let mut to = before;
        if changed {
            self.pending = None;
            if file <= before {
                to = file;
            } else if !killed {
                self.pending = Some(file);
            }
        }
        if let Some(asked) = self.pending
            && !require_gates
        {
            to = asked;
            self.pending = None;
        }
        (to != before).then_some(to)
    }
}

impl DurableState {
    /// Adds an entry that is new, and applies the mode of the policy file.
    pub(super) fn on_mode(&mut self, entry: &str, file: Mode, require_gates: bool, killed: bool) {
        if !self.stages.contains_key(entry) {
            let to = if killed || self.lost {
                Mode::Shadow
            } else {
                file
            };
            let cause = if self.lost {
                Cause::Lost
            } else {
                Cause::Appeared
            };
            let stage = Stage {
                stage: to,
                file,
                pending: None,
                change: 0,
                before_kill: None,
            };
            self.stages.insert(entry.to_owned(), stage);
            self.record(entry, None, to, cause, Vec::new());
        }
        let Some(stage) = self.stages.get_mut(entry) else {
            return;
        };
        if let Some(to) = stage.on_file(file, require_gates, killed) {
            let why = format!("mode {file} in the policy file");
            self.enter_stage(entry, to, Cause::File, vec![why]);
        }
    }

    /// Applies a mode of a held policy that is below the mode before: it lowers the stage, or withdraws a pending mode.
    pub(super) fn on_mode_held(&mut self, entry: &str, file: Mode) {
        let Some(stage) = self.stages.get_mut(entry) else {
            return;
        };
        if file >= stage.file || file > stage.stage {
            return;
        }
        (stage.file, stage.pending) = (file, None);
        if file < stage.stage {
            let why = format!("mode {file} in the policy file, which is held for other changes");
            self.enter_stage(entry, file, Cause::File, vec![why]);
        }
    }

    /// Restores the mode of the policy file after a held one: it is no order, because it was active
    /// before.
    pub(super) fn recall_mode(&mut self, entry: &str, file: Mode) {
        if let Some(stage) = self.stages.get_mut(entry) {
            stage.file = file;
        }
    }

    /// Puts an entry into a stage, and records why. A pending mode stays pending only if the stage rises and
    /// is still below it.
    pub(crate) fn enter_stage(&mut self, entry: &str, to: Mode, cause: Cause, why: Vec<String>) {
        let Some(stage) = self.stages.get_mut(entry) else {
            return;
        };
        let from = std::mem::replace(&mut stage.stage, to);
        stage.before_kill = match (cause, from) {
            (Cause::Kill, Mode::Shadow) => stage.before_kill,
            (Cause::Kill, from) => Some(BeforeKill::of(from)),
            _ => None,
        };
        stage.pending = stage.pending.filter(|asked| *asked > to && to > from);
        self.record(entry, Some(from), to, cause, why);
    }

    /// Begins the evidence of an entry's stage anew, and records why. An enforced entry has no
    /// gate, so its evidence continues.
    pub(crate) fn renew_evidence(&mut self, entry: &str, cause: Cause, why: Vec<String>) {
        let Some(stage) = self
            .stages
            .get(entry)
            .filter(|stage| stage.stage < Mode::Enforce)
        else {
            return;
        };
        let mode = stage.stage;
        self.record(entry, Some(mode), mode, cause, why);
    }

    /// Puts an entry into the stage that aggregators show, up to the mode of the policy file, unless it is killed or
    /// an operator or a rule has moved it since the start.
    pub(crate) fn recover_stage(&mut self, entry: &str, shown: Mode, why: Vec<String>) {
        let is_open = self.is_recoverable(entry) && !self.is_entry_killed(entry);
        let Some(stage) = self.stages.get(entry).filter(|_| is_open) else {
            return;
        };
        let to = shown.min(stage.file);
        if to != stage.stage {
            self.enter_stage(entry, to, Cause::Recovered, why);
        }
    }

    /// Returns true if neither an operator nor a rule has moved an entry since the start.
    fn is_recoverable(&self, entry: &str) -> bool {
        let moves = |change: &&Change| change.entry == entry && !change.cause.is_renewal();
        let cause = self.history.iter().rev().find(moves).map(|last| last.cause);
        matches!(
            cause,
            Some(Cause::Appeared | Cause::Lost | Cause::Recovered)
        )
    }

    /// Puts one entry into shadow; without a name, every entry. An entry in shadow stays there,
    /// also if aggregators show a higher stage afterwards.
    pub(super) fn put_in_shadow(&mut self, entry: Option<&str>, cause: Cause, why: &[String]) {
        let is_meant = |name: &str| entry.is_none_or(|entry| entry == name);
        let may_rise =
            |name: &str, stage: &Stage| stage.file > Mode::Shadow && self.is_recoverable(name);
        let is_above = |stage: &Stage| stage.stage > Mode::Shadow || stage.pending.is_some();
        let entries = self
            .stages
            .iter()
            .filter(|(name, stage)| is_meant(name) && (is_above(stage) || may_rise(name, stage)));
        for entry in entries.map(|(entry, _)| entry.clone()).collect::<Vec<_>>() {
            self.enter_stage(&entry, Mode::Shadow, cause, why.to_vec());
        }
    }

    pub(crate) fn record(
        &mut self,
        entry: &str,
        from: Option<Mode>,
        to: Mode,
        cause: Cause,
        why: Vec<String>,
    ) {
        let number = self
            .history
            .back()
            .map_or(0, |last| last.number)
            .max(self.changes)
            + 1;
        self.changes = number;
        if let Some(stage) = self.stages.get_mut(entry) {
            stage.change = number;
        }
        let entry = entry.to_owned();
        self.history.push_back(Change {
            number,
            at_s: None,
            entry,
            from,
            to,
            cause,
            why,
            evidence: None,
        });
        while self.history.len() > HISTORY_MAX {
            // A kill or a promotion outlives renewals: a limit that moves by itself records many of
            // them.
            let mut earlier = self.history.iter().take(HISTORY_MAX);
            let at = earlier
                .position(|change| change.cause.is_renewal())
                .unwrap_or(0);
            self.history.remove(at);
        }
    }

    pub(crate) fn change(&self, number: u64) -> Option<&Change> {
        self.history
            .iter()
            .rev()
            .find(|change| change.number == number)
    }

    /// Sets the time of changes that have none; true if there were any.
    pub(crate) fn stamp(&mut self, unix_s: i64) -> bool {
        let unstamped = self
            .history
            .iter_mut()
            .rev()
            .take_while(|change| change.at_s.is_none());
        unstamped.map(|change| change.at_s = Some(unix_s)).count() > 0
    }
}

#[cfg(test)]
mod tests;
