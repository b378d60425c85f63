//! Queries to Prometheus servers: limits that a policy takes from a query, and values for the query gates of
//! a rollout.

pub(crate) mod answer;
pub(crate) mod query_task;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, ClientBuilder, StatusCode, Url, redirect};
use rustls::{ClientConfig, RootCertStore};
use tokio::time::timeout;

use self::answer::AnswerError;

const TIMEOUT: Duration = Duration::from_secs(5);
const BYTES_MAX: usize = 64 << 10;

/// Returns a builder of clients for `http://` and `https://` that trust the certificates of the system,
/// follow no redirects and use no proxy.
///
/// A system without certificates is no error: `http://` works, and `https://` fails at the handshake.
pub(crate) fn http_client_builder() -> ClientBuilder {
    let mut roots = RootCertStore::empty();
    // Certificates that cannot be read or parsed are left out, as browsers do.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    trusting(roots)
}

/// Joins the causes of an error, without the URL, which may hold a secret.
pub(crate) fn causes_of(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut reason = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        reason.push_str(&format!(": {error}"));
        cause = error.source();
    }
    reason
}

/// Returns a builder of clients for `http://`, or for a caller that sets certificates itself, that follow no redirects and
/// use no proxy.
pub fn untrusting_http_client_builder() -> ClientBuilder {
    trusting(RootCertStore::empty())
}

pub(super) fn trusting(roots: RootCertStore) -> ClientBuilder {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = Client::builder()
        .redirect(redirect::Policy::none())
        .no_proxy();
    match ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions() {
        Ok(config) => {
            let config = config.with_root_certificates(roots).with_no_client_auth();
            builder.tls_backend_preconfigured(config)
        }
        Err(error) => {
            debug_assert!(false, "ring supports TLS 1.2 and 1.3: {error}");
            builder
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum QueryError {
    #[error("{0} is no URL")]
    Url(String),
    #[error("the server cannot be reached: {0}")]
    Unreachable(String),
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Timeout,
    /// The answer has more than [`BYTES_MAX`] bytes.
    #[error("the answer is longer than {BYTES_MAX} bytes")]
    TooLong,
    #[error("status {}: {}", .0.as_u16(), .0.canonical_reason().unwrap_or("not an answer"))]
    Status(StatusCode),
    /// The answer is not one number.
    #[error(transparent)]
    Answer(#[from] AnswerError),
}

impl From<reqwest::Error> for QueryError {
    fn from(error: reqwest::Error) -> Self {
        Self::Unreachable(causes_of(error))
    }
}

fn client() -> reqwest::Result<Client> {
    http_client_builder().connect_timeout(TIMEOUT).build()
}

/// Sends one query to the server at `url`, and returns the one number of the answer as it is written there.
async fn query(client: &Client, url: &str, query: &str) -> Result<String, QueryError> {
    let endpoint = format!("{}/api/v1/query", url.trim_end_matches('/'));
    let endpoint = Url::parse(&endpoint).map_err(|_| QueryError::Url(url.to_owned()))?;
    let answer = async {
        let mut response = client
            .get(endpoint)
            .query(&[("query", query)])
            .send()
            .await?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if body.len() + chunk.len() > BYTES_MAX {
                return Err(QueryError::TooLong);
            }
            body.extend_from_slice(&chunk);
        }
        match answer::single(&body) {
            // A wrong query is answered with status 400 and the reason in the body.
            Err(AnswerError::Malformed(_)) | Ok(_) if !status.is_success() => {
                Err(QueryError::Status(status))
            }
            number => Ok(number?),
        }
    };
    timeout(TIMEOUT, answer)
        .await
        .unwrap_or(Err(QueryError::Timeout))
}
