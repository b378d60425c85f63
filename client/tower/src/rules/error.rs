//! The reasons why rules are rejected, each with the rule, the condition and the remedy.

use std::fmt;

use plimsoll_client::BucketError;
use plimsoll_client::internals::write_readable;

use super::template::PARAMS_MAX;

impl fmt::Debug for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_readable(self, f)
    }
}

impl fmt::Debug for PathFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_readable(self, f)
    }
}

/// Maximum number of buckets that a request counts for.
pub const KEYS_MAX: usize = 8;

/// The reason why rules are rejected. A rule is named by its place in the list, from 1 on, and its parts.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RulesError {
    /// The list has no rule.
    #[error(
        "the list of rules is empty, so that no request is limited: add a rule, such as Rule::otherwise(\"rest\")"
    )]
    Empty,
    /// A bucket cannot be declared.
    #[error("{rule}: {source}")]
    Bucket {
        /// The rule.
        rule: String,
        /// The reason.
        source: BucketError,
    },
    /// The path of a rule is malformed.
    #[error("{rule}: {fault}")]
    Path {
        /// The rule.
        rule: String,
        /// The fault.
        fault: PathFault,
    },
    /// A rule has an empty list of methods.
    #[error(
        "{rule}: the list of methods is empty, so that no request matches: name one, or leave `methods` out for all"
    )]
    NoMethods {
        /// The rule.
        rule: String,
    },
    /// A rule for the rest has a condition.
    #[error(
        "{rule}: `Rule::otherwise` takes all other requests and no condition: use `Rule::bucket` for a condition"
    )]
    OtherwiseWithCondition {
        /// The rule.
        rule: String,
    },
    /// An unlimited rule has a cost.
    #[error("{rule}: an unlimited request has no cost: remove `cost`, or use `Rule::bucket`")]
    UnlimitedWithCost {
        /// The rule.
        rule: String,
    },
    /// A request would count for several buckets in a way that cannot be.
    #[error("{rule}: {fault}")]
    Also {
        /// The rule.
        rule: String,
        /// The fault, with its remedy.
        fault: &'static str,
    },
    /// Two rules match the same requests.
    #[error("{rule}: {earlier} matches the same requests and applies first: remove one of the two")]
    Duplicate {
        /// The rule that never applies.
        rule: String,
        /// The rule that applies in its place.
        earlier: String,
    },
    /// An earlier rule matches all requests of a rule.
    #[error(
        "{rule}: it never applies, because {earlier} matches all its requests first: list the narrower rule first"
    )]
    Unreachable {
        /// The rule that never applies.
        rule: String,
        /// The rule that applies in its place.
        earlier: String,
    },
}

/// The fault of a path or template.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathFault {
    /// The first character is no slash.
    #[error("it must begin with `/`: write the path without scheme and host")]
    NoSlash,
    /// The text has a query.
    #[error("a path has no query: remove `?` and what follows it; a literal `?` is written `%3F`")]
    Query,
    /// A segment begins with a star, or the last one ends with one.
    #[error(
        "`*` alone is no wildcard: write .prefix(\"{prefix}\") for the path and all below it, or .path(\"{}\") for those \
         below it alone; a literal `*` takes .exact(..)",
        rest(prefix)
    )]
    Star {
        /// The text before the star.
        prefix: String,
    },
    /// A segment begins with a colon, which was the syntax of axum up to 0.7.
    #[error(
        "a segment may not begin with `:`: write a parameter as `{{id}}`; a literal `:` takes .exact(..)"
    )]
    Colon,
    /// A brace has no counterpart, or a parameter has no valid name.
    #[error(
        "a parameter is a name in braces, such as `{{id}}` or `{{*rest}}`: write a literal brace twice"
    )]
    Braces,
    /// Text follows a parameter in its segment.
    #[error(
        "a parameter ends its segment: put `/` after its brace, or match the whole segment by one parameter"
    )]
    TextAfterParam,
    /// Segments follow a parameter for the rest.
    #[error("a parameter such as `{{*rest}}` ends the path: remove what follows it")]
    RestNotLast,
    /// There are more parameters than a router takes.
    #[error(
        "it has more than {PARAMS_MAX} parameters, the most that a router takes: end it with `{{*rest}}`"
    )]
    TooManyParams,
    /// A literal path has braces.
    #[error(
        "`exact` and `prefix` have no parameters: use .path(..), in which a literal brace is written twice"
    )]
    LiteralBraces,
}

impl PathFault {
    pub(super) fn star(pattern: &str) -> Self {
        let before = pattern
            .split('*')
            .next()
            .unwrap_or_default()
            .trim_end_matches('/');
        Self::Star {
            prefix: if before.is_empty() {
                "/".to_owned()
            } else {
                before.to_owned()
            },
        }
    }
}

fn rest(prefix: &str) -> String {
    format!("{}/{{*rest}}", prefix.trim_end_matches('/'))
}
