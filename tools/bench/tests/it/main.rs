//! The measuring program on real processes: its client streams, and counts while tiers are killed.

#[cfg(test)]
mod books;
#[cfg(test)]
#[allow(dead_code)] // the tests of the cli use the rest
#[path = "../../../../cli/tests/it/fleet.rs"]
mod fleet;
#[cfg(test)]
#[allow(dead_code)] // the tests of the cli use the rest
#[path = "../../../../cli/tests/it/process.rs"]
mod process;
#[cfg(test)]
mod streams;
