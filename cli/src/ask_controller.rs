//! A question to a controller's admin port: JSON there and back, and in words what to do where there is no answer.

use std::time::Duration;

use bytes::Bytes;
use clap::ValueEnum;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use plimsoll_controller::rollout_routes::Refusal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::shutdown;

/// How long an answer may take: what is asked for is written to a disk first.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// Whom to ask, and how to say what was answered.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AskArgs {
    /// The admin port of the controller, on its own machine
    #[arg(long, env = "PLIMSOLL_CONTROLLER_ADMIN", value_name = "URL", default_value = "http://127.0.0.1:7401", value_parser = address)]
    controller: Uri,
    /// How to say what was answered
    #[arg(long, short, value_enum, default_value_t, env = "PLIMSOLL_OUTPUT", value_name = "FORMAT")]
    pub(crate) output: Output,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    #[default]
    Text,
    /// For scripts: one JSON document on standard output
    Json,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// Nobody is there.
    #[error(
        "nothing answers at {controller}: {why}\n  = hint: run this on the controller's machine, and give its admin port \
         with --controller http://127.0.0.1:PORT if it is not 7401"
    )]
    Away { controller: String, why: String },
    /// What was asked cannot be.
    #[error("{0}")]
    Wrong(String),
    /// It will not.
    #[error("{0}")]
    Refused(String),
    /// It answers something else.
    #[error(
        "{controller} gives no such answer ({why}): is it the admin port of a controller of this version?"
    )]
    Strange { controller: String, why: String },
}

impl AskError {
    /// Whether asking the same again will not do.
    pub(crate) const fn is_usage(&self) -> bool {
        matches!(self, Self::Wrong(_))
    }
}

/// Reads an address.
fn address(text: &str) -> Result<Uri, String> {
    let due = || format!("`{text}` is no address of an admin port: write it as http://127.0.0.1:7401");
    let uri: Uri = text.parse().map_err(|_| due())?;
    let is_plain = uri.scheme_str() == Some("http") && uri.path() == "/" && uri.query().is_none();
    if is_plain { Ok(uri) } else { Err(due()) }
}

impl AskArgs {
    /// Asks, and waits for the answer.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.ask(Method::GET, path, Bytes::new())
    }

    /// Orders, and waits until it is done.
    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str, order: &impl Serialize) -> anyhow::Result<T> {
        self.ask(Method::POST, path, serde_json::to_vec(order)?.into())
    }

    fn ask<T: DeserializeOwned>(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<T> {
        let controller = self.controller.to_string().trim_end_matches('/').to_owned();
        let uri = format!("{controller}{path}");
        let request =
            Request::builder().method(method).uri(uri).header(header::CONTENT_TYPE, "application/json");
        let request = request.body(Full::new(body))?;
        let answered = shutdown::runtime()?.block_on(async { timeout(ANSWER_WITHIN, send(request)).await });
        let away = |why: String| AskError::Away { controller: controller.clone(), why };
        let (status, body) = match answered {
            Ok(Ok(answer)) => answer,
            Ok(Err(why)) => return Err(away(why).into()),
            Err(_) => return Err(away(format!("no answer within {ANSWER_WITHIN:?}")).into()),
        };
        let strange = |why: String| AskError::Strange { controller: controller.clone(), why };
        if status.is_success() {
            return Ok(serde_json::from_slice(&body).map_err(|error| strange(error.to_string()))?);
        }
        let refusal: Refusal = serde_json::from_slice(&body).map_err(|_| strange(status.to_string()))?;
        Err(match status {
            StatusCode::BAD_REQUEST => AskError::Wrong(refusal.error),
            _ => AskError::Refused(refusal.error),
        }
        .into())
    }
}

/// The status and the body of an answer, or in a few words why there is none.
async fn send(request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), String> {
    let client: Client<HttpConnector, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let answer = client.request(request).await.map_err(|error| root_cause(&error))?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
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
        for good in ["http://127.0.0.1:7401", "http://controller:7401/", "http://[::1]:7401"] {
            assert!(address(good).is_ok(), "{good}");
        }
        for bad in ["", "127.0.0.1:7401", "https://controller:7401", "http://a/rollout", "http://a/?x"] {
            assert!(address(bad).unwrap_err().contains("http://127.0.0.1:7401"), "{bad}");
        }
    }
}
