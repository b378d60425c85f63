//! The rollout of every entry of the policy: what was seen of its stage, what the gate says, and which changes follow by
//! themselves. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_policy::{Policy, RolloutPolicy};
use plimsoll_core::report::{CohortKey, Outcomes};
use plimsoll_core::decision::Mode;
use plimsoll_core::rollout::gates::{Judgement, StaleZone, Why, leave_canary, leave_shadow};
use plimsoll_core::quantity::MonoTime;

use crate::state::{Cause, Durable, Exhibit};
use query_gates::Extras;
use stage_stats::Trial;

mod query_gates;
mod stage_stats;

pub use query_gates::Finding;
pub(crate) use query_gates::questions;
pub use stage_stats::SavedTrial;

/// Cycles with data after which what was seen is written down: half a minute that a crash may cost.
const SAVED_EVERY: u64 = 60;

/// All entries.
#[derive(Debug, Default)]
pub struct Rollout {
    trials: BTreeMap<String, Trial>,
    extras: Extras,
    /// The last change of which it was written down what had been seen.
    settled: u64,
    /// Cycles since it was written down what was seen.
    unsaved: u64,
}

/// What a cycle did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cycle {
    /// Stages changed.
    pub(crate) changed: bool,
    /// It is time to write down what was seen; nothing waits for it.
    pub(crate) saves: bool,
}

impl Rollout {
    /// Goes on from what was written down.
    pub(crate) fn restored(durable: &Durable) -> Self {
        let trials = durable.trials.iter().map(|(entry, saved)| (entry.clone(), Trial::restored(saved)));
        Self { trials: trials.collect(), settled: durable.changes, ..Self::default() }
    }

    /// Something was observed of an entry's bucket.
    pub(crate) fn enter(&mut self, durable: &Durable, entry: &str, stand: &CohortKey, outcomes: &Outcomes) {
        let Some(stage) = durable.stages.get(entry) else { return };
        // While killed everything is as in shadow, and says nothing of how shadow would be.
        if durable.kill_of(&stand.bucket).is_on() || stand.mode != stage.stage {
            return;
        }
        match self.trials.get_mut(entry) {
            Some(trial) if trial.change() == stage.change => trial.enter(stand.side, outcomes),
            _ => {
                let mut trial = Trial::begin(stage.change);
                trial.enter(stand.side, outcomes);
                self.trials.insert(entry.to_owned(), trial);
            }
        }
    }

    /// A query of an extra gate was answered, or not.
    pub(crate) fn find(&mut self, policy: &Policy, url: &str, query: &str, finding: Finding) {
        self.extras.enter(policy, url, query, finding);
    }

    /// Another policy is in force: what it does not ask has no answer.
    pub(crate) fn on_policy(&mut self, policy: &Policy) {
        self.extras.forget(policy);
    }

    /// Writes down with every new change what had been seen of the stage that ended, and begins anew. `policy` is the one
    /// that was in force until then.
    pub(crate) fn settle(&mut self, durable: &mut Durable, policy: &Policy, now: MonoTime) {
        let is_new = durable.changes > self.settled;
        let rollouts: BTreeMap<String, &RolloutPolicy> =
            if is_new { entries(policy).collect() } else { BTreeMap::new() };
        let new = durable.history.iter_mut().rev().take_while(|change| change.number > self.settled);
        for change in new {
            let trial = self.trials.remove(&change.entry).map(|trial| trial.exhibit());
            let rollout = rollouts.get(&change.entry).filter(|_| change.from.is_some());
            let extras = rollout.map(|rollout| self.extras.of(now, rollout)).unwrap_or_default();
            if trial.is_some() || !extras.is_empty() {
                let queries = query_gates::exhibits(&extras);
                change.evidence = Some(Exhibit { queries, ..trial.unwrap_or_default() });
            }
        }
        self.settled = durable.changes;
        let Durable { trials, stages, .. } = durable;
        trials.retain(|entry, saved| stages.get(entry).is_some_and(|stage| stage.change == saved.change));
        self.trials
            .retain(|entry, trial| stages.get(entry).is_some_and(|stage| stage.change == trial.change()));
    }

