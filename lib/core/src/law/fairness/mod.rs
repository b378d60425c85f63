//! Weighted max-min fairness between the tenants of a bucket, for a led zone and for one on hold.

mod debt;
mod division;
mod hold;
mod waterfill;

pub use division::{Claimant, Division};
pub use hold::{HeldPart, divide_hold};
pub use waterfill::{FillClaim, Waterfill};
