//! The decision about requests of a bucket without a known policy.

use plimsoll_core::quantity::DropRatio;

use crate::hot::directive_word::DirectiveWord;
use crate::hot::table::Table;

/// The decision about requests of a bucket without a known policy: before its first directive,
/// unless an earlier process has saved one or the service itself has set a
/// [rate](crate::LimiterBuilder::cold_rps).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BeforePolicy {
    /// They are admitted, without their quotas.
    #[default]
    Allow,
    /// They are refused, for [`Reason::ColdStart`](crate::Reason::ColdStart).
    Deny,
}

impl BeforePolicy {
    /// Returns the word in settings, metrics and status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }

    /// Returns the directive word of a bucket without a known policy.
    pub(crate) fn word(self) -> DirectiveWord {
        match self {
            Self::Allow => DirectiveWord::NOTHING,
            Self::Deny => DirectiveWord::new(DropRatio::ALL).cold(true).enforced(true),
        }
    }
}

impl std::str::FromStr for BeforePolicy {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let all = [Self::Allow, Self::Deny];
        all.into_iter()
            .find(|policy| policy.as_str() == text)
            .ok_or("write allow or deny")
    }
}

impl Table {
    /// Publishes what a bucket follows before its first directive, unless it has a default class already.
    pub(crate) fn begin_bucket(&self, bucket: u32, default_key: u32) {
        if self.default_key(bucket).is_some() {
            return;
        }
        #[cfg(feature = "testing")]
        if let Some(word) = self.hooks.fallback() {
            self.publish(default_key, word);
        }
        if self.before_policy.is_held() && self.own_directive(default_key) == DirectiveWord::NOTHING
        {
            self.publish(default_key, self.before_policy);
        }
    }
}
