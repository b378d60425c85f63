//! The return after a kill to the stage before it, and evidence that an operator begins anew.

use plimsoll_core::decision::Mode;
use plimsoll_core::names::Text;
use plimsoll_policy::Policy;

use super::Rollouts;
use super::promotion::{RolloutError, rollout_of};
use crate::state::{Cause, DurableState};

impl Rollouts {
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
