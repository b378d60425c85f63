//! The brain and policies that change very much: they are held back until somebody has looked at them.

use plimsoll_policy::{Difference, PolicyHash, differences};

use super::*;

/// A policy that is held back.
#[derive(Clone, Debug)]
pub struct Held {
    /// What it says.
    pub policy: Arc<Policy>,
    /// In what it differs from the one in force, what is drastic first.
    pub differences: Vec<Difference>,
}

/// What became of a policy that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// It is in force.
    Taken,
    /// It waits to be acknowledged. Its kill switch, and modes that ask for less, are in force.
    Held,
}

/// Why nothing is released.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AckError {
    /// No policy is held back.
    #[error("no policy is held back: {in_force} is in force")]
    Nothing {
        /// The policy in force.
        in_force: PolicyHash,
    },
    /// Another one is held back than was looked at.
    #[error("the policy that is held back is {held}, not {asked}: look at it with `plimsoll diff`")]
    Other {
        /// The one held back.
        held: PolicyHash,
        /// What was asked for.
        asked: String,
    },
}

impl Brain {
    /// Takes a policy that was read: puts it in force, or holds it back where it changes very much and guardrails are on.
    pub fn offer(&mut self, policy: Arc<Policy>) -> Offer {
        if policy.hash() == self.policy.hash() && self.held.take().is_some() {
            let before = self.durable.clone();
            self.durable.on_recall(&policy);
            self.rollout.settle(&mut self.durable, &self.policy, self.ticked);
            self.note_change(before != self.durable);
            self.post();
            return Offer::Taken;
        }
        let differences = if policy.guardrails() { differences(&self.policy, &policy) } else { Vec::new() };
        if differences.iter().all(|difference| difference.drastic.is_none()) {
            self.on_policy(policy);
            return Offer::Taken;
        }
        let before = self.durable.clone();
        self.durable.on_held(&policy, &self.policy);
        self.rollout.settle(&mut self.durable, &self.policy, self.ticked);
        self.note_change(before != self.durable);
        self.held = Some(Held { policy, differences });
        self.post();
        Offer::Held
    }

    /// Somebody has looked at the policy that is held back: it is in force.
    ///
    /// # Errors
    /// When none is held back, or another one.
    pub fn acknowledge(&mut self, hash: &str) -> Result<PolicyHash, AckError> {
        let Some(held) = &self.held else {
            return Err(AckError::Nothing { in_force: self.policy.hash() });
        };
        let policy = Arc::clone(&held.policy);
        if policy.hash().to_string() != hash {
            let asked = hash.chars().take(64).collect();
            return Err(AckError::Other { held: policy.hash(), asked });
        }
        let hash = policy.hash();
        self.on_policy(policy);
        Ok(hash)
    }

    /// The policy that is held back.
    #[must_use]
    pub const fn held(&self) -> Option<&Held> {
        self.held.as_ref()
    }
}
