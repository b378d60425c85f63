//! Fuzz targets: each is a function of bytes that reach Plimsoll from outside, and panics if they
//! break a rule. Each is also a test, and libFuzzer runs it as it is.
#![allow(clippy::unwrap_used, clippy::panic)] // a broken rule ends the target

mod mutation;
mod schema;
mod script;
mod targets;
mod trial;

pub use targets::run;
pub use trial::check;
