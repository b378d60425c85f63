//! The HTTP port: answers proxies that check each request (`/check`, `/nginx`) and callers that
//! send JSON (`/v1/check`, `/v1/report`).
//!
//! `proxy` reads the original request from headers, `json` reads bodies. Both ask the limiter.

mod counts;
mod json;
mod openapi;
mod problem;
mod proxy;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HOST};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use plimsoll_admin::access::Access;

use self::counts::{Counts, Endpoint, Outcome};
use self::problem::Problem;
use self::proxy::Style;
use crate::limits::Limits;
use crate::serve::{Caller, read_within};

const BODY_BYTES_MAX: usize = 64 * 1024;
/// Header with a proxy's token, so that `authorization` may be its caller's.
const TOKEN_HEADER: HeaderName = HeaderName::from_static("x-plimsoll-token");

#[derive(Debug)]
pub(crate) struct Service {
    limits: Limits,
    access: Access,
    pub(crate) counts: Counts,
}

/// A request whose head was read: it is answered, or its quotas or its body are needed.
enum Begun {
    Answered(Response<Full<Bytes>>),
    Asking(proxy::Asking),
    NeedsBody(json::Call),
}

impl Service {
    /// Serves the decisions of this limiter. `access` has the tokens of callers beyond loopback.
    pub(crate) fn new(limits: Limits, access: Access) -> Self {
        Self {
            limits,
            access,
            counts: Counts::default(),
        }
    }

    /// Answers a request. What needs only its head is done in this call, so that the future, which is moved several
    /// times, is small.
    pub(crate) fn answer(
        self: Arc<Self>,
        caller: Caller,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Full<Bytes>>> + Send {
        let (head, body) = request.into_parts();
        let begun = match check_host(&head) {
            Ok(()) => self.begin(caller, head),
            Err(problem) => {
                if let Some(endpoint) = Endpoint::of(head.uri.path()) {
                    self.counts.count(endpoint, Outcome::Invalid);
                }
                Begun::Answered(problem.response())
            }
        };
        async move {
            match begun {
                Begun::Answered(response) => response,
                Begun::Asking(asking) => asking.answer(&self).await,
                Begun::NeedsBody(call) => match read_within(body, BODY_BYTES_MAX).await {
                    Ok(body) => self.end(call, &body).await,
                    Err(error) => self.invalid(call, Problem::of_body(&error)),
                },
            }
        }
    }

    fn begin(&self, caller: Caller, head: Parts) -> Begun {
        let path = head.uri.path();
        if caller.needs_token
            && path != openapi::PATH
            && let Err(denied) = self.access.check_token(
                caller.from,
                (&head.method, path),
                &head.headers,
                &TOKEN_HEADER,
            )
        {
            return Begun::Answered(Problem::from(denied).response());
        }
        match path {
            "/check" => proxy::begin(self, Style::VERBATIM, head),
            "/nginx" => proxy::begin(self, Style::NGINX, head),
            "/v1/check" => self.begin_json(json::Call::Check, &head),
            "/v1/report" => self.begin_json(json::Call::Report, &head),
            openapi::PATH => Begun::Answered(match head.method {
                Method::GET | Method::HEAD => openapi::response(),
                _ => not_allowed("GET, HEAD"),
            }),
            _ => Begun::Answered(Problem::not_found(path).response()),
        }
    }

    fn begin_json(&self, call: json::Call, head: &Parts) -> Begun {
        if head.method != Method::POST {
            return Begun::Answered(not_allowed("POST"));
        }
        match json::check_content_type(&head.headers) {
            Ok(()) => Begun::NeedsBody(call),
            Err(problem) => Begun::Answered(self.invalid(call, problem)),
        }
    }

    async fn end(&self, call: json::Call, body: &[u8]) -> Response<Full<Bytes>> {
        let answered = match call {
            json::Call::Check => json::check(self, body).await,
            json::Call::Report => json::report(self, body),
        };
        answered.unwrap_or_else(|problem| self.invalid(call, problem))
    }

    fn invalid(&self, call: json::Call, problem: Problem) -> Response<Full<Bytes>> {
        self.counts.count(call.endpoint(), Outcome::Invalid);
        problem.response()
    }
}

/// Checks that a request has one `Host` (RFC 9112, 3.2). With several, two programs may each trust
/// a different one.
fn check_host(head: &Parts) -> Result<(), Problem> {
    match head.headers.get_all(HOST).iter().count() {
        1 => Ok(()),
        0 if head.version < Version::HTTP_11 => Ok(()),
        count => Err(Problem::new(
            StatusCode::BAD_REQUEST,
            format!("the request has {count} `host` header fields: send one"),
        )),
    }
}

/// Returns the response with a body of this type.
fn with_body(body: impl Into<Bytes>, content_type: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Returns the response without a body.
fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

fn not_allowed(methods: &'static str) -> Response<Full<Bytes>> {
    let problem = Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("this path takes {methods}"),
    );
    let mut response = problem.response();
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(methods));
    response
}
