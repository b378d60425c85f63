//! The brain and the rollout of its buckets: takes evidence, makes the changes that follow by themselves, and those that
//! somebody asks for.

use plimsoll_policy::{BucketPolicy, RolloutPolicy};
use plimsoll_core::decision::Mode;
use plimsoll_core::rollout::gates::{Judgement, StaleZone};
use plimsoll_core::names::Text;

use super::*;
use crate::state::{Cause, Change, Exhibit};
use crate::rollout::{Finding, next, words};

/// Why a stage stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RolloutError {
    /// There is no such entry.
    #[error("the policy has no entry `{entry}`; {hint}")]
    Unknown {
        /// What was asked for.
        entry: String,
        /// What there is.
        hint: String,
    },
    /// Nothing is raised while the kill switch is on.
    #[error("it is killed; end that first (`plimsoll kill status` says who keeps it), and then promote")]
    Killed,
    /// It has come that far already.
    #[error("`{entry}` is in {stage} already; `plimsoll rollout abort` returns it to shadow")]
    Reached {
        /// What was asked for.
        entry: String,
        /// What is in force.
        stage: Mode,
    },
    /// The gate is not passed.
    #[error("the gate from {from} to {to} is not passed: {}; promote past it with --force --reason TEXT", why.join("; "))]
    Gate {
        /// What is in force.
        from: Mode,
        /// What was asked for.
        to: Mode,
        /// What speaks against it.
        why: Vec<String>,
    },
}

impl Brain {
    /// Takes what a report brings for the gates to judge by.
    pub(super) fn testify(&mut self, report: &Report, before: u64) {
        for (stand, outcomes) in report.evidence.after(before) {
            let bucket = self.by_name.get(&stand.bucket).and_then(|at| self.buckets.get(*at));
            if let Some(entry) = bucket.and_then(Protected::entry) {
                self.rollout.enter(&self.durable, entry, stand, outcomes);
            }
        }
    }

    /// A cycle is over: stages change that need nobody's word.
    pub(super) fn roll_out(&mut self, now: MonoTime, unix_s: i64) {
        let stale = self.feeds.stalest(now);
        let policy = Arc::clone(&self.policy);
        let tick = self.parameters.tick;
        let cycle = self.rollout.on_cycle(&mut self.durable, &policy, now, tick, stale.as_ref());
        let (sources, children) = (&self.sources, &self.durable.children);
        self.feeds.forget(now, |place| sources.get(place).is_some() || children.contains(place));
        let stamped = self.durable.stamp(unix_s);
        self.note_change(cycle.changed);
        self.saves.note_aside(cycle.saves || stamped);
    }

    /// A query of an extra gate was answered, or not: the next cycle judges by it.
    pub fn on_finding(&mut self, url: &str, query: &str, finding: Finding) {
        self.rollout.find(&self.policy, url, query, finding);
    }

    /// Takes an entry one stage further, or `to` a later one, because somebody asks for it. With a reason also past a gate
    /// that is not passed; whoever skips canary, whose gate nothing can have shown to be passed, needs one.
    ///
    /// # Errors
    /// When there is no such entry, it is there already or killed, or the gate is not passed.
    pub fn promote(
        &mut self,
        now: MonoTime,
        entry: &str,
        to: Option<Mode>,
        force: Option<&Text>,
    ) -> Result<Change, RolloutError> {
        let rollout = self.rollout_of(entry)?.clone();
        if self.durable.is_entry_killed(entry) {
            return Err(RolloutError::Killed);
        }
        let from = self.durable.stages.get(entry).map_or(Mode::Shadow, |stage| stage.stage);
        let reached = || RolloutError::Reached { entry: entry.to_owned(), stage: from };
        let next = next(from).ok_or_else(reached)?;
        let to = to.unwrap_or(next);
        if to <= from {
            return Err(reached());
        }
        let judgement = self.judgement(now, entry, &rollout);
        let passed = to == next && judgement.as_ref().is_none_or(Judgement::is_pass);
        let mut against = judgement.as_ref().map(words).unwrap_or_default();
        against.extend((to > next).then(|| format!("{next} is left out")));
        let (cause, mut why) = match force {
            _ if passed => (Cause::Promote, vec!["the gate is passed".to_owned()]),
            None if !rollout.require_gates => (Cause::Promote, vec!["no gate is required".to_owned()]),
            None => return Err(RolloutError::Gate { from, to, why: against }),
            Some(reason) => (Cause::Forced, vec![reason.to_string()]),
        };
        if !passed {
            why.extend(against);
        }
        self.change_stage(entry, to, cause, why)
    }

