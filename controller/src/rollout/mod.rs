//! The rollout of enforcement: takes each entry of the policy through the stages shadow, canary and enforce.
//! Pure.
//!
//! **Entries and stages.** An entry of the policy is the name of a bucket, or a pattern that covers many
//! buckets. All buckets of an entry share one stage:
//! * *Shadow*: clients let every request pass, and count the requests that they would have dropped.
//! * *Canary*: the instances of the canary cohort drop requests. All other instances, the control cohort,
//!   stay as in shadow. `canary_percent` sets the size of the canary cohort; an instance keeps its cohort
//!   over restarts. By default a sidecar has a share of its keys in the canary cohort instead.
//! * *Enforce*: all instances drop requests.
//!
//! [`DurableState::stages`] holds the stage of each entry. This module reads and changes it, and keeps no
//! copy.
//!
//! **Evidence.** Clients count the outcomes of requests by bucket, mode and cohort. Aggregators pass these
//! counts on to the controller. They are added to the `StageStats` of the entry, if they were counted in the
//! mode of the entry's present stage, the bucket's limit is known, and it is not killed. Ratios and
//! latencies cover the window of the gate; the time with requests is that of the whole stage. Both are
//! measured in ticks with requests (in canary: of the canary cohort), so an idle bucket makes no progress, and
//! a window of 15 minutes may span days. When a stage ends, its stats are stored with the [change] as
//! evidence. The next stage begins with empty stats.
//!
//! **Evidence begins anew** in shadow and in canary when the counts show too little about future
//! refusals:
//! * `Rollouts::on_edit`: the policy was edited so that it can refuse more (`tightening`).
//! * `Rollouts::on_limit`: a limit that is learned or queried is more than 10 % below the lowest one
//!   judged so far.
//! * `Rollouts::on_boosts_ended`: the share of a tenant fell by more than 10 % with the end of a boost.
//!
//! This is recorded as a change from the stage to itself. Neither this nor a stage that is entered again takes
//! evidence from before: for [`STRAGGLING`] after its end, no more is recorded in the mode that ended.
//! Aggregators and `crate::brain` leave out the evidence of reports that cover a longer time than 3 s.
//!
//! **Gates.** One gate leads out of shadow and one out of canary; none leads out of enforce.
//! [`Rollouts::judge`] collects the inputs of the gate, which is a function of
//! `plimsoll_core::rollout::gates`:
//! * the time with requests, which must reach a minimum to pass;
//! * in shadow the share of requests that would have been dropped, in canary the share of requests
//!   that the canary cohort dropped, and how much slower its requests are than requests of the
//!   control cohort. Where no instance has reported a latency in the stage, and some report that
//!   they cannot, as behind a proxy, latency is not compared; the status and the record of the
//!   promotion note this;
//! * the latest answers to the entry's query gates, which are numbers from Prometheus with a bound;
//! * the aggregator without reports for the longest time, if that is too long. The reasons name its zone (a
//!   stale zone), even if other aggregators of the zone report.
//!
//! The gate *passes*, it *fails* because a value is known to be bad, or it is *inconclusive* because a value
//! is not known yet or the time is too short. A ratio or latency with fewer than `min_samples` is not known.
//! A gate may fail before its minimum time. A stale zone makes the shadow gate inconclusive, and ends every
//! canary.
//!
//! **Moves.** An entry changes its stage in one of these ways:
//! * `Rollouts::on_tick` moves an entry one stage up if its gate passes, and either `auto_promote` is on or
//!   the policy file asks for a higher mode (the mode is *pending*). A move down withdraws the pending mode;
//!   `auto_promote` tries again. With an audit log it only lists the move as ready, and
//!   `Rollouts::promote_ready` makes it once it is recorded.
//! * `Rollouts::on_tick` moves an entry from canary back to shadow if the canary gate fails. Evidence moves
//!   no entry down from enforce.
//! * `Rollouts::promote` moves an entry up for an operator, if its gate passes or no gate is required. With a
//!   reason it also moves past a gate that does not pass. Skipping canary counts as a gate that does not
//!   pass: it needs a reason, unless the policy requires no gates.
//! * `Rollouts::resume` returns an entry for an operator to the stage that it had before a kill, if its policy has not
//!   changed since. A stage that the gates passed before needs no new evidence.
//! * `Rollouts::abort` moves an entry to shadow for an operator. In shadow with a pending mode, an abort or a
//!   kill begins shadow anew, with empty stats.
//! * `crate::state` moves entries for the policy file and for kills. A new entry begins in the mode
//!   of the file, or in shadow if it is killed or the state was lost. Only a change of the mode in
//!   the file counts: a new mode below the stage takes effect immediately, a higher mode waits for
//!   the gates, unless `require_gates` is off. A kill moves its entries to shadow, and no entry
//!   moves up while it is killed: a higher mode written meanwhile is ignored. The kill of one
//!   bucket under a pattern holds only that bucket in shadow, and leaves the stage of the pattern
//!   as it is.
//!
//! Every move is recorded as a [change] with its cause and its reasons. Aggregators are sent the new mode
//! once the change is saved, or once saving fails.
//!
//! [change]: crate::state::Change

