//! A question to an admin port, and the answer; or why there is none, and what to try.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use clap::{ValueEnum, ValueHint};
use http::{Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use plimsoll_core::text::Text;
use plimsoll_proto::local::Refusal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::shutdown;

/// Where a controller's admin port is unless said otherwise.
pub(crate) const CONTROLLER: &str = "http://127.0.0.1:7401";

/// How long a connection may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// How long an answer may take beyond what the question takes by itself: what is ordered is written to a disk first.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The largest answer that is read at once.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The address of an admin port.
#[derive(Clone, Debug)]
pub(crate) struct Admin(Uri);

/// Which controller to ask, and how to say what it answers.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AskArgs {
    #[command(flatten)]
    pub(crate) controller: ControllerArgs,
    /// How to say what it answers
    #[arg(long, short, value_enum, default_value_t, env = "PLIMSOLL_OUTPUT", value_name = "FORMAT")]
    pub(crate) output: Output,
}

/// Which controller to ask.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ControllerArgs {
    /// The admin port of the controller, on its own machine
    #[arg(long = "controller", env = "PLIMSOLL_CONTROLLER_ADMIN", value_name = "URL", default_value = CONTROLLER, value_hint = ValueHint::Url, value_parser = admin)]
    pub(crate) admin: Admin,
}

/// How an answer looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    #[default]
    Text,
    /// For scripts: one JSON document on standard output
    Json,
}

/// What is asked.
#[derive(Debug)]
pub(crate) struct Question {
    method: Method,
    path: String,
    kind: &'static str,
    body: Bytes,
    takes: Duration,
}

/// An answer, and who gave it.
#[derive(Debug)]
pub(crate) struct Asked<T> {
    pub(crate) of: Admin,
    pub(crate) answer: T,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// Nobody is there, at any of the addresses.
    #[error("{}\n  = hint: {hint}", .tried.join("\n       "))]
    Away { tried: Vec<String>, hint: &'static str },
    /// What was asked cannot be.
    #[error("{} ({of})", .why.error)]
    Wrong { of: Admin, why: Refusal },
    /// It will not, as things are.
    #[error("{} ({of})", .why.error)]
    Refused { of: Admin, why: Refusal },
    /// What it says is no answer to this question.
    #[error(
        "{of} gives no such answer: {why}; is it the admin port (7401, or an aggregator's 7411) of this version?"
    )]
    Strange { of: Admin, why: String },
}

/// What to do where no controller answers.
const AWAY: &str = "run this on the controller's machine, and give its admin port with --controller \
                    http://127.0.0.1:PORT if it is not 7401";

// === impl Admin ===

/// Reads an address.
pub(crate) fn admin(text: &str) -> Result<Admin, String> {
    let due = || format!("`{text}` is no address of an admin port: write it as {CONTROLLER}");
    let uri: Uri = text.parse().map_err(|_| due())?;
    let is_plain = uri.scheme_str() == Some("http") && uri.path().trim_end_matches('/').is_empty();
    if is_plain && uri.host().is_some_and(|host| !host.is_empty()) && uri.query().is_none() {
        Ok(Admin(uri))
    } else {
        Err(due())
    }
}

/// Reads a reason.
pub(crate) fn words(text: &str) -> Result<Text, String> {
    Text::new(text).map_err(|error| error.to_string())
}

impl Admin {
    fn at(&self, path: &str) -> String {
        format!("{self}{path}")
    }
}

impl fmt::Display for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0.to_string().trim_end_matches('/'))
    }
}

// === impl Question ===

impl Question {
    /// One that changes nothing.
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self {
            method: Method::GET,
            path: path.into(),
            kind: "application/json",
            body: Bytes::new(),
            takes: Duration::ZERO,
        }
    }

    /// An order.
    pub(crate) fn post(path: impl Into<String>, order: &impl Serialize) -> Result<Self, serde_json::Error> {
        let body = serde_json::to_vec(order)?.into();
        Ok(Self { method: Method::POST, body, ..Self::get(path) })
    }

    /// A file that is brought in, of this media type.
    pub(crate) fn file(path: impl Into<String>, kind: &'static str, body: Bytes) -> Self {
        Self { method: Method::POST, kind, body, ..Self::get(path) }
    }

    /// The same, whose answer takes so long.
    pub(crate) fn taking(self, takes: Duration) -> Self {
        Self { takes, ..self }
    }
}

// === asking ===

