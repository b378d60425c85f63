//! The operator that sends a request, with the CA that verifies servers and the token that names the operator and the
//! role.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueHint;
use plimsoll_host::regular_file;
use plimsoll_tls::HandshakeFailure;
use reqwest::{Client, Response, header};

use super::config_file::ConfigFile;
use super::token::Token;
use super::{Address, CONTROLLER, Request, parse_controller, root_cause};

/// The timeout of a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The CA, the token and the config file of an operator.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Credentials")]
pub(crate) struct OperatorArgs {
    /// CA of the certificates of the tiers, for https:// addresses
    #[arg(long, env = "PLIMSOLL_CA", value_name = "FILE", value_hint = ValueHint::FilePath)]
    ca: Option<PathBuf>,
    /// File with the token of the operator; only its owner may have access to it
    #[arg(long, env = "PLIMSOLL_TOKEN_FILE", value_name = "FILE", value_hint = ValueHint::FilePath)]
    token_file: Option<PathBuf>,
    /// YAML file with controller, ca and token_file, for what is given neither as a flag nor in the
    /// environment; ~/.config/plimsoll/config.yaml if it exists
    #[arg(long, env = "PLIMSOLL_CONFIG", value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
}

/// The credentials of an operator, from flags, environment and config file.
#[derive(Debug)]
pub(crate) struct Operator {
    controller: Option<Address>,
    ca: Option<PathBuf>,
    token: Option<(PathBuf, Token)>,
}

/// The reason why a request has no answer; each text names the address.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The arguments do not allow to send it to this address.
    Unsent(String),
    /// The port speaks another protocol, or its certificate is refused.
    Mismatch(String),
    /// The address is not reachable, or is silent.
    Silent(String),
}

impl NoAnswer {
    pub(super) fn silent(address: &Address, cause: &str) -> Self {
        Self::Silent(format!("nothing answers at {address}: {cause}"))
    }
}

impl OperatorArgs {
    /// Reads the config file and the token.
    ///
    /// # Errors
    /// The reason, if a file that is given cannot be used.
    pub(crate) fn open(&self) -> Result<Operator, String> {
        let config = ConfigFile::read(self.config.as_deref())?;
        let token_file = self.token_file.clone().or(config.token_file);
        let token = token_file.map(|path| Token::read(&path).map(|token| (path, token))).transpose()?;
        Ok(Operator { controller: config.controller, ca: self.ca.clone().or(config.ca), token })
    }
}

#[cfg(test)]
impl OperatorArgs {
    pub(super) fn of_config(config: PathBuf) -> Self {
        Self { config: Some(config), ..Self::default() }
    }
}

impl Operator {
    /// The controller of the config file, else the default one.
    pub(crate) fn controller(&self) -> Result<Address, String> {
        self.controller.clone().map_or_else(|| parse_controller(CONTROLLER), Ok)
    }

    /// The file that the token was read from.
    pub(super) fn token_file(&self) -> Option<&PathBuf> {
        self.token.as_ref().map(|(path, _)| path)
    }

    /// Sends a request; the body of the answer is still to be read.
    pub(super) async fn send(&self, address: &Address, request: &Request) -> Result<Response, NoAnswer> {
        let client = self.client(address).map_err(NoAnswer::Unsent)?;
        let mut sent = client.request(request.method.clone(), address.url(&request.route));
        if let Some((path, token)) = &self.token {
            if !address.is_tls() && !address.is_loopback() {
                return Err(NoAnswer::Unsent(format!(
                    "a token is never sent over plain HTTP to another machine: write {}, or leave out the token \
                     file {}",
                    address.by_other_scheme(),
                    path.display()
                )));
            }
            let header = token.header().map_err(|error| NoAnswer::Unsent(error.to_string()))?;
            sent = sent.header(header::AUTHORIZATION, header);
        }
        let sent = sent.header(header::CONTENT_TYPE, request.content_type).body(request.body.clone()).send();
        sent.await.map_err(|error| self.explain(address, &error))
    }

    fn client(&self, address: &Address) -> Result<Client, String> {
        let builder = plimsoll_controller::http_client_builder().connect_timeout(CONNECT_TIMEOUT);
        let builder = match &self.ca {
            _ if !address.is_tls() => builder,
            Some(ca) => {
                regular_file::open(ca)
                    .map_err(|error| format!("cannot read the CA {}: {error}", ca.display()))?;
                let config = plimsoll_tls::operator_client(ca, address.tier())
                    .map_err(|error| format!("the CA of https:// addresses cannot be used: {error}"))?;
                builder.tls_backend_preconfigured(config)
            }
            None => {
                return Err(format!(
                    "{address} needs the CA of its certificate: give the file with --ca FILE (PLIMSOLL_CA), or as \
                     `ca` in the config file"
                ));
            }
        };
        builder.build().map_err(|error| root_cause(&error))
    }

