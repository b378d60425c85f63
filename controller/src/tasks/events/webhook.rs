//! Sends events to other systems, in order: as JSON to a webhook, as annotations to Grafana. Nothing waits for them: the
//! list itself is the queue, and the oldest events are given up if a receiver does not take them.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_core::exchange::names_loopback;
use plimsoll_host::regular_file;
use reqwest::{Client, RequestBuilder, StatusCode, Url, header};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::log::{EventLog, unix_ms};
use super::{Event, list};
use crate::prometheus::{causes_of, http_client_builder};
use crate::tasks::counters::Counters;

const TIMEOUT: Duration = Duration::from_secs(5);
/// Delay before the second attempt, which doubles with each further one.
const RETRY_MIN: Duration = Duration::from_secs(1);
/// Maximum of that delay.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Maximum number of events that wait for one receiver.
const WAITING_MAX: usize = 1_000;
/// Maximum age of a waiting event in milliseconds: an hour.
const WAITING_MS: i64 = 3_600_000;
/// Maximum number of events in a request to a webhook.
const BATCH_MAX: usize = 100;
const TOKEN_BYTES_MAX: usize = 4 << 10;

/// Other systems that are sent events.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Events")]
pub struct EventArgs {
    /// Send events here as they happen, oldest first: POST of {"events": [..]}, each as `plimsoll events --output json`
    /// shows it
    #[arg(long, env = "PLIMSOLL_EVENTS_WEBHOOK", hide_env_values = true, value_name = "URL", value_parser = url)]
    pub events_webhook: Option<Url>,
    /// File with a token for the webhook, sent as `Authorization: Bearer`
    #[arg(
        long,
        env = "PLIMSOLL_EVENTS_WEBHOOK_TOKEN_FILE",
        value_name = "FILE",
        requires = "events_webhook"
    )]
    pub events_webhook_token_file: Option<PathBuf>,
    /// Write events as annotations to the Grafana at this URL, with the tags plimsoll, kind, severity and subject
    #[arg(long, env = "PLIMSOLL_EVENTS_GRAFANA", hide_env_values = true, value_name = "URL", value_parser = url)]
    pub events_grafana: Option<Url>,
    /// File with the token of a service account of that Grafana
    #[arg(
        long,
        env = "PLIMSOLL_EVENTS_GRAFANA_TOKEN_FILE",
        value_name = "FILE",
        requires = "events_grafana"
    )]
    pub events_grafana_token_file: Option<PathBuf>,
}

/// A token would be sent in plaintext to another machine.
#[derive(Debug, thiserror::Error)]
#[error(
    "{flag}: a token is never sent over plain HTTP to another machine: write https://, or leave out the token file"
)]
pub struct EventArgsError {
    flag: &'static str,
}

/// A system that is sent events.
#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    flag: &'static str,
    url: Url,
    token_file: Option<PathBuf>,
    format: Format,
}

#[derive(Clone, Copy, Debug)]
enum Format {
    Json,
    Annotation,
}

#[derive(Debug, thiserror::Error)]
enum Unsent {
    #[error("the token file {} cannot be read: {source}", path.display())]
    Token { path: PathBuf, source: io::Error },
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    #[error("it answered {0}")]
    Status(StatusCode),
}

fn url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok();
    url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        .ok_or_else(|| "write it as https://HOST/PATH, or as http://HOST/PATH".to_owned())
}

// === impl EventArgs ===

impl EventArgs {
    /// Returns the systems that are sent events.
    ///
    /// # Errors
    /// If a token would be sent in plaintext to another machine.
    pub(crate) fn receivers(&self) -> Result<Vec<Receiver>, EventArgsError> {
        let webhook = (&self.events_webhook, &self.events_webhook_token_file);
        let grafana = (&self.events_grafana, &self.events_grafana_token_file);
        let all = [
            ("--events-webhook", webhook, Format::Json),
            ("--events-grafana", grafana, Format::Annotation),
        ];
        let mut receivers = Vec::new();
        for (flag, (url, token_file), format) in all {
            let Some(url) = url.clone() else { continue };
            let is_exposed =
                url.scheme() == "http" && !names_loopback(url.host_str().unwrap_or_default());
            if is_exposed && token_file.is_some() {
                return Err(EventArgsError { flag });
            }
            receivers.push(Receiver {
                flag,
                url,
                token_file: token_file.clone(),
                format,
            });
        }
        Ok(receivers)
    }
}

// === impl Receiver ===

