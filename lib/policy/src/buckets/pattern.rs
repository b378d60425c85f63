//! Patterns of bucket names: a name that ends in one `*` is a template for every name with this prefix.

use std::collections::BTreeMap;

use plimsoll_core::names::{Bucket, InvalidName, check_name};

/// The prefix of a pattern: everything before the `*`, possibly empty. The pattern also matches the bare
/// prefix, since `*` means any number of characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Pattern(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidPattern {
    #[error("a pattern has one `*`, at its end")]
    Star,
    #[error(transparent)]
    Name(#[from] InvalidName),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BucketKey {
    Exact(Bucket),
    Pattern(Pattern),
}

impl BucketKey {
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidPattern> {
        match text.split_once('*') {
            None => Ok(Self::Exact(Bucket::new(text)?)),
            Some((_, rest)) if !rest.is_empty() => Err(InvalidPattern::Star),
            Some(("", _)) => Ok(Self::Pattern(Pattern(String::new()))),
            Some((beginning, _)) => {
                check_name(beginning)?;
                Ok(Self::Pattern(Pattern(beginning.to_owned())))
            }
        }
    }
}

impl std::borrow::Borrow<str> for Pattern {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}*", self.0)
    }
}

/// Returns the longest pattern that matches `name`, with its value. At most 129 look-ups,
/// regardless of the number of patterns.
pub(crate) fn longest_match<'a, T>(
    patterns: &'a BTreeMap<Pattern, T>,
    name: &Bucket,
) -> Option<(&'a Pattern, &'a T)> {
    let name = name.as_str();
    (0..=name.len())
        .rev()
        .find_map(|length| patterns.get_key_value(name.get(..length)?))
}
