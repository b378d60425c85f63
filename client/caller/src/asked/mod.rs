//! Reads what a response asks of its caller. Servers write it in five ways, and none of them can be trusted.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};

/// A quota that is used up, in `x-ratelimit-reason`.
const QUOTA_USED_UP: &[u8] = b"tenant_quota_exceeded";
/// `X-RateLimit-Reset` from here on is a Unix time; servers also write seconds.
const FIRST_UNIX_TIME: u64 = 1_000_000_000;

/// A verdict of a response on another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The request was answered, for good or bad.
    Answered,
    /// Another attempt is useless, as for a quota that is used up, or the server asks for none.
    Never,
    /// The request was refused or lost. Another attempt may succeed, after this wait if the server names one.
    Retry(Option<Duration>),
}

/// Reads the head of a response. gRPC refusals have their status among the headers, as no message precedes it.
pub(crate) fn asked(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> Asked {
    match headers.get("grpc-status") {
        Some(code) => grpc(code.as_bytes(), headers),
        None => http(status, headers, now),
    }
}

fn http(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> Asked {
    let reason = headers.get("x-ratelimit-reason");
    // A service may choose the status of its refusals.
    let is_refusal = reason.is_some() && (status.is_client_error() || status.is_server_error());
    match status.as_u16() {
        _ if reason.is_some_and(|reason| reason == QUOTA_USED_UP) => Asked::Never,
        429 | 502 | 503 | 504 => Asked::Retry(wait(headers, now)),
        _ if is_refusal => Asked::Retry(wait(headers, now)),
        _ => Asked::Answered,
    }
}

/// Returns the wait of the first field that makes sense, the most specific first.
fn wait(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let field = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let seconds = |text: &str| text.parse().ok().map(Duration::from_secs);
    let until = |time: SystemTime| time.duration_since(now).unwrap_or_default();
    let retry_after = || {
        let text = field("retry-after")?;
        seconds(text).or_else(|| httpdate::parse_http_date(text).ok().map(until))
    };
    let has_rest = || {
        field("x-ratelimit-remaining")?
            .parse()
            .ok()
            .filter(|left: &u64| *left > 0)
    };
    let reset = || match seconds(field("x-ratelimit-reset").filter(|_| has_rest().is_none())?)? {
        time if time.as_secs() >= FIRST_UNIX_TIME => {
            SystemTime::UNIX_EPOCH.checked_add(time).map(until)
        }
        wait => Some(wait),
    };
    retry_after()
        .or_else(|| rate_limit(field("ratelimit")?))
        .or_else(reset)
}

/// Returns the longest `t` of the policies that have nothing left, in a field such as `"checkout";r=0;t=2`.
fn rate_limit(field: &str) -> Option<Duration> {
    let list = sfv::Parser::new(field).parse::<sfv::List>().ok()?;
    let waits = list.iter().filter_map(|entry| {
        let sfv::ListEntry::Item(item) = entry else {
            return None;
        };
        let integer = |key: &str| {
            i64::from(item.params.get(key)?.as_integer()?)
                .try_into()
                .ok()
        };
        integer("t").filter(|_| integer("r").is_none_or(|left: u64| left == 0))
    });
    waits.max().map(Duration::from_secs)
}

fn grpc(code: &[u8], headers: &HeaderMap) -> Asked {
    let is_refused = match code {
        b"8" => true,
        b"14" => false,
        _ => return Asked::Answered,
    };
    // gRFC A6: a pushback that is negative or no number asks for no retry.
    if let Some(pushback) = headers.get("grpc-retry-pushback-ms") {
        let millis = pushback.to_str().ok().and_then(|text| text.parse().ok());
        return millis.map_or(Asked::Never, |millis| {
            Asked::Retry(Some(Duration::from_millis(millis)))
        });
    }
    match retry_info(headers) {
        // RESOURCE_EXHAUSTED is also a quota of a day or a message that is too large.
        None if is_refused => Asked::Never,
        wait => Asked::Retry(wait),
    }
}

/// Returns the wait of a `RetryInfo` among the details of a status.
#[cfg(feature = "tonic")]
fn retry_info(headers: &HeaderMap) -> Option<Duration> {
    use base64::Engine;
    use base64::alphabet::STANDARD;
    use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
    use tonic_types::StatusExt;

    const ANY_PADDING: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    // `Status::from_header_map` panics if the header is not base64.
    let details = headers.get("grpc-status-details-bin")?.as_bytes();
    let details = GeneralPurpose::new(&STANDARD, ANY_PADDING)
        .decode(details)
        .ok()?;
    let status = tonic::Status::with_details(tonic::Code::Unknown, "", details.into());
    status.get_details_retry_info()?.retry_delay
}

#[cfg(not(feature = "tonic"))]
fn retry_info(_: &HeaderMap) -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests;