mod promotion;
pub(crate) mod query_gates;
mod stage_stats;
mod tightening;

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::decision::Mode;
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{CohortKey, Outcomes, Weighing};
use plimsoll_core::rollout::gates::{
    Judgement, LatencyBasis, StaleZone, Why, leave_canary, leave_shadow,
};
use plimsoll_policy::{Policy, RolloutPolicy};

use self::query_gates::GateAnswers;
use self::stage_stats::StageStats;
use crate::aggregators::AggregatorKey;
use crate::state::{Cause, DurableState, Evidence, Stage};

pub(crate) use self::promotion::{Promotion, RolloutError};
pub(crate) use self::tightening::MovingLimit;

/// Number of ticks between saves of the stats: with ticks of 500 ms, a crash costs at most half a
/// minute of counts. Latencies are not saved; their window starts anew.
const SAVED_EVERY: u64 = 60;
/// Time after a start without a state when aggregators are believed: long enough for all to
/// reconnect.
const RECOVERED_WITHIN: Duration = Duration::from_secs(30);
/// Time that evidence may still arrive after the end of its mode: until the directive arrives, and
/// the reports of a client and its aggregators.
const STRAGGLING: Duration = Duration::from_secs(5);
/// The longest report whose evidence counts.
pub(crate) const EVIDENCE_SPAN_MAX: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
pub(crate) struct Rollouts {
    stats: BTreeMap<String, StageStats>,
    /// The state as aggregators know it, for a while after a start without a state.
    pub(crate) recovery: Option<Recovery>,
    pub(crate) answers: GateAnswers,
    pub(crate) weighing: Weighing<AggregatorKey>,
    /// The number of the last change that was closed: its evidence, if any, is stored.
    last_change: u64,
    /// Ticks since the stats were last saved.
    unsaved_ticks: u64,
    /// The promotions whose gates passed at the last tick and that wait for their record in the audit log. `None`
    /// if there is no audit log: then promotions are made immediately.
    pub(crate) ready: Option<Vec<Ready>>,
    /// By entry: the modes that ended lately and may still send evidence, and the time of the end.
    ended: BTreeMap<String, Vec<(Mode, MonoTime)>>,
}

/// Claims of aggregators about stages that the controller has lost, for a while after its start.
#[derive(Debug)]
pub(crate) struct Recovery {
    pub(crate) until: MonoTime,
    pub(crate) claims: BTreeMap<AggregatorKey, Claim>,
}

#[derive(Debug)]
pub(crate) struct Claim {
    /// The modes that an earlier controller sent to the aggregator.
    pub(crate) modes: BTreeMap<Bucket, Mode>,
    /// The buckets with their own kill, ended or not.
    pub(crate) killed: Vec<Bucket>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TickOutcome {
    /// An entry moved.
    pub(crate) changed: bool,
    /// The stats in the durable state are new and should be saved. Nothing waits for it.
    pub(crate) saves: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) entry: String,
    pub(crate) from: Mode,
    pub(crate) to: Mode,
    /// The number of the change that began the stage, or its evidence anew.
    change: u64,
    pub(crate) why: Vec<String>,
}

struct Move {
    to: Mode,
    cause: Cause,
    why: Vec<String>,
}

// === impl Recovery ===

impl Recovery {
    pub(crate) fn new(now: MonoTime) -> Self {
        Self {
            until: now + RECOVERED_WITHIN,
            claims: BTreeMap::new(),
        }
    }
}

// === impl Rollouts ===

impl Rollouts {
    pub(crate) fn restored(durable: &DurableState) -> Self {
        let stats = durable
            .stage_stats
            .iter()
            .map(|(entry, saved)| (entry.clone(), StageStats::restored(saved)));
        Self {
            stats: stats.collect(),
            last_change: durable.changes,
            ..Self::default()
        }
    }

