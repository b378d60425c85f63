//! Reads bodies: one object or a batch, with the place of each fault.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use plimsoll_admin::object::Object;
use plimsoll_core::names::check_name;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::BATCH_MAX;
use super::types::Text;
use crate::http::problem::Problem;
use crate::rules::Rules;

#[derive(Debug)]
pub(super) enum Body<S, B> {
    Single(S),
    Batch(B),
}

#[derive(Deserialize)]
struct Members {
    requests: Option<IgnoredAny>,
    reports: Option<IgnoredAny>,
}

/// Checks that a request declares its body as JSON. Web pages could otherwise send one without a
/// preflight (CORS).
pub(in crate::http) fn check_content_type(headers: &HeaderMap) -> Result<(), Problem> {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let essence = |value: &[u8]| {
        let essence = value.split(|byte| *byte == b';').next().unwrap_or_default();
        essence
            .trim_ascii()
            .eq_ignore_ascii_case(b"application/json")
    };
    match (values.next(), values.next()) {
        (Some(value), None) if essence(value.as_bytes()) => Ok(()),
        _ => Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the body must be JSON: send one header `content-type: application/json`".to_owned(),
        )),
    }
}

pub(super) fn read<'a, S: Deserialize<'a>, B: Deserialize<'a>>(
    body: &'a [u8],
) -> Result<Body<S, B>, Problem> {
    if is_batch(body) {
        object(body).map(Body::Batch)
    } else {
        object(body).map(Body::Single)
    }
}

/// Returns true if a body has a member that only batches have. Most bodies do not contain its name
/// at all.
fn is_batch(body: &[u8]) -> bool {
    let contains = |name: &[u8]| body.windows(name.len()).any(|window| window == name);
    if !contains(b"requests\"") && !contains(b"reports\"") {
        return false;
    }
    let members = serde_json::from_slice::<Members>(body);
    members.is_ok_and(|members| members.requests.is_some() || members.reports.is_some())
}

fn object<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    serde_json::from_slice(body)
        .map(|Object(value)| value)
        .or_else(|_| object_with_place(body))
}

#[cold]
fn object_with_place<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let Object(object) = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        // A whole body has the path `.`, and `?` replaces a part that was not reached.
        let path = error.path().to_string();
        let field = path.trim_end_matches('?').trim_end_matches('.');
        Problem::of_field(field, error.inner())
    })?;
    reader.end().map_err(|error| Problem::of_field("", error))?;
    Ok(object)
}

pub(super) fn check_batch<T>(member: &str, batch: &[T]) -> Result<(), Problem> {
    match batch.len() {
        0 => Err(Problem::of_field(member, "the list is empty")),
        1..=BATCH_MAX => Ok(()),
        length => Err(Problem::of_field(
            member,
            format!("{length} are too many: send at most {BATCH_MAX} in a body"),
        )),
    }
}

pub(super) fn check_bucket(rules: &Rules, at: At<'_>, bucket: &Text<'_>) -> Result<(), Problem> {
    if rules.takes(bucket.as_str()) {
        return Ok(());
    }
    Err(match check_name(bucket.as_str()) {
        Err(fault) => Problem::of_field(at.member("bucket"), fault),
        Ok(()) => Problem::of_field(
            at.member("bucket"),
            "it is not among `buckets` of the sidecar's rules: correct the name, or add it there",
        ),
    })
}

/// Place of an object in a body: the member with its batch and its index; `None` for a single object.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<'a>(pub(super) Option<(&'a str, usize)>);

impl At<'_> {
    pub(super) fn member(self, name: &str) -> String {
        match self.0 {
            None => name.to_owned(),
            Some((batch, index)) => format!("{batch}[{index}].{name}"),
        }
    }
}
