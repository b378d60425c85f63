//! One instant query to a Prometheus server, bounded in time and size.

use std::time::Duration;

use reqwest::{Client, Url};
use tokio::time::timeout;

use crate::prometheus::answer::{self, AnswerError};
use crate::prometheus::{causes_of, http_client_builder};

const TIMEOUT: Duration = Duration::from_secs(5);
pub(super) const BYTES_MAX: usize = 64 << 10;

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
    #[error("status {status}: {reason}")]
    Status {
        status: u16,
        /// Its name.
        reason: String,
    },
    /// The answer is not one number.
    #[error(transparent)]
    Answer(#[from] AnswerError),
}

impl From<reqwest::Error> for QueryError {
    fn from(error: reqwest::Error) -> Self {
        Self::Unreachable(causes_of(error))
    }
}

pub(super) fn client() -> reqwest::Result<Client> {
    http_client_builder().connect_timeout(TIMEOUT).build()
}

/// Sends one query to the server at `url`, and returns the one number of the answer as it is written there.
pub(super) async fn query(client: &Client, url: &str, query: &str) -> Result<String, QueryError> {
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
                let reason = status
                    .canonical_reason()
                    .unwrap_or("not an answer")
                    .to_owned();
                Err(QueryError::Status {
                    status: status.as_u16(),
                    reason,
                })
            }
            number => Ok(number?),
        }
    };
    timeout(TIMEOUT, answer)
        .await
        .unwrap_or(Err(QueryError::Timeout))
}
