//! The answer of `/policy`: the current policy, the one that is held back, and why the files are refused.

use plimsoll_policy::Difference;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::brain::Brain;

/// The current policy and the held one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Policies {
    /// The hash of the current policy.
    pub in_force: String,
    /// The policy that waits for acknowledgement.
    pub held: Option<HeldStatus>,
    /// Why the files as they are now were refused; null if they were not.
    pub refused: Option<String>,
    /// Since when they are, in seconds since 1970.
    #[serde(default)]
    pub refused_since_s: Option<i64>,
}

impl Policies {
    /// Returns the policies of a controller.
    pub fn of(brain: &Brain) -> Self {
        let held = brain.policies.held.as_ref().map(|held| {
            let hash = held.policy.hash().to_string();
            HeldStatus {
                since_s: brain.durable().held_since_s(&hash),
                hash,
                reasons: held.reasons.clone(),
                differences: held.differences.clone(),
            }
        });
        let refused = brain.policies.refused.clone();
        Self {
            in_force: brain.policy().hash().to_string(),
            held,
            refused,
            refused_since_s: brain.policies.refused_since_s,
        }
    }
}

/// A policy that waits for acknowledgement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeldStatus {
    /// The hash of the policy.
    pub hash: String,
    /// Since when it is held back, in seconds since 1970.
    #[serde(default)]
    pub since_s: Option<i64>,
    /// Why it is held back.
    pub reasons: Vec<String>,
    /// Its differences from the current policy.
    pub differences: Vec<Difference>,
}
