//! The reasons why a request to an admin port failed, each with a remedy.

use std::error::Error;
use std::io;
use std::path::Path;

use plimsoll_admin::body::ErrorBody;
use plimsoll_tls::{HandshakeFailure, Tier};
use reqwest::StatusCode;

use super::{Address, AdminPort};

/// The mark between a text and its remedy.
pub(crate) const HINT: &str = "\n  = hint: ";

#[derive(Debug, thiserror::Error)]
pub(crate) enum AdminError {
    /// The arguments or their files do not allow sending the request.
    #[error("{0}")]
    Unsent(String),
    /// The request is invalid: sending it again fails again.
    #[error("{} ({address})", .refusal.error)]
    Invalid {
        address: Address,
        refusal: ErrorBody,
    },
    /// No answer, an unexpected one, or the refusal of a valid request.
    #[error("{0}")]
    Failed(String),
}

impl AdminError {
    /// Returns true if the arguments are at fault, so that sending the request again cannot
    /// succeed.
    pub(crate) const fn is_usage(&self) -> bool {
        matches!(self, Self::Invalid { .. } | Self::Unsent(_))
    }
}

impl AdminPort {
    /// Error of an answer that no admin port of this version gives.
    pub(super) fn unexpected(&self, cause: &str) -> AdminError {
        AdminError::Failed(format!(
            "{} sent an unexpected answer: {cause}; is it the admin port (7401 of a controller, 7411 of an aggregator, \
             7432 of a quota server), and of this version?",
            self.address
        ))
    }

    /// Describes an answer with an error status. Only a request that is invalid itself is `Invalid`.
    pub(super) fn refusal(
        &self,
        status: StatusCode,
        retry_after: Option<&str>,
        body: &[u8],
    ) -> AdminError {
        let address = self.address.clone();
        let Ok(refusal) = serde_json::from_slice::<ErrorBody>(body) else {
            return self.unexpected(&status.to_string());
        };
        let token_file = self.credentials.token_file.as_deref().map(Path::display);
        let hint = match (status, token_file) {
            (StatusCode::UNAUTHORIZED, None) => {
                "give the file with your token by --token-file FILE \
                 (PLIMSOLL_TOKEN_FILE); `plimsoll tokens add` makes one"
                    .to_owned()
            }
            (StatusCode::UNAUTHORIZED, Some(file)) => format!(
                "the token of {file} is not in the tokens file of this tier: add one there with `plimsoll tokens add`, \
                 and use its token file"
            ),
            (StatusCode::FORBIDDEN, Some(file)) => {
                format!(
                    "use a token of that role in place of {file}, or let an operator who has one run this"
                )
            }
            (StatusCode::TOO_MANY_REQUESTS, _) => {
                format!(
                    "wait {} s, then try again with a valid token",
                    retry_after.unwrap_or("a few")
                )
            }
            (StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE, _) => {
                return AdminError::Invalid { address, refusal };
            }
            _ => return AdminError::Failed(format!("{} ({address})", refusal.error)),
        };
        AdminError::Failed(format!("{} ({address}){HINT}{hint}", refusal.error))
    }

