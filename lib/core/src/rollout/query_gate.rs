//! Extra gates: the answer of a Prometheus query compared with a bound. Pure: the answer and its age are
//! arguments.
//!
//! An unknown value neither passes nor fails: no answer yet, an answer that is not a number, or an
//! answer that is too old.

use std::fmt;
use std::time::Duration;

use crate::names::Name;

/// The bound of a number: finite, 0 or more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// The maximum.
    AtMost(f64),
    /// The minimum.
    AtLeast(f64),
}

/// One extra gate and the last answer to its query.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryGateState {
    /// The name of the gate.
    pub name: Name,
    /// The bound of the number.
    pub bound: Bound,
    /// The last answer.
    pub answer: Answer,
}

/// The outcome of the last query.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Answer {
    /// No answer yet.
    #[default]
    Awaited,
    /// A number was returned.
    Number {
        /// The number, which need not be finite.
        value: f64,
        /// The age of the answer.
        age: Duration,
        /// Maximum age of a valid answer.
        good_for: Duration,
    },
    /// The query has no result, or the server did not answer, for this cause.
    Missing(String),
}

/// The reason why an extra gate does not pass.
#[derive(Clone, Debug, PartialEq)]
pub enum QueryFlaw {
    /// The number is beyond its bound.
    Beyond {
        /// The number.
        value: f64,
        /// Its bound.
        bound: Bound,
    },
    /// No answer yet.
    Awaited,
    /// The query has no result, or the server did not answer.
    Missing(String),
    /// The answer is not a finite number.
    NotANumber(f64),
    /// The answer is too old.
    Old {
        /// The age of the answer.
        age: Duration,
        /// Maximum age of a valid answer.
        good_for: Duration,
    },
}

// === impl QueryGateState ===

impl QueryGateState {
    /// Returns the number, if the answer is finite and recent enough.
    ///
    /// # Errors
    /// If there is no such number.
    pub fn known(&self) -> Result<f64, QueryFlaw> {
        match &self.answer {
            Answer::Awaited => Err(QueryFlaw::Awaited),
            Answer::Missing(why) => Err(QueryFlaw::Missing(why.clone())),
            Answer::Number { value, .. } if !value.is_finite() => {
                Err(QueryFlaw::NotANumber(*value))
            }
            Answer::Number { age, good_for, .. } if age > good_for => Err(QueryFlaw::Old {
                age: *age,
                good_for: *good_for,
            }),
            Answer::Number { value, .. } => Ok(*value),
        }
    }

    /// Returns the reason why the gate does not pass; `None` if it passes.
    pub fn flaw(&self) -> Option<QueryFlaw> {
        match self.known() {
            Ok(value) if self.bound.is_kept_by(value) => None,
            Ok(value) => Some(QueryFlaw::Beyond {
                value,
                bound: self.bound,
            }),
            Err(flaw) => Some(flaw),
        }
    }
}

// === impl QueryFlaw ===

impl QueryFlaw {
    /// Returns true if the value is known to be bad, and not merely unknown.
    pub const fn is_known(&self) -> bool {
        matches!(self, Self::Beyond { .. })
    }
}

impl fmt::Display for QueryFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beyond { value, bound } => {
                let side = if matches!(bound, Bound::AtMost(_)) {
                    "above"
                } else {
                    "below"
                };
                write!(f, "is {}, {side} the {bound}", Figure(*value))
            }
            Self::Awaited => f.write_str("has no answer yet"),
            Self::Missing(why) => write!(f, "is unknown: {why}"),
            Self::NotANumber(value) => write!(f, "is not a number: {value}"),
            Self::Old { age, good_for } => {
                let (age, good_for) = (age.as_secs_f64(), good_for.as_secs_f64());
                write!(
                    f,
                    "has an answer {age:.0} s old, older than the maximum of {good_for} s"
                )
            }
        }
    }
}

// === impl Bound ===

impl Bound {
    /// Returns true if the number is within the bound; NaN never is.
    pub fn is_kept_by(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "maximum of {}", Figure(*most)),
            Self::AtLeast(least) => write!(f, "minimum of {}", Figure(*least)),
        }
    }
}

/// A number for display, in scientific notation where decimals would need many zeros.
#[derive(Clone, Copy, Debug)]
pub struct Figure(pub f64);

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.0.abs();
        if size == 0.0 || (1e-6..1e15).contains(&size) {
            write!(f, "{}", self.0)
        } else {
            write!(f, "{:e}", self.0)
        }
    }
}