impl Receiver {
    /// Sends the events of this process, forever. A failure delays only this receiver.
    pub(crate) async fn run(self, log: EventLog, counters: Counters) {
        let (receiver, host) = (self.flag, self.url.host_str().unwrap_or_default());
        let client = match http_client_builder().timeout(TIMEOUT).build() {
            Ok(client) => client,
            Err(error) => {
                return tracing::error!(receiver, %error, "no HTTP client: events are not sent");
            }
        };
        let mut changes = log.changes();
        let (mut sent, mut delay) = (log.began(), RETRY_MIN);
        loop {
            let (batch, given_up) = self.next(&log, &mut sent);
            counters.with(|counts| counts.events_unsent += given_up);
            let Some(last) = batch.last().map(|event| event.number) else {
                if changes.changed().await.is_err() {
                    return;
                }
                continue;
            };
            match self.send(&client, &batch).await {
                Ok(()) => {
                    if delay > RETRY_MIN {
                        tracing::info!(receiver, host, "events are sent again");
                    }
                    (sent, delay) = (last, RETRY_MIN);
                }
                Err(error) if error.is_final() => {
                    tracing::error!(receiver, host, %error, events = batch.len(), "events given up: they are refused");
                    counters.with(|counts| counts.events_unsent += batch.len() as u64);
                    sent = last;
                }
                Err(error) => {
                    if delay == RETRY_MIN {
                        tracing::warn!(receiver, host, %error, "events not sent: they wait for an hour at most");
                    }
                    sleep(delay).await;
                    delay = (delay * 2).min(RETRY_MAX);
                }
            }
        }
    }

    /// Returns the events to send after the number `sent`, and how many before them are given up: `sent` moves past these.
    fn next(&self, log: &EventLog, sent: &mut u64) -> (Vec<Event>, u64) {
        let mut waiting = VecDeque::from(log.page(*sent, i64::MIN, list::EVENTS_MAX).events);
        let (oldest_ms, before) = (unix_ms().saturating_sub(WAITING_MS), waiting.len());
        while let Some(event) = waiting.front()
            && (waiting.len() > WAITING_MAX || event.time_ms < oldest_ms)
        {
            *sent = event.number;
            waiting.pop_front();
        }
        let given_up = (before - waiting.len()) as u64;
        waiting.truncate(match self.format {
            Format::Json => BATCH_MAX,
            Format::Annotation => 1,
        });
        (waiting.into(), given_up)
    }

    async fn send(&self, client: &Client, batch: &[Event]) -> Result<(), Unsent> {
        let mut url = self.url.clone();
        let body = match (self.format, batch) {
            (Format::Annotation, [event]) => {
                let path = format!("{}/api/annotations", url.path().trim_end_matches('/'));
                url.set_path(&path);
                annotation(event)
            }
            _ => json!({ "events": batch }),
        };
        let request = client
            .post(url)
            .header(header::CONTENT_TYPE, "application/json")
            .body(body.to_string());
        let answer = self.authorized(request).await?.send().await;
        match answer
            .map_err(|error| Unsent::Unreachable(causes_of(error)))?
            .status()
        {
            status if status.is_success() => Ok(()),
            status => Err(Unsent::Status(status)),
        }
    }

    /// Adds the token, which is read each time: it may be renewed.
    async fn authorized(&self, request: RequestBuilder) -> Result<RequestBuilder, Unsent> {
        let Some(path) = self.token_file.clone() else {
            return Ok(request);
        };
        let read = move || {
            let token = regular_file::read_whole(&path, TOKEN_BYTES_MAX)
                .and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
            token.map_err(|source| Unsent::Token { path, source })
        };
        match spawn_blocking(read).await {
            Ok(token) => Ok(request.bearer_auth(token?.trim())),
            Err(error) => Err(Unsent::Unreachable(error.to_string())),
        }
    }
}

fn annotation(event: &Event) -> Value {
    let kind = serde_json::to_value(event.kind).unwrap_or_default();
    json!({
        "time": event.time_ms,
        "tags": ["plimsoll", kind, event.severity, event.subject],
        "text": event.to_string(),
    })
}

// === impl Unsent ===

impl Unsent {
    /// True if the receiver would refuse the same events again.
    const fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Status(
                StatusCode::BAD_REQUEST
                    | StatusCode::PAYLOAD_TOO_LARGE
                    | StatusCode::UNPROCESSABLE_ENTITY
            )
        )
    }
}
