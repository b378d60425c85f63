//! A question to an admin port, and the answer, or why there is none and what to try.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use plimsoll_proto::switch::Refusal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

/// How long an answer may take beyond what the question takes by itself: an ordered kill waits for a disk.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long a connection may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// The largest answer that is read: a thousand buckets with long names and reasons.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The address of an admin port.
#[derive(Clone, Debug)]
pub(crate) struct Admin(Uri);

impl Admin {
    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.to_string().trim_end_matches('/'))
    }
}

impl std::fmt::Display for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.0.to_string().trim_end_matches('/'))
    }
}

/// Reads an address.
pub(crate) fn admin(text: &str) -> Result<Admin, String> {
    let due = || format!("`{text}` is no address of an admin port: write it as {}", super::CONTROLLER);
    let uri: Uri = text.parse().map_err(|_| due())?;
    let is_plain = uri.scheme_str() == Some("http") && uri.path().trim_end_matches('/').is_empty();
    if is_plain && uri.host().is_some_and(|host| !host.is_empty()) && uri.query().is_none() {
        Ok(Admin(uri))
    } else {
        Err(due())
    }
}

/// What is asked.
#[derive(Debug)]
pub(crate) struct Question {
    method: Method,
    path: &'static str,
    body: Bytes,
    takes: Duration,
}

impl Question {
    /// One that changes nothing.
    pub(crate) fn get(path: &'static str) -> Self {
        Self { method: Method::GET, path, body: Bytes::new(), takes: Duration::ZERO }
    }

    /// An order.
    pub(crate) fn post(path: &'static str, order: &impl Serialize) -> Result<Self, serde_json::Error> {
        let body = serde_json::to_vec(order)?.into();
        Ok(Self { method: Method::POST, path, body, takes: Duration::ZERO })
    }

    /// The same, whose answer takes so long.
    pub(crate) fn taking(self, takes: Duration) -> Self {
        Self { takes, ..self }
    }
}

/// An answer, and who gave it.
#[derive(Debug)]
pub(crate) struct Asked<T> {
    pub(crate) of: Admin,
    pub(crate) answer: T,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    /// None of those asked is there.
    #[error(
        "{}\n  = hint: while no controller lives, ask an aggregator: --aggregator http://HOST:7411 on its machine stops its \
         zone; or stop one service by its kill file (--kill-file) or PLIMSOLL_KILL=1",
        .0.join("\n       ")
    )]
    Away(Vec<String>),
    /// It will not, because of what it was asked.
    #[error("{of} refuses: {why}")]
    Asked { of: Admin, why: String },
    /// It will not, because of who asked or how things are.
    #[error("{of} refuses: {why}")]
    Refused { of: Admin, why: String },
    /// What it says is no answer to this question.
    #[error(
        "{of} gives no such answer: {why}; is it the admin port (7401, or an aggregator's 7411) of this version?"
    )]
    Strange { of: Admin, why: String },
}

impl Failed {
    /// Whether asking the same again will not do.
    pub(crate) const fn is_usage(&self) -> bool {
        matches!(self, Self::Asked { .. })
    }
}

/// Asks one after the other until one is there.
pub(crate) async fn first_that_is_there<T: DeserializeOwned>(
    admins: &[Admin],
    question: &Question,
) -> Result<Asked<T>, Failed> {
    let mut away = Vec::new();
    for of in admins {
        match send(of, question).await {
            Err(why) => away.push(format!("nothing answers at {of}: {why}")),
            Ok((status, body)) => {
                let strange = |why: String| Failed::Strange { of: of.clone(), why };
                if status.is_success() {
                    let answer = serde_json::from_slice(&body).map_err(|error| strange(error.to_string()))?;
                    return Ok(Asked { of: of.clone(), answer });
                }
                let refusal = serde_json::from_slice::<Refusal>(&body);
                let why = refusal.map_err(|_| strange(status.to_string()))?.error;
                let of = of.clone();
                return Err(match status {
                    StatusCode::BAD_REQUEST | StatusCode::CONFLICT => Failed::Asked { of, why },
                    _ => Failed::Refused { of, why },
                });
            }
        }
    }
    Err(Failed::Away(away))
}

/// The status and the body of an answer, or in a few words why there is none.
async fn send(of: &Admin, question: &Question) -> Result<(StatusCode, Bytes), String> {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(CONNECT_WITHIN));
    let client: Client<HttpConnector, Full<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
    let request = Request::builder()
        .method(&question.method)
        .uri(of.at(question.path))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(question.body.clone()))
        .map_err(|error| error.to_string())?;
    let answered = async {
        let answer = client.request(request).await.map_err(|error| root_cause(&error))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
    };
    let within = question.takes + ANSWER_WITHIN;
    timeout(within, answered).await.unwrap_or_else(|_| Err(format!("no answer within {within:?}")))
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_that_of_a_plain_http_server() {
        for good in
            ["http://127.0.0.1:7401", "http://controller:7401/", "http://[::1]:7401", "http://controller"]
        {
            assert_eq!(admin(good).unwrap().at("/kill"), format!("{}/kill", good.trim_end_matches('/')));
        }
        for bad in [
            "",
            "127.0.0.1:7401",
            "https://controller:7401",
            "http://",
            "http://a/kill",
            "http://a/?x",
            "controller",
        ] {
            assert!(admin(bad).unwrap_err().contains("http://127.0.0.1:7401"), "{bad}");
        }
    }
}
