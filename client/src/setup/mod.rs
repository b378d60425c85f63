//! Setup problems: wrong wiring of a limiter, which loses or weakens protection without an error.
//! Each is logged once with its remedy, and is held for metrics and status while it lasts.

mod held;
#[cfg(doctest)]
mod misuse;
mod problem;
mod readable;
mod wiring;

pub(crate) use held::SetupProblems;
pub(crate) use problem::FIRST_ANSWER_WITHIN;
pub use problem::SetupProblem;
pub(crate) use readable::readable_debug;
pub use readable::write_readable;
pub(crate) use wiring::Wirings;
pub use wiring::{TenantSource, Wiring};