    /// Describes a failed request, with what to change if the scheme or the CA is at fault.
    fn explain(&self, address: &Address, error: &reqwest::Error) -> NoAnswer {
        let other = address.by_other_scheme();
        let is_no_http = |error: &hyper::Error| error.is_parse() || error.is_incomplete_message();
        if !address.is_tls() && causes(error).filter_map(|cause| cause.downcast_ref()).any(is_no_http) {
            return NoAnswer::Mismatch(format!(
                "{address} speaks no plain HTTP ({}); if it is TLS, write {other} and give its CA with --ca",
                root_cause(error)
            ));
        }
        let failures = causes(error).filter_map(|cause| cause.downcast_ref()).map(handshake_failure);
        let failure = failures.filter(|failure| address.is_tls() && failure.label() != "other").last();
        let ca = self.ca.as_deref().unwrap_or(Path::new("")).display();
        match failure {
            None => NoAnswer::silent(address, &root_cause(error)),
            Some(failure) => NoAnswer::Mismatch(match failure.label() {
                "not_tls" => format!("{address} speaks no TLS; if it is plain HTTP, write {other}"),
                "no_alpn" => format!(
                    "{address} is no admin port, since it speaks another protocol than HTTP: give the admin port, \
                     which is 7401 at controllers, 7411 at aggregators and 7432 at quota servers"
                ),
                "unknown_authority" => format!(
                    "the certificate of {address} is not signed by a CA in {ca}: give the file of the CA that \
                     issued it with --ca"
                ),
                _ => format!("{address}: {failure} (CA: {ca})"),
            }),
        }
    }
}

/// The cause of a failed handshake, which libraries wrap several times.
fn handshake_failure(error: &io::Error) -> HandshakeFailure {
    match error.get_ref().and_then(|cause| cause.downcast_ref()) {
        Some(inner) => handshake_failure(inner),
        None => HandshakeFailure::of(error),
    }
}

/// An error and its causes, from the outermost.
fn causes<'a>(error: &'a reqwest::Error) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |error| error.source())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn unsent(args: &OperatorArgs, address: &str) -> String {
        let sent =
            args.open().unwrap().send(&parse_controller(address).unwrap(), &Request::get("/kill")).await;
        match sent {
            Err(NoAnswer::Unsent(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    /// Arguments whose config file sets nothing.
    fn args(directory: &tempfile::TempDir) -> OperatorArgs {
        let config = directory.path().join("empty.yaml");
        std::fs::write(&config, "# nothing\n").unwrap();
        OperatorArgs::of_config(config)
    }

    #[tokio::test]
    async fn token_is_not_sent_in_plain_text_to_another_machine() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let token = Token::generate().unwrap();
        plimsoll_host::atomic_file::replace(&path, token.secret().as_bytes()).unwrap();
        let args = OperatorArgs { token_file: Some(path.clone()), ..args(&directory) };
        // Addresses of documentation, which nothing answers.
        for address in ["http://192.0.2.1:7401", "http://controller.invalid:7401", "http://[2001:db8::1]"] {
            let reason = unsent(&args, address).await;
            assert!(reason.contains("never sent over plain HTTP"), "{reason}");
            assert!(reason.contains("write https://") && reason.contains("/token"), "{reason}");
            assert!(!reason.contains(token.secret()), "{reason}");
        }
        assert!(!format!("{:?}", args.open().unwrap()).contains(token.secret()));
    }

    #[tokio::test]
    async fn https_address_needs_a_ca() {
        let directory = tempfile::tempdir().unwrap();
        let reason = unsent(&args(&directory), "https://127.0.0.1:7401").await;
        assert!(reason.contains("--ca FILE (PLIMSOLL_CA)"), "{reason}");
        let missing = directory.path().join("missing.crt");
        let args = OperatorArgs { ca: Some(missing.clone()), ..args(&directory) };
        let reason = unsent(&args, "https://127.0.0.1:7401").await;
        assert!(reason.contains(&missing.display().to_string()), "{reason}");
    }

    #[test]
    fn flags_win_over_the_config_file() {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("config.yaml");
        std::fs::write(&config, "controller: https://of-file:1\nca: of-file\n").unwrap();
        let of_file = OperatorArgs::of_config(config);
        let operator = of_file.open().unwrap();
        assert_eq!(operator.controller().unwrap().to_string(), "https://of-file:1");
        assert_eq!(operator.ca, Some(directory.path().join("of-file")));
        let flags = OperatorArgs { ca: Some("of-flag".into()), ..of_file };
        assert_eq!(flags.open().unwrap().ca, Some("of-flag".into()));
        assert_eq!(args(&directory).open().unwrap().controller().unwrap().to_string(), CONTROLLER);
    }
}