    /// A cycle of the controller is over: counts it where it had data, judges every stage, and makes the changes that need
    /// nobody's word. Linear in entries.
    pub(crate) fn on_cycle(
        &mut self,
        durable: &mut Durable,
        policy: &Policy,
        now: MonoTime,
        tick: Duration,
        stale: Option<&StaleZone>,
    ) -> Cycle {
        let before = durable.changes;
        for (entry, rollout) in entries(policy) {
            let Some(stage) = durable.stages.get(&entry).copied() else { continue };
            if let Some(trial) = self.trials.get_mut(&entry) {
                let window = match stage.stage {
                    Mode::Shadow => rollout.shadow.window,
                    Mode::Canary | Mode::Enforce => rollout.canary.window,
                };
                trial.on_cycle(stage.stage, window, tick);
            }
            let killed = durable.is_entry_killed(&entry);
            let judgement = self.judge(now, durable, &entry, rollout, stale);
            let Some(judgement) = judgement.filter(|_| !killed) else { continue };
            let asked = rollout.auto_promote || stage.pending.is_some();
            match (stage.stage, &judgement) {
                (Mode::Canary, Judgement::Fail(why)) => {
                    let is_stale = why.iter().any(|why| matches!(why, Why::Stale(_)));
                    let cause = if is_stale { Cause::Stale } else { Cause::Breach };
                    durable.enter_stage(&entry, Mode::Shadow, cause, words(&judgement));
                }
                (_, Judgement::Pass) if asked => {
                    if let Some(next) = next(stage.stage) {
                        let why =
                            if stage.pending.is_some() { "the file asks for it" } else { "auto_promote" };
                        durable.enter_stage(&entry, next, Cause::Gate, vec![why.to_owned()]);
                    }
                }
                _ => {}
            }
        }
        let changed = durable.changes != before;
        self.settle(durable, policy, now);
        self.unsaved += 1;
        let saves = changed || (self.unsaved >= SAVED_EVERY && !self.trials.is_empty());
        if saves {
            self.unsaved = 0;
            durable.trials =
                self.trials.iter().map(|(entry, trial)| (entry.clone(), trial.saved())).collect();
        }
        Cycle { changed, saves }
    }

    /// What the gate out of an entry's stage says now; `None` of one that is enforced, or is not known.
    #[must_use]
    pub fn judge(
        &self,
        now: MonoTime,
        durable: &Durable,
        entry: &str,
        rollout: &RolloutPolicy,
        stale: Option<&StaleZone>,
    ) -> Option<Judgement> {
        let stage = durable.stages.get(entry)?;
        let trial = self.trials.get(entry).filter(|trial| trial.change() == stage.change);
        let mut observed = trial.map(|trial| trial.observed(stage.stage)).unwrap_or_default();
        observed.stale = stale.cloned();
        observed.extras = self.extras.of(now, rollout);
        match stage.stage {
            Mode::Shadow => Some(leave_shadow(&rollout.shadow, rollout.min_samples, &observed)),
            Mode::Canary => Some(leave_canary(&rollout.canary, rollout.min_samples, &observed)),
            Mode::Enforce => None,
        }
    }

    /// What was seen of an entry's stage so far.
    #[must_use]
    pub fn exhibit(&self, now: MonoTime, entry: &str, rollout: &RolloutPolicy) -> Exhibit {
        let queries = query_gates::exhibits(&self.extras.of(now, rollout));
        Exhibit { queries, ..self.trials.get(entry).map(Trial::exhibit).unwrap_or_default() }
    }
}

/// Every entry of a policy by its name, and how it is rolled out.
fn entries(policy: &Policy) -> impl Iterator<Item = (String, &RolloutPolicy)> {
    let exact = policy.exact_buckets().map(|(bucket, entry)| (bucket.to_string(), entry.rollout()));
    exact.chain(policy.patterns().map(|(pattern, entry)| (pattern, entry.rollout())))
}

/// The stage after this one.
pub(crate) const fn next(stage: Mode) -> Option<Mode> {
    match stage {
        Mode::Shadow => Some(Mode::Canary),
        Mode::Canary => Some(Mode::Enforce),
        Mode::Enforce => None,
    }
}

/// The reasons of a judgement in words.
pub(crate) fn words(judgement: &Judgement) -> Vec<String> {
    judgement.reasons().iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests;
