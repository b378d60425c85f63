//! The tail of a bucket: all names that the policy does not list. The names of a plan are one key of the law, a class, and
//! so are those without a plan. Only the aggregator knows the names apart, and spreads the class's drop ratio over them.
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

use super::parameters;

/// Returns true if the rate of a name exceeds its tenant limit, both in requests/s, by more than chance: in the memory of
/// a name that stays at its limit the counts are Poisson.
pub fn exceeds(rate: f64, tenant_limit: f64) -> bool {
    let deviation = (tenant_limit / parameters::NAME_MEMORY.as_secs_f64()).sqrt();
    rate > tenant_limit + parameters::NAME_LIMIT_DEVIATIONS * deviation
}
