//! The scope of a kill: the fleet, or one bucket.

use std::fmt;

use crate::names::Bucket;

/// The scope of a kill, or of its end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Every bucket.
    Fleet,
    /// Only one bucket.
    Bucket(Bucket),
}

impl Scope {
    /// The bucket; `None` for the fleet.
    pub const fn bucket(&self) -> Option<&Bucket> {
        match self {
            Self::Fleet => None,
            Self::Bucket(bucket) => Some(bucket),
        }
    }
}

impl From<Option<Bucket>> for Scope {
    fn from(bucket: Option<Bucket>) -> Self {
        bucket.map_or(Self::Fleet, Self::Bucket)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fleet => f.pad("fleet"),
            Self::Bucket(bucket) => f.pad(bucket.as_str()),
        }
    }
}
