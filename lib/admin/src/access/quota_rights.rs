//! The rights of a token at the Redis port of a quota server. They follow from its role, unless the fourth field of its
//! line states others.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;

use super::Role;

const FIELD: &str = "quota:";

/// A right at the Redis port of a quota server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum QuotaRight {
    /// Takes quota tokens.
    Take,
    /// Gives quota tokens back: no more than what this access token took lately, until the bucket's next refill
    /// (1 s where it is refilled more often).
    Give,
    /// Reads balances.
    Read,
    /// Gives any number of quota tokens, also ones never taken.
    Reset,
}

/// The rights of a token, and the beginning of the keys that it has them for. As text: `quota:take,give:PREFIX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaRights {
    rights: Vec<QuotaRight>,
    prefix: String,
}

/// A text that is no rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "rights are written as quota:RIGHTS or quota:RIGHTS:PREFIX with some of take,give,read,reset"
)]
pub struct InvalidQuotaRights;

impl QuotaRight {
    /// The name as in a tokens file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Take => "take",
            Self::Give => "give",
            Self::Read => "read",
            Self::Reset => "reset",
        }
    }
}

impl Role {
    /// Returns true if the role alone gives this right: every role has take, give and read; reset needs an operator.
    pub(super) fn has_right(self, right: QuotaRight) -> bool {
        right != QuotaRight::Reset || self >= Self::Operator
    }
}

impl QuotaRights {
    pub(super) fn allow(&self, right: QuotaRight, key: &[u8]) -> bool {
        self.rights.contains(&right) && key.starts_with(self.prefix.as_bytes())
    }
}

impl FromStr for QuotaRights {
    type Err = InvalidQuotaRights;

    fn from_str(text: &str) -> Result<Self, InvalidQuotaRights> {
        let text = text.strip_prefix(FIELD).ok_or(InvalidQuotaRights)?;
        let (rights, prefix) = text.split_once(':').unwrap_or((text, ""));
        let rights = rights
            .split(',')
            .map(|right| QuotaRight::from_str(right, false));
        let rights = rights
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| InvalidQuotaRights)?;
        // The fields of a line are divided by blanks.
        if prefix.contains(|char: char| char.is_ascii_whitespace()) {
            return Err(InvalidQuotaRights);
        }
        Ok(Self {
            rights,
            prefix: prefix.to_owned(),
        })
    }
}

impl fmt::Display for QuotaRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rights: Vec<&str> = self.rights.iter().map(|right| right.as_str()).collect();
        write!(f, "{FIELD}{}", rights.join(","))?;
        match self.prefix.as_str() {
            "" => Ok(()),
            prefix => write!(f, ":{prefix}"),
        }
    }
}
