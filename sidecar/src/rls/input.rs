//! The bounds of a request, checked before it is compared with rules, and the errors of requests
//! that break one.

use tonic::{Code, Status};

use super::grpc::MESSAGE_BYTES_MAX;
use super::messages::RateLimitRequest;
use crate::rules::{ENTRIES_MAX, ENTRY_BYTES_MAX};
use crate::serve::BodyError;

pub(super) const DESCRIPTORS_MAX: usize = 32;

/// Reason why a request is not decided. None of its descriptors is counted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    #[error("there is no method {0} on this port")]
    Method(String),
    #[error("the message is compressed: send it with grpc-encoding identity")]
    Compressed,
    #[error("the body must be one message after a prefix of 5 bytes, and it has {0} bytes")]
    Frame(usize),
    #[error("the message is larger than {MESSAGE_BYTES_MAX} bytes")]
    TooLarge,
    #[error(transparent)]
    Body(BodyError),
    #[error("the message is not a RateLimitRequest: {0}")]
    Malformed(#[from] prost::DecodeError),
    #[error("`domain` must not be empty: it is that of the filter's configuration")]
    NoDomain,
    #[error(
        "`descriptors` must not be empty: the route needs rate limit actions, each of which yields an entry"
    )]
    NoDescriptors,
    #[error("`descriptors` has {0} elements, more than {DESCRIPTORS_MAX}")]
    Descriptors(usize),
    #[error("`descriptors[{descriptor}].entries` has {count} elements, more than {ENTRIES_MAX}")]
    Entries { descriptor: usize, count: usize },
    #[error(
        "`descriptors[{descriptor}].entries[{entry}].key` has {bytes} bytes, more than {ENTRY_BYTES_MAX}"
    )]
    EntryBytes {
        descriptor: usize,
        entry: usize,
        bytes: usize,
    },
}

impl InputError {
    /// Labels of all errors, in the order of their counters.
    pub(super) const LABELS: [&str; 11] = [
        "method",
        "compressed",
        "frame",
        "too_large",
        "body",
        "malformed",
        "domain",
        "no_descriptors",
        "descriptors",
        "entries",
        "entry_bytes",
    ];

    pub(super) const fn index(&self) -> usize {
        match self {
            Self::Method(_) => 0,
            Self::Compressed => 1,
            Self::Frame(_) => 2,
            Self::TooLarge => 3,
            Self::Body(_) => 4,
            Self::Malformed(_) => 5,
            Self::NoDomain => 6,
            Self::NoDescriptors => 7,
            Self::Descriptors(_) => 8,
            Self::Entries { .. } => 9,
            Self::EntryBytes { .. } => 10,
        }
    }

    const fn code(&self) -> Code {
        match self {
            Self::Method(_) | Self::Compressed => Code::Unimplemented,
            Self::Frame(_) => Code::Internal,
            Self::TooLarge | Self::Body(BodyError::NoRoom) => Code::ResourceExhausted,
            Self::Body(BodyError::TooSlow) => Code::DeadlineExceeded,
            Self::Body(_) => Code::Cancelled,
            _ => Code::InvalidArgument,
        }
    }
}

impl From<BodyError> for InputError {
    fn from(error: BodyError) -> Self {
        if matches!(error, BodyError::TooLarge(_)) {
            Self::TooLarge
        } else {
            Self::Body(error)
        }
    }
}

impl From<&InputError> for Status {
    fn from(error: &InputError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

/// Checks a request against the bounds. Values are often chosen by the proxy's callers, and a proxy
/// serves a request that is not decided: a long value is not an error, and matches as far as it
/// can.
///
/// # Errors
/// The broken bound, with its place.
pub(super) fn check(request: &RateLimitRequest) -> Result<(), InputError> {
    if request.domain.is_empty() {
        return Err(InputError::NoDomain);
    }
    match request.descriptors.len() {
        0 => return Err(InputError::NoDescriptors),
        count if count > DESCRIPTORS_MAX => return Err(InputError::Descriptors(count)),
        _ => {}
    }
    for (descriptor, of) in request.descriptors.iter().enumerate() {
        let count = of.entries.len();
        if count > ENTRIES_MAX {
            return Err(InputError::Entries { descriptor, count });
        }
        for (entry, of) in of.entries.iter().enumerate() {
            let bytes = of.key.len();
            if bytes > ENTRY_BYTES_MAX {
                return Err(InputError::EntryBytes {
                    descriptor,
                    entry,
                    bytes,
                });
            }
        }
    }
    Ok(())
}
