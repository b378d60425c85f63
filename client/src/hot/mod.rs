//! Everything that a decision reads and writes, and its upkeep off the request path. A decision uses memory
//! that was allocated at the start, and never waits for a lock.

pub(crate) mod decision;
pub(crate) mod directive_word;
pub(crate) mod guard_pool;
pub(crate) mod guards;
pub(crate) mod interner;
pub(crate) mod rng;
pub(crate) mod shared_key;
pub(crate) mod sync;
pub(crate) mod table;
#[cfg(test)]
#[cfg(feature = "loom")]
mod tests;
pub(crate) mod thread_counters;
