//! The wire protocol of Plimsoll: the `Exchange` service, the conversions between its messages and
//! the types of [`plimsoll_core`], and a gRPC driver for each end of a stream.
//!
//! Wire types stop here. A driver passes validated core types to the state machine of a tier,
//! behind the lock of [`plimsoll_host::Shared`].
//!
//! The feature `server` adds the parent's end and its server. A client needs only the child's end.
#![forbid(unsafe_code)]

#[cfg(feature = "server")]
mod codec;
mod convert;
pub mod driver;
mod parts;
#[cfg(test)]
mod tests;
pub mod transport;
// The generator sets the format.
#[rustfmt::skip]
pub mod wire;

pub use convert::{DecodeError, DirectivesDecoder, ReportDecoder, ReportEncoder};
pub use parts::{MessagePart, Parts, encode_directives};

/// Maximum size of a message that either end accepts, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of keys in one part of a message, and of entries in most of its other lists.
pub const KEYS_PER_PART_MAX: usize = 4_096;
/// Maximum number of buckets and keys in one message of directives, over all its parts.
pub const KEYS_PER_MESSAGE_MAX: usize = 1 << 20;
