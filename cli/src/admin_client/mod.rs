//! The client of the admin ports: sends one request, and returns the answer or an error that says what to
//! try.

mod error;
mod request;

use std::time::Duration;

use clap::ValueHint;
use reqwest::{Response, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use error::no_answer;
pub(crate) use error::{AdminError, root_cause};
pub(crate) use request::{Address, CONTROLLER, Request, parse_address};

use crate::output::OutputArgs;
use crate::shutdown;

/// The timeout of a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The timeout of an answer, beyond the duration of the request itself: a controller writes a command to its
/// disk before it answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest answer that is read into memory.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The hint of a request that no controller answers.
const UNREACHABLE: &str = "run this on the controller's machine, and give its admin port with --controller \
                           http://127.0.0.1:PORT if it is not 7401";

/// The controller to send a request to, and the format of the output.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AdminArgs {
    #[command(flatten)]
    pub(crate) controller: ControllerArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// The controller to send a request to.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ControllerArgs {
    /// Admin port of the controller; it answers only callers on its own machine
    #[arg(long = "controller", env = "PLIMSOLL_CONTROLLER_ADMIN", value_name = "URL", default_value = CONTROLLER, value_hint = ValueHint::Url, value_parser = parse_address)]
    pub(crate) address: Address,
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
        let addresses = std::slice::from_ref(&self.controller.address);
        let answer = send_to_first_reachable(addresses, request, UNREACHABLE);
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
        let address = &self.address;
        let response = send(address, request).await.map_err(|cause| AdminError::Unreachable {
            tried: vec![no_answer(address, &cause)],
            hint: UNREACHABLE,
        })?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        match read_body(response).await {
            Ok(body) => Err(AdminError::from_answer(address, status, &body)),
            Err(cause) => Err(AdminError::UnexpectedAnswer { address: address.clone(), cause }),
        }
    }
}

/// Sends a request to one address after the other until one is reachable.
///
/// # Errors
/// [`AdminError`]; if no address is reachable, `hint` says what to do.
pub(crate) async fn send_to_first_reachable<T: DeserializeOwned>(
    addresses: &[Address],
    request: &Request,
    hint: &'static str,
) -> Result<Answer<T>, AdminError> {
    let mut tried = Vec::new();
    let within = request.duration + ANSWER_TIMEOUT;
    for address in addresses {
        let answered = async {
            let response = send(address, request).await?;
            Ok((response.status(), read_body(response).await?))
        };
        let late = |_| Err(format!("no answer within {within:?}"));
        let (status, body) = match timeout(within, answered).await.unwrap_or_else(late) {
            Ok(answer) => answer,
            Err(cause) => {
                tried.push(no_answer(address, &cause));
                continue;
            }
        };
        if !status.is_success() {
            return Err(AdminError::from_answer(address, status, &body));
        }
        let body = serde_json::from_slice(&body).map_err(|error| AdminError::UnexpectedAnswer {
            address: address.clone(),
            cause: error.to_string(),
        })?;
        return Ok(Answer { from: address.clone(), body });
    }
    Err(AdminError::Unreachable { tried, hint })
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

async fn send(address: &Address, request: &Request) -> Result<Response, String> {
    let sent = async {
        let client = plimsoll_controller::http_client_builder().connect_timeout(CONNECT_TIMEOUT).build()?;
        let sent = client.request(request.method.clone(), address.url(&request.route));
        sent.header(header::CONTENT_TYPE, request.content_type).body(request.body.clone()).send().await
    };
    sent.await.map_err(|error: reqwest::Error| root_cause(&error))
}
