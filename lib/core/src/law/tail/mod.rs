//! The tail of a bucket: all names that the policy does not list. Together they are one key of the law, the class
//! `default`. Only the aggregator knows them apart, and spreads the class's drop ratio over them.
//!
//! A name is *counted* if its own counts show its rate, and is cut to a water level in requests/s
//! that all counted names share. The others have one common ratio, by the mean of their rates. The
//! level is solved so that the whole class passes exactly what the law gives it, regardless of the
//! number of names. Names that are new to the class count together as a twentieth of the
//! established ones, so a flood of invented names takes no more than that.

mod demand;
mod growth;
mod memory;
mod standing;
#[cfg(test)]
mod tests;

pub use demand::{Cut, Demand, Spread, Tail};
pub use growth::Growth;
pub use memory::NameMemory;
pub use standing::{Bin, Standing};
