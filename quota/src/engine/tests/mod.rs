//! The engine on a real store and on one that fails.

mod clock;
mod crash;
mod faults;
mod memory;
mod operators;
mod recovery;
mod semantics;
mod support;
