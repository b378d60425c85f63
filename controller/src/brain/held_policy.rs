//! The policy in force, and the policy that guardrails hold back until an operator acknowledges it.

use std::sync::Arc;

use plimsoll_policy::{Difference, Policy, PolicyHash, differences};

use super::Brain;

/// Characters of a wrong hash that are repeated in an error, at most.
const HASH_CHARS_MAX: usize = 64;

/// A policy that is held back.
#[derive(Clone, Debug)]
pub(crate) struct HeldPolicy {
    /// The policy.
    pub(crate) policy: Arc<Policy>,
    /// Its differences from the policy in force, the drastic ones first.
    pub(crate) differences: Vec<Difference>,
}

/// The result of offering a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// The policy is in force.
    Taken,
    /// The policy waits to be acknowledged. Its kill switch and its lower modes are in force already.
    Held,
}

/// Why no policy was released.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AckError {
    /// No policy is held back.
    #[error("no policy is held back: {in_force} is in force")]
    Nothing {
        /// The policy in force.
        in_force: PolicyHash,
    },
    /// The acknowledged policy is not the one that is held back.
    #[error("the policy that is held back is {held}, not {asked}: look at it with `plimsoll diff`")]
    Other {
        /// The policy held back.
        held: PolicyHash,
        /// The acknowledged hash.
        asked: String,
    },
}

/// The policy in force and the one held back.
#[derive(Debug)]
pub(crate) struct Policies {
    pub(crate) in_force: Arc<Policy>,
    pub(crate) held: Option<HeldPolicy>,
}

/// The comparison of an offered policy with the one in force.
#[derive(Debug)]
pub(crate) enum Review {
    /// The files are back at the policy in force, after another one was held back.
    Recalled,
    /// No difference is drastic, or guardrails are off.
    Accepted,
    /// At least one difference is drastic.
    Drastic(HeldPolicy),
}

// === impl Policies ===

impl Policies {
    pub(super) const fn new(in_force: Arc<Policy>) -> Self {
        Self { in_force, held: None }
    }

    /// Compares an offered policy with the one in force.
    pub(super) fn review(&self, offered: &Arc<Policy>) -> Review {
        if self.held.is_some() && offered.hash() == self.in_force.hash() {
            return Review::Recalled;
        }
        if !offered.guardrails() {
            return Review::Accepted;
        }
        let differences = differences(&self.in_force, offered);
        if differences.iter().all(|difference| difference.drastic.is_none()) {
            return Review::Accepted;
        }
        Review::Drastic(HeldPolicy { policy: Arc::clone(offered), differences })
    }

    /// Puts a policy in force and drops the one held back.
    pub(super) fn replace(&mut self, policy: Arc<Policy>) {
        *self = Self::new(policy);
    }

    /// The policy held back, if an operator acknowledges it by its hash.
    ///
    /// # Errors
    /// If no policy is held back, or another one.
    pub(super) fn acknowledged(&self, hash: &str) -> Result<Arc<Policy>, AckError> {
        let Some(HeldPolicy { policy, .. }) = &self.held else {
            return Err(AckError::Nothing { in_force: self.in_force.hash() });
        };
        if policy.hash().to_string() != hash {
            let asked = hash.chars().take(HASH_CHARS_MAX).collect();
            return Err(AckError::Other { held: policy.hash(), asked });
        }
        Ok(Arc::clone(policy))
    }
}

// === impl Brain ===

impl Brain {
    /// Puts a policy in force, or holds it back if guardrails are on and a difference is drastic.
    pub(crate) fn offer(&mut self, policy: Arc<Policy>) -> Offer {
        let before = self.durable.clone();
        let offer = match self.policies.review(&policy) {
            Review::Accepted => {
                self.on_policy(policy);
                return Offer::Taken;
            }
            Review::Recalled => {
                self.policies.held = None;
                self.durable.on_recall(&policy);
                Offer::Taken
            }
            Review::Drastic(held) => {
                self.durable.on_held(&policy, &self.policies.in_force);
                self.policies.held = Some(held);
                Offer::Held
            }
        };
        self.close_ended_stages();
        self.pending_saves.note_change(before != self.durable);
        self.post();
        offer
    }