impl AskArgs {
    /// Asks, and waits for the answer.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.ask(&Question::get(path))
    }

    /// Orders, and waits until it is done.
    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str, order: &impl Serialize) -> anyhow::Result<T> {
        self.ask(&Question::post(path, order)?)
    }

    fn ask<T: DeserializeOwned>(&self, question: &Question) -> anyhow::Result<T> {
        let admins = std::slice::from_ref(&self.controller.admin);
        let asked = first_that_is_there(admins, question, AWAY);
        Ok(shutdown::runtime()?.block_on(asked)?.answer)
    }
}

impl ControllerArgs {
    /// Asks; what it answers may be long, and takes the time it takes.
    pub(crate) async fn open(&self, question: &Question) -> Result<Response<Incoming>, AskError> {
        let of = &self.admin;
        let answer = send(of, question).await;
        let answer = answer.map_err(|why| AskError::Away { tried: vec![away(of, &why)], hint: AWAY })?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        match whole(answer).await {
            Ok(body) => Err(refused(of, status, &body)),
            Err(why) => Err(AskError::Strange { of: of.clone(), why }),
        }
    }
}

/// Asks one after the other until one is there. If none is, `hint` says what to do.
pub(crate) async fn first_that_is_there<T: DeserializeOwned>(
    admins: &[Admin],
    question: &Question,
    hint: &'static str,
) -> Result<Asked<T>, AskError> {
    let mut tried = Vec::new();
    let within = question.takes + ANSWER_WITHIN;
    for of in admins {
        let answered = async {
            let answer = send(of, question).await?;
            Ok((answer.status(), whole(answer).await?))
        };
        let late = |_| Err(format!("no answer within {within:?}"));
        let (status, body) = match timeout(within, answered).await.unwrap_or_else(late) {
            Ok(answer) => answer,
            Err(why) => {
                tried.push(away(of, &why));
                continue;
            }
        };
        if !status.is_success() {
            return Err(refused(of, status, &body));
        }
        let strange = |error: serde_json::Error| AskError::Strange { of: of.clone(), why: error.to_string() };
        let answer = serde_json::from_slice(&body).map_err(strange)?;
        return Ok(Asked { of: of.clone(), answer });
    }
    Err(AskError::Away { tried, hint })
}

/// The whole body of an answer that is not too long.
pub(crate) async fn whole(answer: Response<Incoming>) -> Result<Bytes, String> {
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    Ok(body.map_err(|error| format!("the answer broke off: {error}"))?.to_bytes())
}

async fn send(of: &Admin, question: &Question) -> Result<Response<Incoming>, String> {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(CONNECT_WITHIN));
    let client: Client<HttpConnector, Full<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
    let request = Request::builder()
        .method(&question.method)
        .uri(of.at(&question.path))
        .header(header::CONTENT_TYPE, question.kind)
        .body(Full::new(question.body.clone()))
        .map_err(|error| error.to_string())?;
    client.request(request).await.map_err(|error| root_cause(&error))
}

// === errors ===

impl AskError {
    /// Whether asking the same again will not do.
    pub(crate) const fn is_usage(&self) -> bool {
        matches!(self, Self::Wrong { .. })
    }
}

fn away(of: &Admin, why: &str) -> String {
    format!("nothing answers at {of}: {why}")
}

fn refused(of: &Admin, status: StatusCode, body: &[u8]) -> AskError {
    let of = of.clone();
    match serde_json::from_slice::<Refusal>(body) {
        Err(_) => AskError::Strange { of, why: status.to_string() },
        Ok(why) if status == StatusCode::BAD_REQUEST || status == StatusCode::PAYLOAD_TOO_LARGE => {
            AskError::Wrong { of, why }
        }
        Ok(why) => AskError::Refused { of, why },
    }
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
            assert!(admin(bad).unwrap_err().contains(CONTROLLER), "{bad}");
        }
    }

    #[test]
    fn what_is_refused_says_whether_asking_again_may_help() {
        let of = admin(CONTROLLER).unwrap();
        let said = br#"{"error":"no","line":3}"#;
        for (status, body, usage) in [
            (StatusCode::BAD_REQUEST, &said[..], true),
            (StatusCode::PAYLOAD_TOO_LARGE, said, true),
            (StatusCode::CONFLICT, said, false),
            (StatusCode::FORBIDDEN, said, false),
            (StatusCode::BAD_REQUEST, b"<html>", false),
        ] {
            let error = refused(&of, status, body);
            assert_eq!(error.is_usage(), usage, "{status}: {error}");
            assert!(error.to_string().contains(CONTROLLER), "{error}");
        }
    }
}
