//! The client of the admin ports: sends one request, and returns the answer or an error with a
//! remedy.

mod address;
mod context;
mod credentials;
mod error;
mod leader;
mod token;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::ValueHint;
use plimsoll_tls::Tier;
use reqwest::{Body, Client, Method, RequestBuilder, Response, header};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use address::{Address, CONTROLLER, QUOTA};
pub(crate) use context::{Context, Contexts, apply as apply_context};
pub(crate) use credentials::CredentialArgs;
pub(crate) use error::{AdminError, HINT, root_cause};
pub(crate) use token::Token;

use crate::output::OutputArgs;
use crate::shutdown;

/// Maximum time to the end of an answer. A controller writes most commands to its disk before it answers.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum answer that is read into memory.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The controller to ask, the credentials of the operator, and the format of the output.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AdminArgs {
    #[command(flatten)]
    pub(crate) controller: ControllerArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// The controller to ask, and the credentials of the operator.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ControllerArgs {
    /// Context whose addresses and files are used, see `plimsoll context`
    #[arg(long, env = "PLIMSOLL_CONTEXT", value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Admin port of the controller; of several, separated by commas, the one that leads is asked
    #[arg(long = "controller", env = "PLIMSOLL_CONTROLLER_ADMIN", value_name = "URL", default_value = CONTROLLER, value_delimiter = ',', value_hint = ValueHint::Url, value_parser = |text: &str| Address::parse(text, Tier::Controller))]
    pub(crate) addresses: Vec<Address>,
    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,
}

/// The admin port of a tier, with the credentials of the operator.
#[derive(Debug)]
pub(crate) struct AdminPort {
    address: Address,
    credentials: CredentialArgs,
    token: Option<Token>,
    client: Client,
}

/// An answer with an unread body, and when it was asked for and arrived.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) response: Response,
    began: SystemTime,
    ended: SystemTime,
}

impl Answered {
    /// Returns the seconds that the clock of the server is ahead of that of this machine, as far as its header tells.
    pub(crate) fn clock_ahead_s(&self) -> Option<f64> {
        let date = self.response.headers().get(header::DATE)?.to_str().ok()?;
        let seconds = |at: SystemTime| at.duration_since(UNIX_EPOCH).map(|it| it.as_secs_f64());
        // The header has whole seconds.
        let date = seconds(httpdate::parse_http_date(date).ok()?).ok()?;
        let (began, ended) = (seconds(self.began).ok()?, seconds(self.ended).ok()?);
        Some((date + 1.0 - began).min(0.0) + (date - ended).max(0.0))
    }
}

impl AdminArgs {
    /// Sends a request that changes nothing to the controller, and waits for the answer.
    ///
    /// # Errors
    /// [`AdminError`].
    pub(crate) fn get<T: DeserializeOwned>(&self, route: &str) -> anyhow::Result<T> {
        self.controller.get(route)
    }

    /// Sends a command to the controller, and waits for the answer.
    ///
    /// # Errors
    /// [`AdminError`].
    pub(crate) fn post<T: DeserializeOwned>(
        &self,
        route: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        let port = self.controller.port()?;
        port.ask(port.post(route, body)?)
    }
}

impl ControllerArgs {
    /// Returns the port of the controller, of several that of the leader.
    ///
    /// # Errors
    /// The credentials cannot be used, or none of several leads.
    pub(crate) fn port(&self) -> Result<AdminPort, AdminError> {
        self.find(false)
    }

    /// Returns the port of the leader, or that of a controller that stands by if none leads.
    ///
    /// # Errors
    /// The credentials cannot be used, or none of several answers.
    pub(crate) fn any_port(&self) -> Result<AdminPort, AdminError> {
        self.find(true)
    }

    /// Sends a request that changes nothing to the leader, and waits for the answer.
    ///
    /// # Errors
    /// [`AdminError`].
    pub(crate) fn get<T: DeserializeOwned>(&self, route: &str) -> anyhow::Result<T> {
        let port = self.port()?;
        port.ask(port.get(route))
    }

    fn find(&self, or_standby: bool) -> Result<AdminPort, AdminError> {
        let address = match &self.addresses[..] {
            [one] => one.clone(),
            several => leader::find(several, &self.credentials, or_standby)?,
        };
        AdminPort::new(&address, &self.credentials)
    }
}