    /// Puts the policy that is held back in force, because an operator acknowledges it by its hash.
    ///
    /// # Errors
    /// If no policy is held back, or another one.
    pub(crate) fn acknowledge(&mut self, hash: &str) -> Result<PolicyHash, AckError> {
        let policy = self.policies.acknowledged(hash)?;
        let hash = policy.hash();
        self.on_policy(policy);
        Ok(hash)
    }

    /// Puts a policy in force.
    pub fn on_policy(&mut self, policy: Arc<Policy>) {
        let before = self.durable.clone();
        self.durable.on_policy(&policy);
        self.close_ended_stages();
        self.rollouts.answers.retain_asked(&policy);
        self.policies.replace(Arc::clone(&policy));
        for (bucket, _) in policy.exact_buckets() {
            self.ensure_bucket(bucket);
        }
        self.limits.on_policy(&policy);
        for bucket in self.buckets.iter_mut() {
            let limit = self.limits.of(&policy, &bucket.name);
            bucket.configure(&policy, limit);
        }
        // Every key is added again below, new ones included.
        self.keys.take_new();
        for (id, key) in self.keys.iter() {
            if let Some(bucket) = self.buckets.get_mut(&key.bucket) {
                bucket.add_key(id, &key.tenant);
            }
        }
        self.assign_holds();
        self.pending_saves.note_change(before != self.durable || self.pending_saves.is_untouched());
        for child in self.sessions.iter_mut() {
            policy.exact_buckets().for_each(|(bucket, _)| child.subscribe(bucket));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_policy::{ONE_CLASS_TENANTS, Source};

    fn policy(limit: u32, guardrails: &str) -> Arc<Policy> {
        let text = format!("guardrails: {guardrails}\nbuckets: {{ api: {{ limit: {limit} }} }}\n");
        let policy = Source { name: "policy.yaml", text: &text };
        Arc::new(Policy::read(policy, Source { name: "tenants.yaml", text: ONE_CLASS_TENANTS }).unwrap().0)
    }

    #[test]
    fn drastic_policy_is_held_until_its_own_hash_is_acknowledged() {
        let (good, drastic) = (policy(1_000, "on"), policy(100, "on"));
        let mut policies = Policies::new(Arc::clone(&good));
        assert!(matches!(policies.review(&policy(900, "on")), Review::Accepted));
        assert!(matches!(policies.review(&policy(100, "off")), Review::Accepted));
        assert!(
            matches!(policies.review(&good), Review::Accepted),
            "without a held policy there is no recall"
        );
        let Review::Drastic(held) = policies.review(&drastic) else {
            panic!("a tenth of the limit is drastic")
        };
        policies.held = Some(held);
        assert!(matches!(policies.review(&good), Review::Recalled));
        assert!(matches!(policies.acknowledged("0123456789abcdef"), Err(AckError::Other { .. })));
        let released = policies.acknowledged(&drastic.hash().to_string()).unwrap();
        policies.replace(released);
        assert_eq!(policies.in_force.hash(), drastic.hash());
        assert!(matches!(policies.acknowledged("0123456789abcdef"), Err(AckError::Nothing { .. })));
    }

    #[test]
    fn recalled_policy_is_held_no_longer() {
        let good = policy(1_000, "on");
        let mut policies = Policies::new(Arc::clone(&good));
        let Review::Drastic(held) = policies.review(&policy(100, "on")) else { panic!() };
        policies.held = Some(held);
        policies.held = None;
        assert!(policies.held.is_none());
        assert_eq!(policies.in_force.hash(), good.hash());
    }
}
