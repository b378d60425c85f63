//! Responses: their bodies, and the outcomes that are counted for them.

mod body;
mod outcome;

pub use body::{EitherBody, PlimsollBody, ResponseBody, SameBody};
pub(super) use outcome::{Outcome, ending_of};
