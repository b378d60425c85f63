//! The reasons why an admin port gave no answer, each with what to try next.

use plimsoll_admin::body::ErrorBody;
use reqwest::{Response, StatusCode, header};

use super::{Address, Operator};

/// A request to an admin port failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdminError {
    /// No address accepted the request.
    #[error("{}{}", .tried.join("\n       "), .hint.map(|hint| format!("\n  = hint: {hint}")).unwrap_or_default())]
    Unreachable { tried: Vec<String>, hint: Option<&'static str> },
    /// The arguments or their files do not allow to send the request.
    #[error("{0}")]
    Unsent(String),
    /// The request is invalid: sending it again fails again.
    #[error("{} ({address})", .refusal.error)]
    Invalid { address: Address, refusal: ErrorBody },
    /// The tier refuses a valid request in its present state.
    #[error("{} ({address})", .refusal.error)]
    Refused { address: Address, refusal: ErrorBody },
    /// The tier does not accept the token, or the token does not allow the request.
    #[error("{cause} ({address})\n  = hint: {hint}")]
    NotAllowed { address: Address, cause: String, hint: String },
    /// The answer is not one of an admin port of this version.
    #[error(
        "{address} sent an unexpected answer: {cause}; is it the admin port (7401 of a controller, 7411 of an \
         aggregator, 7432 of a quota server), and of this version?"
    )]
    UnexpectedAnswer { address: Address, cause: String },
}

impl AdminError {
    /// Returns true if the arguments are at fault, so that sending the request again cannot succeed.
    pub(crate) const fn is_usage(&self) -> bool {
        matches!(self, Self::Invalid { .. } | Self::Unsent(_))
    }
}

/// The head of an answer without success.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    retry_after: Option<String>,
}

impl Refusal {
    pub(super) fn of(response: &Response) -> Self {
        let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        Self { status: response.status(), retry_after: retry_after.map(str::to_owned) }
    }

    /// The error that the answer stands for.
    pub(super) fn error(&self, operator: &Operator, address: &Address, body: &[u8]) -> AdminError {
        let address = address.clone();
        let Ok(refusal) = serde_json::from_slice::<ErrorBody>(body) else {
            return AdminError::UnexpectedAnswer { address, cause: self.status.to_string() };
        };
        match (self.hint(operator), self.status) {
            (Some(hint), _) => AdminError::NotAllowed { address, cause: refusal.error, hint },
            (None, StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE) => {
                AdminError::Invalid { address, refusal }
            }
            (None, _) => AdminError::Refused { address, refusal },
        }
    }

    /// The remedy for a token that is missing, unknown, or of too low a role.
    fn hint(&self, operator: &Operator) -> Option<String> {
        let token_file = operator.token_file().map(|path| path.display());
        Some(match (self.status, token_file) {
            (StatusCode::UNAUTHORIZED, None) => "give the file with your token by --token-file FILE \
                 (PLIMSOLL_TOKEN_FILE), or as `token_file` in the config file; `plimsoll tokens add` makes one"
                .to_owned(),
            (StatusCode::UNAUTHORIZED, Some(file)) => format!(
                "the token of {file} is not in the tokens file of this tier: add one there with `plimsoll tokens \
                 add`, and use its token file"
            ),
            (StatusCode::FORBIDDEN, Some(file)) => {
                format!("use a token of that role in place of {file}, or let an operator who has one run this")
            }
            (StatusCode::TOO_MANY_REQUESTS, file) => format!(
                "wait {} s, then try again with a valid token{}",
                self.retry_after.as_deref().unwrap_or("a few"),
                file.map(|file| format!(" in place of {file}")).unwrap_or_default()
            ),
            _ => return None,
        })
    }
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
    use super::super::{CONTROLLER, OperatorArgs, Token, parse_controller};
    use super::*;

    const REFUSAL: &[u8] = br#"{"error":"no","line":3}"#;

    /// An operator without a token, and one with a token.
    fn operators(directory: &tempfile::TempDir) -> [Operator; 2] {
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("config.yaml"), "token_file: token\n").unwrap();
        std::fs::write(path("empty.yaml"), "# nothing\n").unwrap();
        let token = Token::generate().unwrap();
        plimsoll_host::atomic_file::replace(&path("token"), token.secret().as_bytes()).unwrap();
        ["empty.yaml", "config.yaml"].map(|config| OperatorArgs::of_config(path(config)).open().unwrap())
    }

    fn refusal(status: StatusCode) -> Refusal {
        Refusal { status, retry_after: Some("7".to_owned()) }
    }

    #[test]
    fn only_invalid_requests_are_usage_errors() {
        let address = parse_controller(CONTROLLER).unwrap();
        let [operator, _] = operators(&tempfile::tempdir().unwrap());
        for (status, body, usage) in [
            (StatusCode::BAD_REQUEST, REFUSAL, true),
            (StatusCode::PAYLOAD_TOO_LARGE, REFUSAL, true),
            (StatusCode::CONFLICT, REFUSAL, false),
            (StatusCode::FORBIDDEN, REFUSAL, false),
            (StatusCode::UNAUTHORIZED, REFUSAL, false),
            (StatusCode::BAD_REQUEST, b"<html>", false),
        ] {
            let error = refusal(status).error(&operator, &address, body);
            assert_eq!(error.is_usage(), usage, "{status}: {error}");
            assert!(error.to_string().contains(CONTROLLER), "{error}");
        }
    }

    #[test]
    fn refused_token_has_a_hint() {
        let address = parse_controller(CONTROLLER).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let [without, with] = operators(&directory);
        let file = directory.path().join("token").display().to_string();
        for (operator, status, expected) in [
            (&without, StatusCode::UNAUTHORIZED, "--token-file FILE (PLIMSOLL_TOKEN_FILE)"),
            (&with, StatusCode::UNAUTHORIZED, "is not in the tokens file of this tier"),
            (&with, StatusCode::UNAUTHORIZED, file.as_str()),
            (&with, StatusCode::FORBIDDEN, "use a token of that role"),
            (&without, StatusCode::TOO_MANY_REQUESTS, "wait 7 s, then try again with a valid token"),
            (&with, StatusCode::TOO_MANY_REQUESTS, file.as_str()),
        ] {
            let error = refusal(status).error(operator, &address, REFUSAL).to_string();
            assert!(error.starts_with("no (") && error.contains(expected), "{status}: {error}");
        }
    }
}
