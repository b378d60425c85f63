//! Warnings about legal values with an effect that an operator may not expect.

pub(crate) mod checks;
mod gates;

use std::fmt;

use serde::Serialize;

use crate::timestamp::UnixSeconds;
use crate::yaml::{Field, SourcePlace};

/// A legal value with an effect that an operator may not expect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// The file, by the name it was read under.
    pub file: String,
    /// The place in the file.
    pub at: SourcePlace,
    /// The field, such as `buckets.checkout.limit`.
    pub path: String,
    /// The effect.
    pub message: String,
    /// Start of the time when the warning holds; `None` if it always does.
    #[serde(skip)]
    pub since: Option<UnixSeconds>,
}

impl Warning {
    /// Makes a warning about a field.
    pub fn of(field: &Field<'_>, message: String) -> Self {
        Self {
            file: field.file().to_owned(),
            at: field.at(),
            path: field.path(),
            message,
            since: None,
        }
    }

    pub(crate) fn of_name(field: &Field<'_>, message: String) -> Self {
        Self {
            at: field.name_at(),
            ..Self::of(field, message)
        }
    }

    /// Returns true if the warning holds at a time in seconds since 1970.
    pub fn holds_at(&self, unix_s: i64) -> bool {
        self.since.is_none_or(|since| since.as_secs() <= unix_s)
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}: {}",
            self.file, self.at, self.path, self.message
        )
    }
}
