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
    /// The place in the file, if the warning concerns one place.
    pub at: Option<Place>,
    /// The field, such as `buckets.checkout.law`.
    pub path: String,
    /// The effect.
    pub message: String,
}

// === impl Warning ===

impl Warning {
    fn of(field: &Field<'_>, message: String) -> Self {
        Self { file: field.file().to_owned(), at: Some(field.at()), path: field.path(), message }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Some(at) => write!(f, "{}:{at}: ", self.file)?,
            None => write!(f, "{}: ", self.file)?,
        }
        write!(f, "{}: {}", self.path, self.message)
    }
}

// // === checks ===

/// Returns the warnings about `policy.yaml` as a whole.
pub(crate) fn of_policy(root: &Field<'_>) -> Vec<Warning> {
    let buckets = root.then("buckets");
    let mut warnings = Vec::new();
    if buckets.entries().next().is_none() {
        let message = "no bucket is protected: everything is admitted and counted";
        warnings.push(Warning::of(&buckets, message.to_owned()));
    }
    warnings
}

/// Returns the warnings about one bucket.
pub(crate) fn of_bucket(field: &Field<'_>, bucket: &BucketPolicy) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if bucket.limit() == Limit::PerSecond(Rate::ZERO) && bucket.mode() == Mode::Enforce {
        warnings.push(Warning::of(
            &field.then("limit"),
            "a limit of 0 in mode enforce denies everything".to_owned(),
        ));
    }
    match bucket.source() {
        LimitSource::Learned(learned) if learned.days > DAYS_MAX as f64 => {
            let message = format!("at most {DAYS_MAX} days are remembered, so {DAYS_MAX} days are used");
            warnings.push(Warning::of(&field.then("limit").then("learned").then("days"), message));
        }
        _ => {}
    }
    warnings
}
