//! Problem documents (RFC 9457) for requests that cannot be served.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use plimsoll_admin::access::Denied;
use serde::Serialize;

use crate::serve::BodyError;

/// Maximum length of a path in an answer, in characters.
const PATH_CHARS_MAX: usize = 100;

#[derive(Clone, Debug)]
pub(super) struct Problem(Box<Fault>);

#[derive(Clone, Debug)]
struct Fault {
    status: StatusCode,
    detail: String,
    field: Option<String>,
    header: Option<(HeaderName, HeaderValue)>,
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    /// Place of the invalid member, such as `requests[3].cost`.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: String) -> Self {
        Self(Box::new(Fault {
            status,
            detail,
            field: None,
            header: None,
        }))
    }

    /// Makes the 400 for a member of a body, by its place; an empty one is the whole body.
    pub(super) fn of_field(field: impl Into<String>, fault: impl std::fmt::Display) -> Self {
        let field = field.into();
        let detail = if field.is_empty() {
            fault.to_string()
        } else {
            format!("`{field}`: {fault}")
        };
        let mut problem = Self::new(StatusCode::BAD_REQUEST, detail);
        problem.0.field = Some(field).filter(|field| !field.is_empty());
        problem
    }

    pub(super) fn of_body(error: &BodyError) -> Self {
        let status = match error {
            BodyError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            BodyError::NoRoom => StatusCode::SERVICE_UNAVAILABLE,
            BodyError::TooSlow => StatusCode::REQUEST_TIMEOUT,
            BodyError::Broken(_) => StatusCode::BAD_REQUEST,
        };
        Self::new(status, error.to_string())
    }

    pub(super) fn not_found(path: &str) -> Self {
        let path: String = path.chars().take(PATH_CHARS_MAX).collect();
        let paths = "/check, /nginx, /v1/check, /v1/report and /openapi.json";
        Self::new(
            StatusCode::NOT_FOUND,
            format!("`{path}` is no path of this port, which serves {paths}"),
        )
    }

    #[cold]
    pub(super) fn response(self) -> Response<Full<Bytes>> {
        let Fault {
            status,
            detail,
            field,
            header,
        } = *self.0;
        let title = status.canonical_reason().unwrap_or("Error");
        let document = Document {
            r#type: "about:blank",
            title,
            status: status.as_u16(),
            detail: &detail,
            field: field.as_deref(),
        };
        // Texts and a number always serialize.
        let body = serde_json::to_vec(&document).unwrap_or_default();
        let mut response = super::with_body(body, "application/problem+json");
        *response.status_mut() = status;
        response.headers_mut().extend(header);
        response
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        let mut problem = Self::new(denied.status, denied.error);
        problem.0.header = denied.field;
        problem
    }
}
