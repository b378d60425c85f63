//! The mode of a bucket as status pages and metrics show it.

use serde::{Deserialize, Serialize};

use super::Mode;

/// The mode of a bucket, or unknown: a bucket that no policy names is in no mode.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ShownMode {
    /// No entry of a policy is known to cover the bucket.
    #[default]
    Unknown,
    /// See [`Mode::Shadow`].
    Shadow,
    /// See [`Mode::Canary`].
    Canary,
    /// See [`Mode::Enforce`].
    Enforce,
}

impl ShownMode {
    /// Every mode, from the most careful.
    pub const ALL: [Self; 4] = [Self::Unknown, Self::Shadow, Self::Canary, Self::Enforce];

    /// The word used in metrics and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Shadow => Mode::Shadow.as_str(),
            Self::Canary => Mode::Canary.as_str(),
            Self::Enforce => Mode::Enforce.as_str(),
        }
    }
}

impl From<Option<Mode>> for ShownMode {
    fn from(mode: Option<Mode>) -> Self {
        match mode {
            None => Self::Unknown,
            Some(Mode::Shadow) => Self::Shadow,
            Some(Mode::Canary) => Self::Canary,
            Some(Mode::Enforce) => Self::Enforce,
        }
    }
}

impl PartialEq<Mode> for ShownMode {
    fn eq(&self, other: &Mode) -> bool {
        *self == Self::from(Some(*other))
    }
}

impl std::fmt::Display for ShownMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_shown_as_words() {
        for (mode, word) in [
            (None, "unknown"),
            (Some(Mode::Shadow), "shadow"),
            (Some(Mode::Canary), "canary"),
            (Some(Mode::Enforce), "enforce"),
        ] {
            let shown = ShownMode::from(mode);
            assert_eq!(
                (shown.as_str(), serde_json::to_value(shown).unwrap()),
                (word, word.into())
            );
            assert!(ShownMode::ALL.contains(&shown) && mode.is_none_or(|mode| shown == mode));
        }
    }
}
