//! The reasons why an admin port gave no answer, each with what to try next.

use plimsoll_admin::loopback::ErrorBody;
use reqwest::StatusCode;

use super::Address;

/// A request to an admin port failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdminError {
    /// No address accepted the request.
    #[error("{}\n  = hint: {hint}", .tried.join("\n       "))]
    Unreachable { tried: Vec<String>, hint: &'static str },
    /// The request is invalid: sending it again fails again.
    #[error("{} ({address})", .refusal.error)]
    Invalid { address: Address, refusal: ErrorBody },
    /// The tier refuses a valid request in its present state.
    #[error("{} ({address})", .refusal.error)]
    Refused { address: Address, refusal: ErrorBody },
    /// The answer is not one of an admin port of this version.
    #[error(
        "{address} sent an unexpected answer: {cause}; is it the admin port (7401 of a controller, 7411 of an \
         aggregator), and of this version?"
    )]
    UnexpectedAnswer { address: Address, cause: String },
}

impl AdminError {
    /// Returns true if the arguments are at fault, so that sending the request again cannot succeed.
    pub(crate) const fn is_usage(&self) -> bool {
        matches!(self, Self::Invalid { .. })
    }

    /// The error that an answer without success stands for.
    pub(super) fn from_answer(address: &Address, status: StatusCode, body: &[u8]) -> Self {
        let address = address.clone();
        match serde_json::from_slice::<ErrorBody>(body) {
            Err(_) => Self::UnexpectedAnswer { address, cause: status.to_string() },
            Ok(refusal) if matches!(status, StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE) => {
                Self::Invalid { address, refusal }
            }
            Ok(refusal) => Self::Refused { address, refusal },
        }
    }
}

/// Describes an address that did not answer.
pub(super) fn no_answer(address: &Address, cause: &str) -> String {
    format!("nothing answers at {address}: {cause}")
}

/// The innermost cause of an HTTP error, which is the one that an operator can act on.
pub(crate) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::super::{CONTROLLER, parse_address};
    use super::*;

    #[test]
    fn only_invalid_requests_are_usage_errors() {
        let address = parse_address(CONTROLLER).unwrap();
        let refusal = br#"{"error":"no","line":3}"#;
        for (status, body, usage) in [
            (StatusCode::BAD_REQUEST, &refusal[..], true),
            (StatusCode::PAYLOAD_TOO_LARGE, refusal, true),
            (StatusCode::CONFLICT, refusal, false),
            (StatusCode::FORBIDDEN, refusal, false),
            (StatusCode::BAD_REQUEST, b"<html>", false),
        ] {
            let error = AdminError::from_answer(&address, status, body);
            assert_eq!(error.is_usage(), usage, "{status}: {error}");
            assert!(error.to_string().contains(CONTROLLER), "{error}");
        }
    }
}
