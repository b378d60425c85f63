//! Setup problems: wrong wiring of a limiter, which loses or weakens protection without an error.
//! Each is logged once with its remedy, and is held for metrics and status while it lasts.

mod held;
#[cfg(doctest)]
mod misuse;
mod problem;
mod readable;

pub(crate) use held::SetupProblems;
pub use problem::SetupProblem;
pub(crate) use readable::readable_debug;
pub use readable::write_readable;
