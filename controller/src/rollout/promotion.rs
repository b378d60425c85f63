//! What an operator orders: promotion to a higher stage, the abort of a rollout, the return after a kill to the stage
//! before it, and evidence that begins anew.

use plimsoll_core::decision::Mode;
use plimsoll_core::names::{Bucket, Text};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::rollout::gates::{Judgement, StaleZone};
use plimsoll_policy::{Policy, RolloutPolicy};

use super::{Rollouts, next_stage, reasons};
use crate::state::{Cause, DurableState, Stage};

const NAMES_MAX: usize = 20;
/// Maximum number of characters of an unknown entry in an error.
const ENTRY_CHARS_MAX: usize = 128;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RolloutError {
    #[error("the policy has no entry `{entry}`; {hint}")]
    Unknown {
        entry: String,
        /// The entries that the policy has, or the pattern that covers the bucket.
        hint: String,
    },
    #[error("still killed: end the kill first (`plimsoll kill status` shows its cause)")]
    Killed,
    /// No kill put it in shadow, or it has moved since.
    #[error(
        "`{entry}` is not in shadow because of a kill; `plimsoll rollout status` shows its stage"
    )]
    NotKilled { entry: String },
    #[error(
        "the policy of `{entry}` changed since the kill, so that the stage before says little: \
         `plimsoll rollout promote {entry}` takes it up by its gate"
    )]
    Edited { entry: String },
    #[error(
        "`{entry}` has mode shadow in the policy file or was returned to shadow: raise it there, or promote it"
    )]
    Lowered { entry: String },
    /// Without its hold the bucket would be above the stage that it had.
    #[error(
        "`{pattern}` is in {stage} now, and was in {before} before the kill: to include the bucket, return the pattern \
         with `plimsoll rollout abort`, and promote it again"
    )]
    Raised {
        pattern: String,
        stage: Mode,
        /// The stage of the pattern before the kill.
        before: Mode,
    },
    #[error("`{entry}` is enforced: no gate judges it, and no evidence can begin anew")]
    NoGate { entry: String },
    #[error("`{entry}` is in {stage} already; `plimsoll rollout abort` returns it to shadow")]
    Reached {
        entry: String,
        /// The present stage.
        stage: Mode,
    },
    /// The gate does not pass.
    #[error("the gate from {from} to {to} is not passed: {}; promote past it with --force --reason TEXT", why.join("; "))]
    Gate {
        from: Mode,
        to: Mode,
        /// The reasons of the gate.
        why: Vec<String>,
    },
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Promotion<'a> {
    pub(crate) entry: &'a str,
    /// The target stage; the next one if absent.
    pub(crate) to: Option<Mode>,
    /// The reason to move it although the gate does not pass.
    pub(crate) force: Option<&'a Text>,
    /// The reason to move it now that the gate passes.
    pub(crate) reason: Option<&'a Text>,
}

// === impl Rollouts ===

impl Rollouts {
    /// Moves an entry up.
    ///
    /// # Errors
    /// If the entry is unknown, killed, or in that stage already, or if the gate does not pass.
    pub(crate) fn promote(
        &self,
        durable: &mut DurableState,
        policy: &Policy,
        now: MonoTime,
        stale: Option<&StaleZone>,
        promotion: Promotion<'_>,
    ) -> Result<(), RolloutError> {
        let Promotion {
            entry,
            to,
            force,
            reason,
        } = promotion;
        let rollout = rollout_of(policy, entry)?;
        if durable.is_entry_killed(entry) {
            return Err(RolloutError::Killed);
        }
        let from = durable
            .stages
            .get(entry)
            .map_or(Mode::Shadow, |stage| stage.stage);
        let reached = || RolloutError::Reached {
            entry: entry.to_owned(),
            stage: from,
        };
        let next = next_stage(from).ok_or_else(reached)?;
        let to = to.unwrap_or(next);
        if to <= from {
            return Err(reached());
        }
        let judgement = self.judge(now, durable, entry, rollout, stale);
        // `None` does not occur here: every entry of the policy has a stage, and an enforced one has returned above.
        let passed = to == next && judgement.as_ref().is_none_or(Judgement::is_pass);
        let mut against = judgement.as_ref().map(reasons).unwrap_or_default();
        against.extend((to > next).then(|| format!("{next} is skipped")));
        if !passed {
            against.extend(begun_anew(durable, entry));
        }
        let notes = self.sums(entry).notes(from);
        let (cause, grounds) = match force {
            _ if passed => (Cause::Promote, Some("the gate is passed")),
            None if !rollout.require_gates => (Cause::Promote, Some("no gate is required")),
            None => {
                against.extend(notes);
                return Err(RolloutError::Gate {
                    from,
                    to,
                    why: against,
                });
            }
            Some(_) => (Cause::Forced, None),
        };
        let said = force.or(reason).map(|reason| reason.to_string());
        let mut why: Vec<String> = grounds.map(str::to_owned).into_iter().chain(said).collect();
        if !passed {
            why.extend(against);
        }
        why.extend(notes);
        durable.enter_stage(entry, to, cause, why);
        Ok(())
    }

