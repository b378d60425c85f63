//! Requests of reqwest, whose bodies are bytes unless they are streams.

use std::time::Duration;

use http::{HeaderMap, Method, StatusCode};

use super::{Incoming, Outgoing};

impl Outgoing for ::reqwest::Request {
    fn method(&self) -> &Method {
        self.method()
    }

    fn path(&self) -> &str {
        self.url().path()
    }

    fn host(&self) -> String {
        self.url().authority().to_owned()
    }

    fn headers_mut(&mut self) -> &mut HeaderMap {
        self.headers_mut()
    }

    fn timeout(&self) -> Option<Duration> {
        self.timeout().copied()
    }

    fn set_timeout(&mut self, left: Duration) {
        *self.timeout_mut() = Some(left);
    }

    fn copy(&mut self) -> Option<Self> {
        self.try_clone()
    }
}

impl Incoming for ::reqwest::Response {
    fn status(&self) -> StatusCode {
        self.status()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }
}
