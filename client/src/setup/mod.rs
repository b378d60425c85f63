//! Setup problems: wrong wiring of a limiter that loses or weakens protection while every request is admitted.
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
