//! An undo: the policy before the last change is active again, and the undone one is held back until its files change.

use std::sync::Arc;

use plimsoll_policy::{Policy, PolicyError, PolicyTexts};

use super::Brain;
use crate::state::Undone;

/// Why the last change of the policy cannot be undone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UndoError {
    #[error(
        "there is no policy to return to: one step back is kept, from the last change of the policy"
    )]
    Nothing,
    #[error("this build refuses the policy before the last change: {0}")]
    Unreadable(#[from] PolicyError),
    #[error(
        "the policy in force kills the fleet, and an undo ends no kill: write `kill_switch: false` into the file"
    )]
    Kill,
    #[error(
        "guardrails hold the policy before the last change back: {}; `plimsoll undo --release` returns to it anyway", .0.join("; ")
    )]
    Held(Vec<String>),
    #[error("the policy has changed meanwhile: look at it with `plimsoll undo`")]
    Changed,
}

impl Brain {
    /// Returns the texts of the policy before the last change, and the current policy.
    ///
    /// # Errors
    /// If there is none, or the undo would end a kill.
    pub(crate) fn undoable(&self) -> Result<(Arc<PolicyTexts>, Arc<Policy>), UndoError> {
        let earlier = self.durable.earlier.clone().ok_or(UndoError::Nothing)?;
        if self.durable.killed_by_file {
            return Err(UndoError::Kill);
        }
        Ok((earlier, Arc::clone(&self.policies.in_force)))
    }

    /// Activates `earlier`, the policy before the last change, and holds the current one back for the reason `why`.
    ///
    /// # Errors
    /// If the policy has changed since it was read.
    pub(crate) fn undo(&mut self, earlier: Arc<Policy>, why: String) -> Result<(), UndoError> {
        let (texts, undone) = self.undoable()?;
        if texts != *earlier.texts() {
            return Err(UndoError::Changed);
        }
        let hash = undone.hash().to_string();
        self.on_policy(earlier);
        self.durable.earlier = None;
        self.durable.undone = Some(Undone {
            hash,
            why: why.clone(),
        });
        self.policies.hold(undone, vec![why]);
        self.pending_saves.note_change(true);
        Ok(())
    }

    /// Returns why a policy was undone, if it was. Any other policy of the files ends that.
    pub(super) fn why_undone(&mut self, offered: &Policy) -> Option<String> {
        let hash = offered.hash().to_string();
        self.durable.undone.take_if(|undone| undone.hash != hash);
        Some(self.durable.undone.as_ref()?.why.clone())
    }
}
