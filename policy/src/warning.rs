//! Warnings about legal values with an effect that an operator may not expect.

use std::fmt;

use serde::Serialize;

use crate::buckets::{BucketPolicy, LimitSource};
use crate::learning::DAYS_MAX;
use crate::yaml::{Field, Place};
use plimsoll_core::decision::Mode;
use plimsoll_core::quantity::{Limit, Rate};

/// A legal value with an effect that an operator may not expect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// The file, by the name it was read under.
    pub file: String,
    /// The place in the file.
    pub at: Place,
    /// The field, such as `buckets.checkout.law`.
    pub path: String,
    /// The effect.
    pub message: String,
}

// === impl Warning ===

impl Warning {
    fn of(field: &Field<'_>, message: String) -> Self {
        Self { file: field.file().to_owned(), at: field.at(), path: field.path(), message }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.at, self.path, self.message)
    }
}

// === checks ===

/// Returns the warning about `policy.yaml` as a whole, if any.
pub(crate) fn of_policy(root: &Field<'_>) -> Option<Warning> {
    let buckets = root.then("buckets");
    let message = "no bucket is protected: everything is admitted and counted";
    buckets.entries().next().is_none().then(|| Warning::of(&buckets, message.to_owned()))
}

/// Returns the warnings about one bucket.
pub(crate) fn of_bucket(field: &Field<'_>, bucket: &BucketPolicy) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if bucket.limit() == Limit::PerSecond(Rate::ZERO) && bucket.mode == Mode::Enforce {
        let message = "a limit of 0 in mode enforce denies everything".to_owned();
        warnings.push(Warning::of(&field.then("limit"), message));
    }
    if let LimitSource::Learned(learned) = &bucket.source
        && learned.days > DAYS_MAX as f64
    {
        let message = format!("at most {DAYS_MAX} days are remembered, so {DAYS_MAX} days are used");
        warnings.push(Warning::of(&field.then("limit").then("learned").then("days"), message));
    }
    warnings
}