    /// Describes a request without an answer, or with one that broke off, with the remedy if the scheme or the CA is at
    /// fault. A command may have taken effect in either case.
    pub(super) fn unanswered(&self, error: &reqwest::Error) -> AdminError {
        let (address, cause) = (&self.address, root_cause(error));
        let other = address.by_other_scheme();
        let outermost: &(dyn Error + 'static) = error;
        let causes = || std::iter::successors(Some(outermost), |error| (*error).source());
        let is_no_http = |error: &hyper::Error| error.is_parse() || error.is_incomplete_message();
        let handshakes = causes()
            .filter_map(|cause| cause.downcast_ref::<io::Error>())
            .map(handshake_failure);
        // The innermost one knows most.
        let handshake = handshakes
            .filter(|failure| address.is_tls() && failure.label() != "other")
            .last();
        let ca = self
            .credentials
            .ca
            .as_deref()
            .unwrap_or(Path::new(""))
            .display();
        AdminError::Failed(match handshake {
            None if !address.is_tls()
                && causes()
                    .filter_map(|cause| cause.downcast_ref::<hyper::Error>())
                    .any(is_no_http) =>
            {
                format!(
                    "{address} speaks no plain HTTP: {cause}{HINT}if it is the gRPC port of a tier, give its admin port; if it is TLS, \
                     write {other} and give its CA with --ca"
                )
            }
            None if error.is_body() || error.is_decode() => format!(
                "the answer of {address} broke off: {cause}{HINT}look at the state before you repeat a command"
            ),
            None if error.is_timeout() && !error.is_connect() => format!(
                "{address} accepts connections and does not answer: its process hangs, or its machine is overloaded{HINT}\
                 restart it if that lasts{}",
                meanwhile(address.tier)
            ),
            None => format!(
                "nothing answers at {address}: {cause}{HINT}{}{}",
                remedy(address.tier),
                meanwhile(address.tier)
            ),
            Some(failure) => match failure.label() {
                "not_tls" => {
                    format!("{address} speaks no TLS{HINT}if it is plain HTTP, write {other}")
                }
                "no_alpn" => format!(
                    "{address} is no admin port, since it speaks another protocol than HTTP{HINT}give the admin port, which \
                     is 7401 at controllers, 7411 at aggregators and 7432 at quota servers"
                ),
                "unknown_authority" => format!(
                    "the certificate of {address} is not signed by a CA in {ca}{HINT}give the file of the CA that issued it \
                     with --ca"
                ),
                _ => format!("{address}: {failure} (CA: {ca})"),
            },
        })
    }
}

/// Remedy for a silent tier.
const fn remedy(tier: Tier) -> &'static str {
    match tier {
        Tier::Controller => {
            "give the admin port of the controller with --controller URL: http://127.0.0.1:PORT on its own machine if it \
             is not 7401, https://HOST:7401 from another"
        }
        Tier::Aggregator => "give the admin port of an aggregator, which is 7411",
        Tier::Quota => {
            "give the admin port of the quota server with --server URL: http://127.0.0.1:PORT on its own machine if it is \
             not 7432, https://HOST:7432 from another"
        }
    }
}

/// Returns the end of a hint: what goes on while a tier is down.
const fn meanwhile(tier: Tier) -> &'static str {
    match tier {
        Tier::Controller => {
            "; while it is down, services go on by the directives they have, `plimsoll kill on --aggregator URL` stops one \
             zone, and a --kill-file one service"
        }
        Tier::Aggregator => "; a service is stopped without it by its --kill-file",
        Tier::Quota => "",
    }
}

/// Innermost cause of an HTTP error, which an operator can act on.
pub(crate) fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// Cause of a failed handshake, which libraries wrap several times.
fn handshake_failure(error: &io::Error) -> HandshakeFailure {
    match error.get_ref().and_then(|cause| cause.downcast_ref()) {
        Some(inner) => handshake_failure(inner),
        None => HandshakeFailure::of(error),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CONTROLLER, CredentialArgs, Token};
    use super::*;

    #[test]
    fn admin_refusals_are_usage_errors_or_hints() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        plimsoll_host::atomic_file::replace(&path, Token::generate().unwrap().secret().as_bytes())
            .unwrap();
        let address = Address::parse(CONTROLLER, Tier::Controller).unwrap();
        let port = |token_file| {
            AdminPort::new(
                &address,
                &CredentialArgs {
                    token_file,
                    ca: None,
                },
            )
            .unwrap()
        };
        let (without, with) = (port(None), port(Some(path.clone())));
        let file = path.display().to_string();
        let (no, html) = (r#"{"error":"no","line":3}"#, "<html>");
        for (port, status, body, is_usage, expected) in [
            (&without, 400, no, true, "no (http://127"),
            (&without, 413, no, true, "no (http://127"),
            (&without, 409, no, false, "no (http://127"),
            (&without, 400, html, false, "unexpected answer"),
            (
                &without,
                401,
                no,
                false,
                "--token-file FILE (PLIMSOLL_TOKEN_FILE)",
            ),
            (&with, 401, no, false, file.as_str()),
            (&with, 403, no, false, "use a token of that role"),
            (&with, 429, no, false, "wait 7 s, then try again"),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let error = port.refusal(status, Some("7"), body.as_bytes());
            assert_eq!(error.is_usage(), is_usage, "{status}: {error}");
            assert!(error.to_string().contains(expected), "{status}: {error}");
        }
    }
}
