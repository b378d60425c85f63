//! How far each entry of the policy has been rolled out, by whom and why: stages and their history. Pure.

use plimsoll_core::decision::Mode;
use serde::{Deserialize, Serialize};

use super::Durable;

/// Changes of stages that are remembered; of more, the latest.
pub const HISTORY_MAX: usize = 200;

/// How far one entry of the policy has been rolled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// What is in force.
    pub stage: Mode,
    /// What the file said last: only a change of it is a person's act.
    pub file: Mode,
    /// The file asks for more than the gates have let through.
    pub pending: Option<Mode>,
    /// The change that put it there; 0 before there were numbers.
    #[serde(default)]
    pub change: u64,
}

/// One change of a stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Numbers the changes of this controller, from 1.
    pub number: u64,
    /// When, in seconds since 1970; `None` until the next tick has said what time it is.
    pub at_s: Option<i64>,
    /// The entry of the policy: a bucket's name or a pattern.
    pub entry: String,
    /// What was in force; `None` of an entry that has just appeared.
    pub from: Option<Mode>,
    /// What is in force from then on.
    pub to: Mode,
    /// What brought it about.
    pub cause: Cause,
    /// The reasons, in words.
    pub why: Vec<String>,
    /// What was known of the stage that ended.
    pub evidence: Option<Exhibit>,
}

/// What brings a change about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The entry is new in the policy.
    Appeared,
    /// Earlier state could not be read.
    Lost,
    /// Somebody changed `mode` in the file.
    File,
    /// A gate was passed, and the file or `auto_promote` asked for it.
    Gate,
    /// Somebody asked for it, and the gate was passed or not required.
    Promote,
    /// Somebody asked for it although the gate was not passed.
    Forced,
    /// Somebody asked for shadow.
    Abort,
    /// The gate of canary found something bad.
    Breach,
    /// A zone was not heard for too long.
    Stale,
    /// The kill switch.
    Kill,
}

/// What was observed in a stage, over the window of its gate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Exhibit {
    /// Time with data in the whole stage, in milliseconds.
    pub with_data_ms: u64,
    /// By those in the cohort.
    pub canary: Sums,
    /// By all others.
    pub control: Sums,
    /// What extra gates found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queries: Vec<QueryExhibit>,
}

/// What one extra gate found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryExhibit {
    /// What it is called.
    pub name: String,
    /// The answer; `None` where there is none that counts.
    pub value: Option<f64>,
    /// What it may be at most.
    pub max: Option<f64>,
    /// What it must be at least.
    pub min: Option<f64>,
    /// How old it was, in milliseconds.
    pub age_ms: Option<u64>,
    /// Why there is no answer that counts.
    pub unknown: Option<String>,
}

/// What was observed on one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    /// Requests that asked.
    pub offered: u64,
    /// Requests refused.
    pub refused: u64,
    /// Refusals decided but not carried out.
    pub would_dropped: u64,
    /// Requests let through that failed.
    pub failed: u64,
    /// The 99th percentile of latency in microseconds; `None` where no response was watched.
    pub p99_us: Option<u64>,
    /// How many responses that rests on.
    pub samples: u64,
}

impl Cause {
    /// The word used in tables and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Appeared => "appeared",
            Self::Lost => "lost",
            Self::File => "file",
            Self::Gate => "gate",
            Self::Promote => "promote",
            Self::Forced => "forced",
            Self::Abort => "abort",
            Self::Breach => "breach",
            Self::Stale => "stale",
            Self::Kill => "kill",
        }
    }
}

impl Stage {
    /// The file says `file`: if that is new, somebody did it. Returns what is in force from now on, if that changed.
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

impl Durable {
    /// Takes up what the file says of an entry's mode.
    pub(super) fn on_mode(&mut self, entry: &str, file: Mode, require_gates: bool, killed: bool) {
        if !self.stages.contains_key(entry) {
            let to = if killed || self.lost { Mode::Shadow } else { file };
            let cause = if self.lost { Cause::Lost } else { Cause::Appeared };
            let stage = Stage { stage: to, file, pending: None, change: 0 };
            self.stages.insert(entry.to_owned(), stage);
            self.record(entry, None, to, cause, Vec::new());
        }
        let Some(stage) = self.stages.get_mut(entry) else { return };
        if let Some(to) = stage.on_file(file, require_gates, killed) {
            let why = format!("the file says {file}");
            self.enter_stage(entry, to, Cause::File, vec![why]);
        }
    }

    /// A held file is not in force, and yet takes effect where it asks for less.
    pub(super) fn on_mode_held(&mut self, entry: &str, file: Mode) {
        let Some(stage) = self.stages.get_mut(entry) else { return };
        if file >= stage.file || file > stage.stage {
            return;
        }
        (stage.file, stage.pending) = (file, None);
        if file < stage.stage {
            let why = format!("the file says {file}; it is held back for other reasons");
            self.enter_stage(entry, file, Cause::File, vec![why]);
        }
    }

    /// The file in force says `file` as it did before: nobody's act, whatever was held in between.
    pub(super) fn recall_mode(&mut self, entry: &str, file: Mode) {
        if let Some(stage) = self.stages.get_mut(entry) {
            stage.file = file;
        }
    }

    /// Puts an entry into a stage, and writes down why. What the file asked for and has been reached is settled; so is
    /// everything it asked for when the way leads down.
    pub fn enter_stage(&mut self, entry: &str, to: Mode, cause: Cause, why: Vec<String>) {
        let Some(stage) = self.stages.get_mut(entry) else { return };
        let from = std::mem::replace(&mut stage.stage, to);
        stage.pending = stage.pending.filter(|asked| *asked > to && to > from);
        self.record(entry, Some(from), to, cause, why);
    }

    /// Puts one entry, or without a name every one, into shadow.
    pub(super) fn put_in_shadow(&mut self, entry: Option<&str>, cause: Cause, why: &[String]) {
        let above = |stage: &Stage| stage.stage > Mode::Shadow || stage.pending.is_some();
        let meant = |name: &str| entry.is_none_or(|entry| entry == name);
        let entries = self.stages.iter().filter(|(name, stage)| meant(name) && above(stage));
        for entry in entries.map(|(entry, _)| entry.clone()).collect::<Vec<_>>() {
            self.enter_stage(&entry, Mode::Shadow, cause, why.to_vec());
        }
    }

    fn record(&mut self, entry: &str, from: Option<Mode>, to: Mode, cause: Cause, why: Vec<String>) {
        let number = self.history.back().map_or(0, |last| last.number).max(self.changes) + 1;
        self.changes = number;
        if let Some(stage) = self.stages.get_mut(entry) {
            stage.change = number;
        }
        let entry = entry.to_owned();
        self.history.push_back(Change { number, at_s: None, entry, from, to, cause, why, evidence: None });
        while self.history.len() > HISTORY_MAX {
            self.history.pop_front();
        }
    }

    /// Says what time it is to changes that nobody has told yet; true if there were any.
    pub fn stamp(&mut self, unix_s: i64) -> bool {
        let unstamped = self.history.iter_mut().rev().take_while(|change| change.at_s.is_none());
        unstamped.map(|change| change.at_s = Some(unix_s)).count() > 0
    }
}

#[cfg(test)]
mod tests;
