//! The client of the admin ports: sends one request, and returns the answer or an error that says what to
//! try.

mod config_file;
mod error;
mod operator;
mod request;
mod token;

use std::time::Duration;

use clap::ValueHint;
use reqwest::Response;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use error::Refusal;
pub(crate) use error::{AdminError, root_cause};
use operator::NoAnswer;
pub(crate) use operator::{Operator, OperatorArgs};
pub(crate) use request::{
    Address, CONTROLLER, QUOTA, Request, parse_aggregator, parse_controller, parse_quota_server,
};
pub(crate) use token::Token;

use crate::output::OutputArgs;
use crate::shutdown;

/// The timeout of an answer, beyond the duration of the request itself: a controller writes a command to its
/// disk before it answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest answer that is read into memory.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The hint of a request that no controller answers.
const UNREACHABLE: &str = "give the admin port of the controller with --controller URL: http://127.0.0.1:PORT on \
                           its own machine if it is not 7401, https://HOST:7401 from another";

/// The controller to send a request to, and the format of the output.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AdminArgs {
    #[command(flatten)]
    pub(crate) controller: ControllerArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// The controller to send a request to, and the credentials of the operator.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ControllerArgs {
    /// Admin port of the controller [default: that of the config file, else http://127.0.0.1:7401]
    #[arg(long = "controller", env = "PLIMSOLL_CONTROLLER_ADMIN", value_name = "URL", value_hint = ValueHint::Url, value_parser = parse_controller)]
    address: Option<Address>,
    #[command(flatten)]
    operator: OperatorArgs,
}

/// An answer and the address that gave it.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    pub(crate) from: Address,
    pub(crate) body: T,
}

impl AdminArgs {
    /// Sends a request that changes nothing, and waits for the answer.
    ///
    /// # Errors
    /// [`AdminError`].
    pub(crate) fn get<T: DeserializeOwned>(&self, route: &str) -> anyhow::Result<T> {
        self.send(&Request::get(route))
    }

    /// Sends a command, and waits until it is carried out.
    ///
    /// # Errors
    /// [`AdminError`].
    pub(crate) fn post<T: DeserializeOwned>(&self, route: &str, body: &impl Serialize) -> anyhow::Result<T> {
        self.send(&Request::post(route, body)?)
    }

    fn send<T: DeserializeOwned>(&self, request: &Request) -> anyhow::Result<T> {
        let (operator, address) = self.controller.resolve()?;
        let addresses = [address];
        let answer = send_to_first_reachable(&operator, &addresses, request, UNREACHABLE);
        Ok(shutdown::runtime()?.block_on(answer)?.body)
    }
}

impl ControllerArgs {
    /// Sends a request, and returns the answer with its body still to be read: it may be long, and has no
    /// timeout.
    ///
    /// # Errors
    /// [`AdminError`].
    pub(crate) async fn open(&self, request: &Request) -> Result<Response, AdminError> {
        let (operator, address) = self.resolve()?;
        let response = operator.send(&address, request).await;
        let response = response.map_err(|failure| unanswered(vec![failure], UNREACHABLE))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let refusal = Refusal::of(&response);
        match read_body(response).await {
            Ok(body) => Err(refusal.error(&operator, &address, &body)),
            Err(cause) => Err(AdminError::UnexpectedAnswer { address, cause }),
        }
    }

    fn resolve(&self) -> Result<(Operator, Address), AdminError> {
        let operator = self.operator.open().map_err(AdminError::Unsent)?;
        let address = self.address.clone().map_or_else(|| operator.controller(), Ok);
        Ok((operator, address.map_err(AdminError::Unsent)?))
    }
}

/// Sends a request to one address after the other until one is reachable.
///
/// # Errors
/// [`AdminError`]; if no address is reachable, `hint` says what to do.
pub(crate) async fn send_to_first_reachable<T: DeserializeOwned>(
    operator: &Operator,
    addresses: &[Address],
    request: &Request,
    hint: &'static str,
) -> Result<Answer<T>, AdminError> {
    let mut failures = Vec::new();
    let within = request.duration + ANSWER_TIMEOUT;
    for address in addresses {
        let silent = |cause: &str| NoAnswer::silent(address, cause);
        let answered = async {
            let response = operator.send(address, request).await?;
            let refusal = Refusal::of(&response);
            Ok((response.status(), refusal, read_body(response).await.map_err(|cause| silent(&cause))?))
        };
        let late = |_| Err(silent(&format!("no answer within {within:?}")));
        let (status, refusal, body) = match timeout(within, answered).await.unwrap_or_else(late) {
            Ok(answer) => answer,
            Err(failure) => {
                failures.push(failure);
                continue;
            }
        };
        if !status.is_success() {
            return Err(refusal.error(operator, address, &body));
        }
        let body = serde_json::from_slice(&body).map_err(|error| AdminError::UnexpectedAnswer {
            address: address.clone(),
            cause: error.to_string(),
        })?;
        return Ok(Answer { from: address.clone(), body });
    }
    Err(unanswered(failures, hint))
}

/// The error of a request that no address answered. The hint is for addresses that are silent.
fn unanswered(failures: Vec<NoAnswer>, hint: &'static str) -> AdminError {
    let is_unsent = failures.iter().all(|failure| matches!(failure, NoAnswer::Unsent(_)));
    let is_silent = failures.iter().any(|failure| matches!(failure, NoAnswer::Silent(_)));
    let texts = failures.into_iter().map(|failure| match failure {
        NoAnswer::Unsent(text) | NoAnswer::Mismatch(text) | NoAnswer::Silent(text) => text,
    });
    let tried: Vec<String> = texts.collect();
    if is_unsent {
        AdminError::Unsent(tried.join("\n       "))
    } else {
        AdminError::Unreachable { tried, hint: Some(hint).filter(|_| is_silent) }
    }
}

/// Reads the whole body of an answer, up to [`ANSWER_BYTES_MAX`].
///
/// # Errors
/// The connection broke off, or the body is too long.
pub(crate) async fn read_body(mut response: Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(None) => return Ok(body),
            Ok(Some(chunk)) if body.len() + chunk.len() <= ANSWER_BYTES_MAX => body.extend_from_slice(&chunk),
            Ok(Some(_)) => return Err(format!("the answer is longer than {} MiB", ANSWER_BYTES_MAX >> 20)),
            Err(error) => return Err(format!("the answer broke off: {}", root_cause(&error))),
        }
    }
}