    /// Adds the outcomes of one bucket to the stats of its `entry`. Outcomes of another mode than the entry's
    /// present stage are dropped. So are stragglers, and outcomes during a kill, which are no evidence for or
    /// against the stage.
    pub(crate) fn record(
        &mut self,
        durable: &DurableState,
        entry: &str,
        cohort: &CohortKey,
        outcomes: &Outcomes,
    ) {
        let Some(stage) = durable.stages.get(entry) else {
            return;
        };
        let mut ended = self.ended.get(entry).into_iter().flatten();
        let is_straggler = ended.any(|(mode, _)| *mode == cohort.mode);
        if durable.kill_of(&cohort.bucket).is_on() || cohort.mode != stage.stage || is_straggler {
            return;
        }
        let begins = || StageStats::begin(stage.change);
        let stats = self.stats.entry(entry.to_owned()).or_insert_with(begins);
        if stats.change != stage.change {
            *stats = begins();
        }
        if stats.record(cohort.side, outcomes) {
            // Saved with the next tick: after a restart the gate must know that latencies are reported.
            self.unsaved_ticks = SAVED_EVERY;
        }
    }

    /// Attaches to each change since the last call the evidence of the stage that it ended, and
    /// drops the stats. If an entry changed several times, the first change gets the evidence: the
    /// stages between lasted no time. `policy` was active while the stage lasted.
    pub(crate) fn close_ended_stages(
        &mut self,
        durable: &mut DurableState,
        policy: &Policy,
        now: MonoTime,
    ) {
        let is_new = durable.changes > self.last_change;
        let mut rollouts: BTreeMap<String, &RolloutPolicy> = if is_new {
            entries(policy).collect()
        } else {
            BTreeMap::new()
        };
        let new = durable
            .history
            .iter_mut()
            .skip_while(|change| change.number <= self.last_change);
        for change in new {
            // An entry that has just appeared had no stage before.
            let Some(mode) = change.from else { continue };
            self.ended
                .entry(change.entry.clone())
                .or_default()
                .push((mode, now));
            let stats = self
                .stats
                .remove(&change.entry)
                .map(|stats| stats.evidence());
            let rollout = rollouts.remove(&change.entry);
            let gates = rollout
                .map(|rollout| self.answers.of(now, rollout))
                .unwrap_or_default();
            if stats.is_some() || !gates.is_empty() {
                let queries = gates.iter().map(query_gates::evidence).collect();
                change.evidence = Some(Evidence {
                    queries,
                    ..stats.unwrap_or_default()
                });
            }
        }
        self.last_change = durable.changes;
        let DurableState {
            stage_stats,
            stages,
            ..
        } = durable;
        let is_current =
            |entry: &str, change| stages.get(entry).map(|it| it.change) == Some(change);
        stage_stats.retain(|entry, saved| is_current(entry, saved.change));
        self.stats
            .retain(|entry, stats| is_current(entry, stats.change));
    }

    /// Ends a tick of the controller: advances the stats, judges every gate, and makes the moves that need no
    /// operator. With an audit log, promotions are only listed in `ready`. Linear in the entries of the policy.
    pub(crate) fn on_tick(
        &mut self,
        durable: &mut DurableState,
        policy: &Policy,
        now: MonoTime,
        tick: Duration,
        stale: Option<&StaleZone>,
    ) -> TickOutcome {
        self.ended.retain(|_, ended| {
            ended.retain(|(_, at)| now.since(*at) < STRAGGLING);
            !ended.is_empty()
        });
        let before = durable.changes;
        if let Some(ready) = &mut self.ready {
            ready.clear();
        }
        for (entry, rollout) in entries(policy) {
            let Some(stage) = durable.stages.get(&entry).copied() else {
                debug_assert!(false, "entry {entry} of the policy in force has no stage");
                continue;
            };
            if let Some(stats) = self.stats.get_mut(&entry) {
                stats.on_tick(stage.stage, window(stage.stage, rollout), tick);
            }
            if durable.is_entry_killed(&entry) {
                continue;
            }
            let judgement = self.judge(now, durable, &entry, rollout, stale);
            let next = judgement.and_then(|judgement| automatic_move(&stage, rollout, &judgement));
            if let Some(Move { to, cause, mut why }) = next {
                why.extend(self.sums(&entry).notes(stage.stage));
                match &mut self.ready {
                    Some(ready) if to > stage.stage => {
                        ready.push(Ready {
                            entry,
                            from: stage.stage,
                            to,
                            change: stage.change,
                            why,
                        });
                    }
                    _ => durable.enter_stage(&entry, to, cause, why),
                }
            }
        }
        let changed = durable.changes != before;
        self.close_ended_stages(durable, policy, now);
        self.unsaved_ticks += 1;
        let saves = changed || (self.unsaved_ticks >= SAVED_EVERY && !self.stats.is_empty());
        if saves {
            self.unsaved_ticks = 0;
            durable.stage_stats = self
                .stats
                .iter()
                .map(|(entry, stats)| (entry.clone(), stats.saved()))
                .collect();
        }
        TickOutcome { changed, saves }
    }