    /// Moves an entry to shadow. Returns false if it is in shadow and no higher mode is pending.
    ///
    /// # Errors
    /// If the policy has no such entry.
    pub(crate) fn abort(
        durable: &mut DurableState,
        policy: &Policy,
        entry: &str,
        reason: Option<&Text>,
    ) -> Result<bool, RolloutError> {
        rollout_of(policy, entry)?;
        let stage = durable.stages.get(entry);
        let rests = |stage: &Stage| stage.stage == Mode::Shadow && stage.pending.is_none();
        // An abort after a kill means that it must not return.
        if stage.is_none_or(|stage| rests(stage) && stage.before_kill.is_none()) {
            return Ok(false);
        }
        let why = reason.map(ToString::to_string).into_iter().collect();
        durable.enter_stage(entry, Mode::Shadow, Cause::Abort, why);
        Ok(true)
    }

    /// Returns the stage to which an entry, or a bucket that was killed without its pattern, returns once its kill has
    /// ended: that before the kill, or a lower one that the policy file asks for since.
    ///
    /// # Errors
    /// If no kill put it in shadow, its policy changed since, or it would be above a mode or a stage asked for.
    pub(crate) fn stage_after_kill(
        durable: &DurableState,
        policy: &Policy,
        name: &str,
    ) -> Result<Mode, RolloutError> {
        let pattern = durable.held_below(name);
        let entry = pattern.unwrap_or(name);
        let Some(stage) = durable.stages.get(entry) else {
            return Err(RolloutError::unknown(policy, entry));
        };
        let before = durable.before_kill(name);
        let Some(before) = before.filter(|before| before.stage > Mode::Shadow) else {
            let entry = name.to_owned();
            return Err(RolloutError::NotKilled { entry });
        };
        let owned = || entry.to_owned();
        if before.edited {
            return Err(RolloutError::Edited { entry: owned() });
        }
        match pattern {
            // A bucket has the stage of its pattern, or shadow.
            Some(_) if stage.stage > before.stage => Err(RolloutError::Raised {
                pattern: owned(),
                stage: stage.stage,
                before: before.stage,
            }),
            Some(_) if stage.stage > Mode::Shadow => Ok(stage.stage),
            None if stage.file > Mode::Shadow => Ok(before.stage.min(stage.file)),
            _ => Err(RolloutError::Lowered { entry: owned() }),
        }
    }

    /// Returns the stage to which an entry or a bucket can return now.
    ///
    /// # Errors
    /// As for [`stage_after_kill`](Self::stage_after_kill), or if it is killed.
    pub(crate) fn resumed_stage(
        durable: &DurableState,
        policy: &Policy,
        name: &str,
    ) -> Result<Mode, RolloutError> {
        let to = Self::stage_after_kill(durable, policy, name)?;
        let is_killed = durable.is_entry_killed(name);
        (!is_killed).then_some(to).ok_or(RolloutError::Killed)
    }

    /// Returns an entry to its stage before a kill, or `to` if that is lower, or lets a bucket follow its pattern again.
    ///
    /// # Errors
    /// As for [`resumed_stage`](Self::resumed_stage).
    pub(crate) fn resume(
        durable: &mut DurableState,
        policy: &Policy,
        name: &str,
        to: Mode,
        reason: &Text,
    ) -> Result<(), RolloutError> {
        let to = Self::resumed_stage(durable, policy, name)?.min(to);
        let why = vec![reason.to_string()];
        if durable.stages.contains_key(name) {
            durable.enter_stage(name, to, Cause::Resume, why);
        } else {
            durable.release(name);
            durable.record(name, Some(Mode::Shadow), to, Cause::Resume, why);
        }
        Ok(())
    }

    /// Begins the evidence of an entry anew.
    ///
    /// # Errors
    /// If the policy has no such entry, or the entry is enforced and has no gate.
    pub(crate) fn reset(
        durable: &mut DurableState,
        policy: &Policy,
        entry: &str,
        reason: &Text,
    ) -> Result<(), RolloutError> {
        rollout_of(policy, entry)?;
        if durable
            .stages
            .get(entry)
            .is_some_and(|stage| stage.stage == Mode::Enforce)
        {
            return Err(RolloutError::NoGate {
                entry: entry.to_owned(),
            });
        }
        durable.renew_evidence(entry, Cause::Reset, vec![reason.to_string()]);
        Ok(())
    }
}

