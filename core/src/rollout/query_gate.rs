//! Extra gates: a number that somebody else measures, held against a bound. Pure: the answer and its age are arguments.
//!
//! Nothing that is not known passes, and nothing that is not known is held against anybody: no answer yet, none that is a
//! number, and one that is too old.

use std::fmt;
use std::time::Duration;

use crate::names::Name;

/// What a number must keep: finite, 0 or more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// It may be this at most.
    AtMost(f64),
    /// It must be this at least.
    AtLeast(f64),
}

/// One extra gate, and what is known of its number.
#[derive(Clone, Debug, PartialEq)]
pub struct Extra {
    /// What it is called.
    pub name: Name,
    /// What the number must keep.
    pub bound: Bound,
    /// What was answered last.
    pub answer: Answer,
}

/// What became of the last question.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Answer {
    /// There has been none.
    #[default]
    Awaited,
    /// It was answered.
    Number {
        /// With this, which need not be finite.
        value: f64,
        /// So long ago.
        age: Duration,
        /// How long an answer counts.
        good_for: Duration,
    },
    /// There is no such number, or nobody who would know it.
    Missing {
        /// Why.
        why: String,
    },
}

/// Why an extra gate is not passed.
#[derive(Clone, Debug, PartialEq)]
pub enum Flaw {
    /// The number does not keep its bound.
    Beyond {
        /// What it is.
        value: f64,
        /// What it must keep.
        bound: Bound,
    },
    /// Nobody has answered yet.
    Awaited,
    /// There is no answer.
    Missing(String),
    /// It is not a finite number.
    NotANumber(f64),
    /// It is too old.
    Old {
        /// How old.
        age: Duration,
        /// How old it may be.
        good_for: Duration,
    },
}

// === impl Extra ===

impl Extra {
    /// The number, if it is one and young enough.
    ///
    /// # Errors
    /// Why there is none.
    pub fn known(&self) -> Result<f64, Flaw> {
        match &self.answer {
            Answer::Awaited => Err(Flaw::Awaited),
            Answer::Missing { why } => Err(Flaw::Missing(why.clone())),
            Answer::Number { value, .. } if !value.is_finite() => Err(Flaw::NotANumber(*value)),
            Answer::Number { age, good_for, .. } if age > good_for => {
                Err(Flaw::Old { age: *age, good_for: *good_for })
            }
            Answer::Number { value, .. } => Ok(*value),
        }
    }

    /// Why it is not passed; `None` if it is.
    #[must_use]
    pub fn flaw(&self) -> Option<Flaw> {
        match self.known() {
            Ok(value) if self.bound.is_kept_by(value) => None,
            Ok(value) => Some(Flaw::Beyond { value, bound: self.bound }),
            Err(flaw) => Some(flaw),
        }
    }
}

// === impl Flaw ===

impl Flaw {
    /// Whether it is known to be bad, and not merely unknown to be good.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        matches!(self, Self::Beyond { .. })
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beyond { value, bound: bound @ Bound::AtMost(_) } => {
                write!(f, "is {}, {bound} may be", Figure(*value))
            }
            Self::Beyond { value, bound: bound @ Bound::AtLeast(_) } => {
                write!(f, "is {}, {bound} must be", Figure(*value))
            }
            Self::Awaited => f.write_str("has not been answered yet"),
            Self::Missing(why) => write!(f, "is not known: {why}"),
            Self::NotANumber(value) => write!(f, "is not a number: {value}"),
            Self::Old { age, good_for } => {
                let (age, good_for) = (age.as_secs_f64(), good_for.as_secs_f64());
                write!(f, "was answered {age:.0} s ago, and that counts for {good_for} s")
            }
        }
    }
}

// === impl Bound ===

impl Bound {
    /// Whether a number keeps it; one that is none never does.
    #[must_use]
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
            Self::AtMost(most) => write!(f, "at most {}", Figure(*most)),
            Self::AtLeast(least) => write!(f, "at least {}", Figure(*least)),
        }
    }
}

/// A number as people write it, without hundreds of zeros.
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
