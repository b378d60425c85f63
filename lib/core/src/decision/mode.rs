//! The rollout mode of a bucket: decides whether a refusal is carried out or only counted.

use serde::{Deserialize, Serialize};

/// The rollout mode, ordered from the most careful to the most effective.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Refusals are counted as would-dropped and never carried out. The default: nothing enforces by
    /// omission.
    #[default]
    Shadow,
    /// A share of the instances, or of the keys of each instance, carries refusals out.
    Canary,
    /// Every instance carries refusals out.
    Enforce,
}

impl Mode {
    /// The word used in YAML, metrics and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Shadow => "shadow",
            Self::Canary => "canary",
            Self::Enforce => "enforce",
        }
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}
