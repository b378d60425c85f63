//! The response to a refused request: a problem document over HTTP, a status with details over gRPC, or the service's
//! own.

mod format;
mod grpc;
mod limit_fields;
mod problem;
mod refused;
#[cfg(test)]
mod tests;
mod words;

pub(super) use format::Format;
pub use format::{RateLimitHeaders, RefusalFormat, RefusalOf};
pub use limit_fields::quota_fields;
pub use refused::Refused;

/// The `domain` of the `ErrorInfo` in gRPC refusals.
pub const ERROR_DOMAIN: &str = "plimsoll.dev";

const RATE_LIMIT_REASON: &str = "x-ratelimit-reason";
