//! The wire of Plimsoll: the `Exchange` service, the conversions between its messages and the core's, and the two
//! drivers that carry a conversation over gRPC for whichever tier plugs its state machine in.
//!
//! What every tier needs around its state machine lives here too, so that it is written once: the clock
//! ([`shared`]), the connections ([`transport`]), the admin port ([`admin`]) and the metrics page ([`page`]).
//!
//! Wire types stop here. A driver hands a tier nothing but what [`plimsoll_core`] defines, validated.
#![forbid(unsafe_code)]

pub mod admin;
pub mod child;
mod codec;
mod coherence;
mod directives;
pub mod drill_route;
mod invalid;
mod kill;
pub mod local;
pub mod page;
pub mod parent;
mod parts;
mod rates;
pub mod refusals;
mod report;
pub mod shared;
pub mod switch;
pub mod traffic;
pub mod transport;

pub use directives::DirectivesDecoder;
pub use invalid::Invalid;
pub use parts::{Part, Parts, encode_directives};
pub use report::{ReportDecoder, ReportEncoder, encode_report};

/// The generated messages and stubs.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::expect_used
)]
pub mod wire {
    tonic::include_proto!("plimsoll.exchange.v1");
}

/// The largest message either side accepts, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 256 * 1024;
/// The most keys one part of a message may define or count.
pub const KEYS_PER_PART_MAX: usize = 4_096;
/// The most keys one logical message may carry, all its parts together.
pub const KEYS_PER_MESSAGE_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests;
