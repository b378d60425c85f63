//! What is legal and yet worth a word: above all, what this version reads but does not do.

use std::fmt;

use serde::Serialize;

use super::buckets::BucketPolicy;
use super::error::Place;
use super::source::Field;
use crate::rate::{Limit, Rate};
use crate::rollout::Mode;

/// Something that an operator may not expect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// The file, by the name it was read under.
    pub file: String,
    /// Where in the file, if it concerns one place.
    pub at: Option<Place>,
    /// The field, such as `buckets.checkout.law`.
    pub path: String,
    /// What to expect instead.
    pub message: String,
}

/// A field that is read but has no effect yet.
struct NotBuilt {
    /// Names of fields; `*` stands for any name.
    path: &'static [&'static str],
    /// Only this value is not built; `None` is any.
    value: Option<&'static str>,
    /// What happens instead.
    instead: &'static str,
}

/// NOT BUILT YET, the one list: whoever builds a thing removes its line.
const NOT_BUILT: &[NotBuilt] = &[
    not_built(&["buckets", "*", "limit", "learned"], None, LIMIT_UNKNOWN),
    not_built(&["buckets", "*", "limit", "prometheus"], None, LIMIT_UNKNOWN),
];

const LIMIT_UNKNOWN: &str = "the limit is unknown, so everything is admitted and counted";

const fn not_built(
    path: &'static [&'static str],
    value: Option<&'static str>,
    instead: &'static str,
) -> NotBuilt {
    NotBuilt { path, value, instead }
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

// === what to say ===

/// What of `policy.yaml` is not built.
pub(super) fn of_policy(root: &Field<'_>) -> Vec<Warning> {
    let buckets = root.then("buckets");
    let mut warnings = Vec::new();
    for entry in NOT_BUILT {
        entry.warn(root, entry.path, &mut warnings);
    }
    if buckets.entries().next().is_none() {
        let message = "no bucket is protected: everything is admitted and counted";
        warnings.push(Warning::of(&buckets, message.to_owned()));
    }
    warnings
}

/// What of one bucket means something else than it may seem to.
pub(super) fn of_bucket(field: &Field<'_>, bucket: &BucketPolicy) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if bucket.limit() == Limit::PerSecond(Rate::ZERO) && bucket.mode() == Mode::Enforce {
        warnings.push(Warning::of(
            &field.then("limit"),
            "a limit of 0 in mode enforce denies everything".to_owned(),
        ));
    }
    warnings
}

impl NotBuilt {
    /// Warns of every field below `field` that `path` leads to.
    fn warn(&self, field: &Field<'_>, path: &[&str], warnings: &mut Vec<Warning>) {
        match path {
            [] if self.value.is_none_or(|value| value == field.scalar()) => {
                warnings.push(Warning::of(field, format!("not built yet: {}", self.instead)));
            }
            [] => {}
            ["*", rest @ ..] => field.entries().for_each(|entry| self.warn(&entry, rest, warnings)),
            [name, rest @ ..] => {
                if let Some(entry) = field.entry(name) {
                    self.warn(&entry, rest, warnings);
                }
            }
        }
    }
}