    /// Returns an entry to shadow because somebody asks for it. `None` if it is there and nothing waits.
    ///
    /// # Errors
    /// When there is no such entry.
    pub fn abort(&mut self, entry: &str, reason: Option<&Text>) -> Result<Option<Change>, RolloutError> {
        self.rollout_of(entry)?;
        let stage = self.durable.stages.get(entry);
        if stage.is_none_or(|stage| stage.stage == Mode::Shadow && stage.pending.is_none()) {
            return Ok(None);
        }
        let why = reason.map(ToString::to_string).into_iter().collect();
        self.change_stage(entry, Mode::Shadow, Cause::Abort, why).map(Some)
    }

    fn change_stage(
        &mut self,
        entry: &str,
        to: Mode,
        cause: Cause,
        why: Vec<String>,
    ) -> Result<Change, RolloutError> {
        self.durable.enter_stage(entry, to, cause, why);
        self.rollout.settle(&mut self.durable, &self.policy, self.ticked);
        self.note_change(true);
        self.post();
        let change = self.durable.history.back().cloned();
        change.ok_or_else(|| self.unknown(entry))
    }

    /// What the gate out of an entry's stage says now; `None` of one that is enforced.
    #[must_use]
    pub fn judgement(&self, now: MonoTime, entry: &str, rollout: &RolloutPolicy) -> Option<Judgement> {
        self.rollout.judge(now, &self.durable, entry, rollout, self.feeds.stalest(now).as_ref())
    }

    /// What was seen of an entry's stage so far.
    #[must_use]
    pub fn exhibit(&self, now: MonoTime, entry: &str, rollout: &RolloutPolicy) -> Exhibit {
        self.rollout.exhibit(now, entry, rollout)
    }

    /// The aggregators that have not been heard for too long, and for how long.
    pub fn stale_feeds(&self, now: MonoTime) -> impl Iterator<Item = (&Place, Duration)> {
        self.feeds.stale(now)
    }

    /// The zone that has not been heard for the longest time, if that is too long.
    #[must_use]
    pub fn stalest_feed(&self, now: MonoTime) -> Option<StaleZone> {
        self.feeds.stalest(now)
    }

    /// Every entry of the policy with how it is rolled out, names first.
    #[must_use]
    pub fn rollouts(&self) -> Vec<(String, &BucketPolicy)> {
        let exact = self.policy.exact_buckets().map(|(bucket, entry)| (bucket.to_string(), entry));
        exact.chain(self.policy.patterns()).collect()
    }

    fn rollout_of(&self, entry: &str) -> Result<&RolloutPolicy, RolloutError> {
        let all = self.rollouts();
        let found = all.iter().find(|(name, _)| name == entry).map(|(_, policy)| policy.rollout());
        found.ok_or_else(|| self.unknown(entry))
    }

    fn unknown(&self, entry: &str) -> RolloutError {
        let matched = Bucket::new(entry).ok().and_then(|bucket| self.policy.entry(&bucket));
        let hint = match matched {
            Some(pattern) => format!("it falls under `{pattern}`, whose stage is that of all it matches"),
            None => {
                let names: Vec<String> =
                    self.rollouts().into_iter().take(20).map(|(name, _)| format!("`{name}`")).collect();
                if names.is_empty() {
                    "it has none at all".to_owned()
                } else {
                    format!("it has {}", names.join(", "))
                }
            }
        };
        RolloutError::Unknown { entry: entry.chars().take(128).collect(), hint }
    }
}
