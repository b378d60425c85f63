//! One decision about one request: the coin, the trace-id it may follow, the guard's token bucket, the
//! verdict and the mode that decides whether a refusal is carried out.

pub mod coherent;
pub mod coin;
mod mode;
mod shown_mode;
pub mod token_bucket;
pub mod trace;
mod verdict;
pub mod wait;

pub use coin::Coin;
pub use mode::Mode;
pub use shown_mode::ShownMode;
pub use verdict::{Reason, Refusal, Verdict};
pub use wait::WaitClass;
