//! The requests that an admin port, or a port with its tokens, refuses: each is answered, counted by reason, and logged
//! within bounds.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use plimsoll_core::exchange::Source;
use plimsoll_host::Shared;

use super::Role;
use super::limiter::Limiter;
use crate::body::error_response;

const LIMITED: &str = "limited";
const REASONS: [&str; 8] = [
    "closed",
    "no_token",
    "not_local",
    "malformed_token",
    "unknown_token",
    "role",
    "right",
    LIMITED,
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The port accepts no token.
    Closed,
    NoToken,
    /// The request has no token, and may come from elsewhere than from a program on this machine.
    NotLocal(String),
    Malformed(&'static str),
    UnknownToken,
    Role {
        name: Arc<str>,
        held: Role,
    },
    Right(String),
}

/// What the port asks of its callers, for the words of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needed<'a> {
    /// A role, for a route of an admin port.
    Role(Role),
    /// A token in this header, or as a bearer token, at the HTTP port of a sidecar.
    Token(&'a HeaderName),
    /// A token as the password of a connection to the Redis port of a quota server.
    Password,
    /// A right of the token that such a connection presented.
    Right,
}

/// The answer to a request that is refused for its token, in no format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// 401, 403 or 429.
    pub status: StatusCode,
    /// The reason, and what to do.
    pub error: String,
    /// The header field that belongs to the status.
    pub field: Option<(HeaderName, HeaderValue)>,
}

#[derive(Debug)]
pub(super) struct Refusals {
    state: Shared<State>,
}

#[derive(Debug, Default)]
struct State {
    counts: [u64; REASONS.len()],
    limiter: Limiter,
}

impl Refusal {
    const fn reason(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::NoToken => "no_token",
            Self::NotLocal(_) => "not_local",
            Self::Malformed(_) => "malformed_token",
            Self::UnknownToken => "unknown_token",
            Self::Role { .. } => "role",
            Self::Right(_) => "right",
        }
    }

    fn text(&self, needed: Needed<'_>) -> String {
        let (needs, token) = (needed.text(), needed.remedy());
        let port = needed.port();
        match self {
            Self::Closed => {
                let open = match needed {
                    Needed::Role(_) => {
                        ", or with --admin-open-on-loopback to accept programs on its machine without one"
                    }
                    Needed::Token(_) | Needed::Password | Needed::Right => "",
                };
                format!(
                    "{needs}, and {port} accepts no token: start the process with --tokens FILE{open}"
                )
            }
            Self::NoToken => format!("{needs}, and the request has no token: {token}"),
            Self::NotLocal(cause) => format!(
                "{needs}, and without a token only programs on this machine have it. This request is refused because \
                 {cause}: {token}, or run the command on the machine itself with a loopback address"
            ),
            Self::Malformed(fault) => {
                format!("{needs}, and the request is refused because {fault}: {token}")
            }
            Self::UnknownToken => format!(
                "{needs}, and the token is not among those of {port}: use one of its --tokens file, where `plimsoll \
                 tokens` enters one"
            ),
            Self::Right(reason) => reason.clone(),
            Self::Role { name, held } => format!(
                "{needs}, and the token `{name}` has the role {held}: use a token of a higher role, or change its \
                 role in the --tokens file"
            ),
        }
    }
}

impl Needed<'_> {
    fn text(self) -> String {
        match self {
            Self::Role(role) => format!("this route needs the role {role}"),
            Self::Token(_) => "a request from another machine needs a token".to_owned(),
            Self::Password | Self::Right => {
                "a connection from another machine needs a token".to_owned()
            }
        }
    }

    fn remedy(self) -> String {
        match self {
            Self::Role(_) => "send a token with --token-file FILE (PLIMSOLL_TOKEN_FILE)".to_owned(),
            Self::Token(header) => {
                format!("send it in the header `{header}`, or as `authorization: Bearer TOKEN`")
            }
            Self::Password | Self::Right => "send it as the password".to_owned(),
        }
    }

    const fn event(self) -> &'static str {
        match self {
            Self::Role(_) => "admin request refused",
            Self::Token(_) => "request without a valid token refused",
            Self::Password => "connection without a valid token refused",
            Self::Right => "command without a right refused",
        }
    }

    const fn port(self) -> &'static str {
        match self {
            Self::Role(_) => "this admin port",
            Self::Token(_) | Self::Password | Self::Right => "this port",
        }
    }
}

impl Denied {
    /// Returns true if the address has presented too many wrong tokens.
    pub fn is_limited(&self) -> bool {
        self.status == StatusCode::TOO_MANY_REQUESTS
    }

    pub(super) fn into_response(self) -> Response {
        let mut response = error_response(self.status, self.error);
        response.headers_mut().extend(self.field);
        response
    }
}

impl Refusals {
    pub(super) fn counts(&self) -> Vec<(&'static str, u64)> {
        self.state
            .with(|state, _| REASONS.into_iter().zip(state.counts).collect())
    }

    /// Counts and logs a refusal, and returns its answer. A refusal without a valid token, also without any, counts
    /// as a failed login of the source. After too many it is answered 429, counted as `limited` and not logged.
    pub(super) fn answer(
        &self,
        from: IpAddr,
        needed: Needed<'_>,
        (method, path): (&str, &str),
        refusal: &Refusal,
    ) -> Denied {
        let is_attempt = !matches!(refusal, Refusal::Role { .. } | Refusal::Right(_));
        let (limited, is_logged) = self.state.with(|state, now| {
            let limited = is_attempt
                .then(|| state.limiter.attempt(now, Source::from(from)).err())
                .flatten();
            let reason = if limited.is_some() {
                LIMITED
            } else {
                refusal.reason()
            };
            for (count, of) in state.counts.iter_mut().zip(REASONS) {
                *count += u64::from(of == reason);
            }
            (limited, limited.is_none() && state.limiter.may_log(now))
        });
        if let Some(wait) = limited {
            return too_many_attempts(wait);
        }
        let error = refusal.text(needed);
        if is_logged {
            // Only the path: a query may contain a token by mistake.
            tracing::warn!(%from, method, path, reason = refusal.reason(), error, "{}", needed.event());
        }
        if !is_attempt {
            return Denied {
                status: StatusCode::FORBIDDEN,
                error,
                field: None,
            };
        }
        let challenge = HeaderValue::from_static("Bearer realm=\"plimsoll\"");
        Denied {
            status: StatusCode::UNAUTHORIZED,
            error,
            field: Some((header::WWW_AUTHENTICATE, challenge)),
        }
    }
}

impl Default for Refusals {
    fn default() -> Self {
        Self {
            state: Shared::new(State::default()),
        }
    }
}

fn too_many_attempts(wait: Duration) -> Denied {
    let wait_s = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let error = format!(
        "too many requests without a valid token came from this address; try again in {wait_s} s. Requests with a valid \
         token are answered"
    );
    let field = Some((header::RETRY_AFTER, HeaderValue::from(wait_s)));
    Denied {
        status: StatusCode::TOO_MANY_REQUESTS,
        error,
        field,
    }
}
