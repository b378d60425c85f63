//! Conversions between wire messages and core types. Decoders validate every value, so that a state machine
//! never sees a message that is out of range.

mod catalogued;
mod coherence;
mod decode_error;
mod directives;
mod headroom;
mod kill;
mod quotas;
mod report;
mod scalars;
mod tail;

pub use decode_error::DecodeError;
pub use directives::DirectivesDecoder;
pub(crate) use directives::{bucket_piece, encode_head};
pub use report::{ReportDecoder, ReportEncoder};