/// Returns since when the evidence of an entry counts, and why, if it began anew within the stage.
fn begun_anew(durable: &DurableState, entry: &str) -> Option<String> {
    let change = durable.change(durable.stages.get(entry)?.change)?;
    let is_renewal = change.cause.is_renewal();
    is_renewal.then(|| {
        format!(
            "evidence counts since {}: {}",
            change.at(),
            change.why.join(", ")
        )
    })
}

fn rollout_of<'a>(policy: &'a Policy, entry: &str) -> Result<&'a RolloutPolicy, RolloutError> {
    let found = policy.entries().find(|(name, _)| name == entry);
    found
        .map(|(_, of_entry)| &of_entry.rollout)
        .ok_or_else(|| RolloutError::unknown(policy, entry))
}

// === impl RolloutError ===

impl RolloutError {
    /// The error for an entry that the policy does not have.
    pub(crate) fn unknown(policy: &Policy, entry: &str) -> Self {
        let matched = Bucket::new(entry)
            .ok()
            .and_then(|bucket| policy.entry(&bucket));
        let names: Vec<String> = policy
            .entries()
            .take(NAMES_MAX)
            .map(|(name, _)| format!("`{name}`"))
            .collect();
        let hint = match matched {
            Some(pattern) => {
                format!(
                    "the bucket falls under `{pattern}`, which has one stage for all its buckets"
                )
            }
            None if names.is_empty() => "it has no entries at all".to_owned(),
            None => format!("it has {}", names.join(", ")),
        };
        Self::Unknown {
            entry: entry.chars().take(ENTRY_CHARS_MAX).collect(),
            hint,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::brain::tests::policy;

    struct Scene {
        durable: DurableState,
        policy: Arc<Policy>,
    }

    impl Scene {
        fn new(text: &str) -> Self {
            let mut scene = Self {
                durable: DurableState::first_start(),
                policy: policy(text),
            };
            scene.durable.on_policy(&scene.policy);
            scene
        }

        fn promote(
            &mut self,
            to: Option<Mode>,
            force: Option<&str>,
        ) -> Result<(Mode, Cause), RolloutError> {
            let force = force.map(|reason| Text::new(reason).unwrap());
            let promotion = Promotion {
                entry: "api",
                to,
                force: force.as_ref(),
                reason: None,
            };
            let (now, rollouts) = (MonoTime::ZERO, Rollouts::default());
            rollouts.promote(&mut self.durable, &self.policy, now, None, promotion)?;
            Ok((
                self.durable.stages["api"].stage,
                self.durable.history.back().unwrap().cause,
            ))
        }

        fn abort(&mut self, entry: &str) -> Result<bool, RolloutError> {
            Rollouts::abort(&mut self.durable, &self.policy, entry, None)
        }
    }

    #[test]
    fn forced_promotion_needs_a_reason() {
        let mut scene = Scene::new("buckets: { api: { limit: 1 } }\n");
        assert!(matches!(
            scene.promote(None, None),
            Err(RolloutError::Gate {
                to: Mode::Canary,
                ..
            })
        ));
        assert_eq!(
            scene.promote(None, Some("a test")),
            Ok((Mode::Canary, Cause::Forced))
        );
        assert!(matches!(
            scene.promote(Some(Mode::Shadow), Some("a test")),
            Err(RolloutError::Reached { .. })
        ));
        assert_eq!(
            scene.promote(None, Some("a test")),
            Ok((Mode::Enforce, Cause::Forced))
        );
        assert!(matches!(
            scene.promote(None, Some("a test")),
            Err(RolloutError::Reached { .. })
        ));
        assert_eq!(
            (scene.abort("api"), scene.abort("api")),
            (Ok(true), Ok(false))
        );
        assert!(matches!(
            scene.abort("apo"),
            Err(RolloutError::Unknown { .. })
        ));
    }

    #[test]
    fn promotion_without_required_gates_may_skip_canary() {
        let mut scene =
            Scene::new("buckets: { api: { limit: 1 } }\nrollout: { require_gates: false }\n");
        assert_eq!(
            scene.promote(Some(Mode::Enforce), None),
            Ok((Mode::Enforce, Cause::Promote))
        );
        assert_eq!(
            scene.durable.history.back().unwrap().why.last().unwrap(),
            "canary is skipped"
        );
    }

    #[test]
    fn killed_entry_is_not_promoted() {
        let mut scene = Scene::new("kill_switch: true\nbuckets: { api: { limit: 1 } }\n");
        assert_eq!(
            scene.promote(None, Some("a test")),
            Err(RolloutError::Killed)
        );
    }
}