    /// Makes a promotion if its gate had passed at the last tick. Returns false if it had not, if the stage has
    /// changed since, or if the entry is killed.
    pub(crate) fn promote_ready(&mut self, durable: &mut DurableState, promotion: &Ready) -> bool {
        let Ready {
            entry,
            to,
            change,
            why,
            ..
        } = promotion;
        let is_same =
            |ready: &Ready| ready.entry == *entry && ready.to == *to && ready.change == *change;
        let ready = self.ready.as_mut().and_then(|ready| {
            let at = ready.iter().position(is_same)?;
            Some(ready.swap_remove(at))
        });
        let is_unchanged = durable
            .stages
            .get(entry)
            .is_some_and(|stage| stage.change == *change);
        let may_move = ready.is_some() && is_unchanged && !durable.is_entry_killed(entry);
        if may_move {
            durable.enter_stage(entry, *to, Cause::Gate, why.clone());
        }
        may_move
    }

    /// Judges the gate out of an entry's present stage. `None` for an enforced entry, which has no gate, and
    /// for an entry without a stage.
    pub(crate) fn judge(
        &self,
        now: MonoTime,
        durable: &DurableState,
        entry: &str,
        rollout: &RolloutPolicy,
        stale: Option<&StaleZone>,
    ) -> Option<Judgement> {
        let stage = durable.stages.get(entry)?;
        let stats = self
            .stats
            .get(entry)
            .filter(|stats| stats.change == stage.change);
        let mut observed = stats
            .map(|stats| stats.observed(stage.stage))
            .unwrap_or_default();
        observed.stale = stale.cloned();
        observed.queries = self.answers.of(now, rollout);
        match stage.stage {
            Mode::Shadow => Some(leave_shadow(
                &rollout.shadow,
                rollout.min_samples,
                &observed,
            )),
            Mode::Canary => Some(leave_canary(
                &rollout.canary,
                rollout.min_samples,
                &observed,
            )),
            Mode::Enforce => None,
        }
    }

    /// Returns the evidence of an entry's present stage without that of query gates.
    fn sums(&self, entry: &str) -> Evidence {
        let stats = self.stats.get(entry);
        stats.map(StageStats::evidence).unwrap_or_default()
    }

    /// Returns true if the gate out of canary compares no latency, because no instance reports it.
    pub(crate) fn is_latency_unreported(&self, entry: &str) -> bool {
        self.stats
            .get(entry)
            .is_some_and(|stats| stats.latency_basis() == LatencyBasis::NotReported)
    }

    pub(crate) fn evidence(&self, now: MonoTime, entry: &str, rollout: &RolloutPolicy) -> Evidence {
        let queries = self
            .answers
            .of(now, rollout)
            .iter()
            .map(query_gates::evidence)
            .collect();
        Evidence {
            queries,
            ..self.sums(entry)
        }
    }
}

/// Returns the move that follows from a judgement without an operator, if any.
fn automatic_move(stage: &Stage, rollout: &RolloutPolicy, judgement: &Judgement) -> Option<Move> {
    let is_pending = stage.pending.is_some();
    match judgement {
        Judgement::Fail(why) if stage.stage == Mode::Canary => {
            let cause = match why.iter().any(|why| matches!(why, Why::Stale(_))) {
                true => Cause::Stale,
                false => Cause::Breach,
            };
            Some(Move {
                to: Mode::Shadow,
                cause,
                why: reasons(judgement),
            })
        }
        Judgement::Pass if is_pending || rollout.auto_promote => {
            let why = if is_pending {
                "the policy file asks for it"
            } else {
                "auto_promote"
            };
            Some(Move {
                to: next_stage(stage.stage)?,
                cause: Cause::Gate,
                why: vec![why.to_owned()],
            })
        }
        Judgement::Pass | Judgement::Fail(_) | Judgement::Inconclusive(_) => None,
    }
}

/// The window of the gate out of a stage. The stats of an enforced entry use that of canary.
const fn window(stage: Mode, rollout: &RolloutPolicy) -> Duration {
    match stage {
        Mode::Shadow => rollout.shadow.window,
        Mode::Canary | Mode::Enforce => rollout.canary.window,
    }
}

fn entries(policy: &Policy) -> impl Iterator<Item = (String, &RolloutPolicy)> {
    policy.entries().map(|(name, entry)| (name, &entry.rollout))
}

pub(crate) const fn next_stage(stage: Mode) -> Option<Mode> {
    match stage {
        Mode::Shadow => Some(Mode::Canary),
        Mode::Canary => Some(Mode::Enforce),
        Mode::Enforce => None,
    }
}

pub(crate) fn reasons(judgement: &Judgement) -> Vec<String> {
    judgement
        .reasons()
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[cfg(test)]
mod tests;
