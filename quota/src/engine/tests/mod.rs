//! The engine on a real store and on a failing store.

mod clock;
mod crash;
mod faults;
mod memory;
mod operators;
mod recovery;
mod semantics;
mod support;
