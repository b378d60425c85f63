//! `POST /v1/check` and `POST /v1/report`: callers that name bucket and tenant in a JSON body.
//!
//! Bodies are read strictly, so that a misspelt member is an error with its place instead of a
//! missing limit. Tenant and trace may be the choice of the caller's callers, and are never an
//! error: an empty tenant counts as the class `default`.

mod check;
mod read;
mod report;
mod types;

pub(super) use self::check::check;
pub(super) use self::read::check_content_type;
pub(super) use self::report::report;

use super::counts::Endpoint;

pub(super) const BATCH_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Check,
    Report,
}

impl Call {
    pub(super) const fn endpoint(self) -> Endpoint {
        match self {
            Self::Check => Endpoint::V1Check,
            Self::Report => Endpoint::V1Report,
        }
    }
}