impl AdminPort {
    /// Reads the credentials for an address.
    ///
    /// # Errors
    /// They cannot be used, or a token would be sent in plaintext to another machine.
    pub(crate) fn new(address: &Address, credentials: &CredentialArgs) -> Result<Self, AdminError> {
        let (client, token) = credentials.open(address).map_err(AdminError::Unsent)?;
        Ok(Self {
            address: address.clone(),
            credentials: credentials.clone(),
            token,
            client,
        })
    }

    pub(crate) const fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn get(&self, route: &str) -> RequestBuilder {
        self.request(Method::GET, route)
    }

    /// Makes a command with a JSON body.
    ///
    /// # Errors
    /// The body cannot be serialized.
    pub(crate) fn post(
        &self,
        route: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<RequestBuilder> {
        Ok(self.upload(route, "application/json", serde_json::to_vec(body)?))
    }

    pub(crate) fn upload(
        &self,
        route: &str,
        content_type: &str,
        body: impl Into<Body>,
    ) -> RequestBuilder {
        self.request(Method::POST, route)
            .header(header::CONTENT_TYPE, content_type)
            .body(body)
    }

    fn request(&self, method: Method, route: &str) -> RequestBuilder {
        let request = self
            .client
            .request(method, format!("{}{route}", self.address));
        match &self.token {
            Some(token) => request.bearer_auth(token.secret()),
            None => request,
        }
    }

    /// Sends a request and waits for its whole answer, on a separate runtime.
    ///
    /// # Errors
    /// [`AdminError`].
    pub(crate) fn ask<T: DeserializeOwned>(&self, request: RequestBuilder) -> anyhow::Result<T> {
        Ok(shutdown::runtime()?.block_on(self.answer(request.timeout(ANSWER_TIMEOUT)))?)
    }

    pub(crate) async fn answer<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
    ) -> Result<T, AdminError> {
        let body = self.read(self.open(request).await?).await?;
        serde_json::from_slice(&body).map_err(|error| self.unexpected(&error.to_string()))
    }

    /// Sends a request, and returns the answer of any status, with when it was asked for and arrived.
    ///
    /// # Errors
    /// [`AdminError`].
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Answered, AdminError> {
        let began = SystemTime::now();
        let response = request.send().await;
        let response = response.map_err(|error| self.unanswered(&error))?;
        Ok(Answered {
            response,
            began,
            ended: SystemTime::now(),
        })
    }

    /// Reads an answer as text.
    ///
    /// # Errors
    /// [`AdminError`].
    pub(crate) async fn text(&self, response: Response) -> Result<String, AdminError> {
        let body = self.read(self.successful(response).await?).await?;
        String::from_utf8(body).map_err(|error| self.unexpected(&error.to_string()))
    }

    /// Sends a request, and returns the answer with an unread body. The only timeout is that of `request`, if it has
    /// one.
    ///
    /// # Errors
    /// [`AdminError`].
    pub(crate) async fn open(&self, request: RequestBuilder) -> Result<Response, AdminError> {
        self.successful(self.send(request).await?.response).await
    }

    async fn successful(&self, response: Response) -> Result<Response, AdminError> {
        if response.status().is_success() {
            return Ok(response);
        }
        let (status, headers) = (response.status(), response.headers().clone());
        let retry_after = headers
            .get(header::RETRY_AFTER)
            .and_then(|value| value.to_str().ok());
        Err(self.refusal(status, retry_after, &self.read(response).await?))
    }

    async fn read(&self, mut response: Response) -> Result<Vec<u8>, AdminError> {
        let mut body = Vec::new();
        loop {
            match response.chunk().await {
                Ok(None) => return Ok(body),
                Ok(Some(chunk)) if body.len() + chunk.len() <= ANSWER_BYTES_MAX => {
                    body.extend_from_slice(&chunk);
                }
                Ok(Some(_)) => {
                    let cause = format!("it is longer than {} MiB", ANSWER_BYTES_MAX >> 20);
                    return Err(self.unexpected(&cause));
                }
                Err(error) => return Err(self.unanswered(&error)),
            }
        }
    }
}
