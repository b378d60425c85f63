//! Requests that can be sent again: what the layer must know of a request, a response and a body of any HTTP client.

#[cfg(feature = "reqwest")]
mod reqwest;
#[cfg(feature = "tonic")]
mod tonic;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{Empty, Full};

/// Requests of a client.
pub trait Outgoing: Sized + Send + 'static {
    /// Returns the method.
    fn method(&self) -> &Method;
    /// Returns the path.
    fn path(&self) -> &str;
    /// Returns the host that the request names, with its port; empty if it names none.
    fn host(&self) -> String;
    /// Returns the headers.
    fn headers_mut(&mut self) -> &mut HeaderMap;
    /// Returns the time that the request gives its call, retries included.
    fn timeout(&self) -> Option<Duration> {
        None
    }
    /// Shortens the time of the request to what is left of it.
    fn set_timeout(&mut self, _left: Duration) {}
    /// Returns a copy to send again; `None` if the body can be read only once.
    fn copy(&mut self) -> Option<Self>;
}

/// Responses of a client.
pub trait Incoming {
    /// Returns the status.
    fn status(&self) -> StatusCode;
    /// Returns the headers.
    fn headers(&self) -> &HeaderMap;
}

/// Bodies that can be sent again. Implement it for a body of your own, if it can.
pub trait Repeatable: Sized + Send + 'static {
    /// Returns a copy; `None` if the body can be read only once.
    fn copy(&mut self) -> Option<Self>;
}

const GRPC_TIMEOUT: &str = "grpc-timeout";
/// Longest number in `grpc-timeout`.
const EIGHT_DIGITS: u128 = 99_999_999;

impl<B: Repeatable> Outgoing for Request<B> {
    fn method(&self) -> &Method {
        self.method()
    }

    fn path(&self) -> &str {
        self.uri().path()
    }

    fn host(&self) -> String {
        let authority = self.uri().authority();
        authority.map_or_else(String::new, ToString::to_string)
    }

    fn headers_mut(&mut self) -> &mut HeaderMap {
        self.headers_mut()
    }

    fn timeout(&self) -> Option<Duration> {
        let text = self.headers().get(GRPC_TIMEOUT)?.to_str().ok()?;
        let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let number: u64 = number.parse().ok()?;
        Some(match unit {
            "H" => Duration::from_secs(number.saturating_mul(3_600)),
            "M" => Duration::from_secs(number.saturating_mul(60)),
            "S" => Duration::from_secs(number),
            "m" => Duration::from_millis(number),
            "u" => Duration::from_micros(number),
            "n" => Duration::from_nanos(number),
            _ => return None,
        })
    }

    fn set_timeout(&mut self, left: Duration) {
        let millis = left.as_millis();
        if let Some(timeout) = self.headers_mut().get_mut(GRPC_TIMEOUT)
            && millis <= EIGHT_DIGITS
            && let Ok(left) = format!("{millis}m").parse()
        {
            *timeout = left;
        }
    }

    fn copy(&mut self) -> Option<Self> {
        let mut copy = Self::new(self.body_mut().copy()?);
        self.method().clone_into(copy.method_mut());
        self.uri().clone_into(copy.uri_mut());
        *copy.version_mut() = self.version();
        self.headers().clone_into(copy.headers_mut());
        self.extensions().clone_into(copy.extensions_mut());
        Some(copy)
    }
}

impl<B> Incoming for Response<B> {
    fn status(&self) -> StatusCode {
        self.status()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }
}

impl Repeatable for Full<Bytes> {
    fn copy(&mut self) -> Option<Self> {
        Some(self.clone())
    }
}

impl Repeatable for Empty<Bytes> {
    fn copy(&mut self) -> Option<Self> {
        Some(Self::new())
    }
}
