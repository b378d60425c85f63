//! The credentials of an operator: the CA that verifies servers, and the token that names the
//! operator and the role.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueHint;
use plimsoll_host::regular_file;
use reqwest::Client;

use super::{Address, Token, root_cause};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The CA and the token of an operator.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Credentials")]
pub(crate) struct CredentialArgs {
    /// CA of the certificates of the tiers, for https:// addresses
    #[arg(long, env = "PLIMSOLL_CA", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) ca: Option<PathBuf>,
    /// File with the token of the operator; only its owner may have access to it
    #[arg(long, env = "PLIMSOLL_TOKEN_FILE", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) token_file: Option<PathBuf>,
}

impl CredentialArgs {
    /// Reads the files for an address.
    ///
    /// # Errors
    /// The reason why they cannot be used there.
    pub(super) fn open(&self, address: &Address) -> Result<(Client, Option<Token>), String> {
        let token = self.token_file.as_deref().map(Token::read).transpose()?;
        if let Some(path) = &self.token_file
            && !address.is_tls()
            && !address.is_loopback()
        {
            return Err(format!(
                "a token is never sent over plain HTTP to another machine: write {}, or leave out the token file {}",
                address.by_other_scheme(),
                path.display()
            ));
        }
        let mut builder =
            plimsoll_controller::untrusting_http_client_builder().connect_timeout(CONNECT_TIMEOUT);
        if address.is_tls() {
            let ca = self.ca.as_ref().ok_or_else(|| {
                format!(
                    "{address} needs the CA of its certificate: give the file with --ca FILE (PLIMSOLL_CA)"
                )
            })?;
            regular_file::open(ca)
                .map_err(|error| format!("cannot read the CA {}: {error}", ca.display()))?;
            let config = plimsoll_tls::operator_client(ca, address.tier)
                .map_err(|error| format!("the CA of https:// addresses cannot be used: {error}"))?;
            builder = builder.tls_backend_preconfigured(config);
        }
        Ok((builder.build().map_err(|error| root_cause(&error))?, token))
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_tls::Tier;

    use super::*;

    fn refused(credentials: &CredentialArgs, address: &str) -> String {
        credentials
            .open(&Address::parse(address, Tier::Controller).unwrap())
            .unwrap_err()
    }

    #[test]
    fn token_needs_tls_beyond_this_machine() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let token = Token::generate().unwrap();
        plimsoll_host::atomic_file::replace(&path, token.secret().as_bytes()).unwrap();
        let credentials = CredentialArgs {
            token_file: Some(path),
            ca: None,
        };
        for address in [
            "http://192.0.2.1:7401",
            "http://controller.invalid:7401",
            "http://[2001:db8::1]",
        ] {
            let reason = refused(&credentials, address);
            assert!(reason.contains("never sent over plain HTTP"), "{reason}");
            assert!(
                reason.contains("write https://") && reason.contains("/token"),
                "{reason}"
            );
            assert!(!reason.contains(token.secret()), "{reason}");
        }
        let reason = refused(&credentials, "https://127.0.0.1:7401");
        assert!(reason.contains("--ca FILE (PLIMSOLL_CA)"), "{reason}");
        let missing = CredentialArgs {
            ca: Some("missing.crt".into()),
            ..CredentialArgs::default()
        };
        assert!(refused(&missing, "https://127.0.0.1:7401").contains("missing.crt"));
    }
}
