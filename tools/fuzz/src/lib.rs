//! Fuzz targets: each is a function of bytes that reach Plimsoll from outside, and panics if they
//! break a rule. The layout is cargo-fuzz's; `plimsoll-fuzz` runs the same functions as a loop with
//! a seed on any toolchain.

pub mod corpus;
pub mod dictionary;
pub mod mutator;
pub mod runner;
pub mod schema;
mod targets;

pub use targets::{TARGETS, Target, run};
