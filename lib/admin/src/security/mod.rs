//! The flags of a tier that decide about trust: its certificates, the tokens of its admin port, and exceptions, which
//! the operator has to state.

mod error;
mod status;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::SystemTime;

use clap::builder::BoolishValueParser;
use plimsoll_core::exchange::{PeerRole, is_loopback};
use plimsoll_net::Protection;
use plimsoll_tls::{Certificates, RoleError};

pub use self::error::SecurityError;
pub use self::status::{ACCESS, CERTIFICATES, CertificateStatus, SecurityStatus, TokensStatus};

use crate::access::{Access, Rules, TokenFile};

/// The flags of a tier that decide about trust.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Trust")]
pub struct SecurityArgs {
    /// Directory of tls.crt, tls.key and ca.crt, which are followed: streams between tiers are mutual TLS, and the
    /// other ports are TLS beyond loopback. Without it all are plaintext, on loopback alone
    #[arg(long, env = "PLIMSOLL_CERTS", value_name = "DIR")]
    pub certs: Option<PathBuf>,
    /// Allow plaintext beyond loopback: every host that reaches a port can feed, read and steer this process
    #[arg(long, env = "PLIMSOLL_INSECURE", value_parser = BoolishValueParser::new())]
    pub insecure: bool,
    /// Tokens that the admin port accepts, one `NAME ROLE sha256:HEX` a line, as `plimsoll tokens` writes them.
    /// Followed while running
    #[arg(long, env = "PLIMSOLL_TOKENS", value_name = "FILE")]
    pub tokens: Option<PathBuf>,
    /// Let programs on this machine use the admin port without a token
    #[arg(long, env = "PLIMSOLL_ADMIN_OPEN_ON_LOOPBACK", value_parser = BoolishValueParser::new())]
    pub admin_open_on_loopback: bool,
    /// Answer /metrics only to tokens, of any role
    #[arg(long, env = "PLIMSOLL_METRICS_NEED_TOKEN", value_parser = BoolishValueParser::new())]
    pub metrics_need_token: bool,
}

/// The checked flags, with the files that they name. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Opened {
    access: Access,
    certificates: Option<Certificates>,
    /// Flags with the addresses that are plaintext beyond loopback.
    plaintext: Vec<String>,
}

impl SecurityArgs {
    /// Checks the flags of a process with this role and these addresses, and reads their files. `exposed_parent` is
    /// the address of its parent, if that is plaintext beyond loopback, for the warning: the caller refuses it without
    /// `--insecure`. Blocks.
    ///
    /// # Errors
    /// If a port would be plaintext beyond loopback without `--insecure`, or a file cannot be used.
    pub fn open(
        &self,
        role: PeerRole,
        listen: SocketAddr,
        admin: SocketAddr,
        exposed_parent: Option<&str>,
    ) -> Result<Opened, SecurityError> {
        let mut opened = self.open_ports(role, &[("--listen", listen)], admin)?;
        if self.tokens.is_none() && !self.admin_open_on_loopback {
            tracing::warn!(
                "the admin port answers no command, the kill switch included: give --tokens FILE, or \
                 --admin-open-on-loopback to accept programs on this machine"
            );
        }
        if let Some(parent) = exposed_parent.filter(|_| self.insecure) {
            opened.plaintext.push(format!("--controller {parent}"));
        }
        opened.warn_of_plaintext();
        Ok(opened)
    }

    /// Checks the flags of a process with this role and these ports in addition to its admin port, and
    /// reads their files. For a process without a parent, or that checks the way to it itself. Does
    /// not warn of an admin port that refuses all commands. Blocks.
    ///
    /// # Errors
    /// As [`SecurityArgs::open`].
    pub fn open_without_parent(
        &self,
        role: PeerRole,
        ports: &[(&'static str, SocketAddr)],
        admin: SocketAddr,
    ) -> Result<Opened, SecurityError> {
        let opened = self.open_ports(role, ports, admin)?;
        opened.warn_of_plaintext();
        Ok(opened)
    }

    fn open_ports(
        &self,
        role: PeerRole,
        ports: &[(&'static str, SocketAddr)],
        admin: SocketAddr,
    ) -> Result<Opened, SecurityError> {
        let certificates = self.certificates(role)?;
        let is_beyond = |address: &SocketAddr| !is_loopback(address.ip());
        let mut plaintext = Vec::new();
        if certificates.is_none() {
            let ports = ports.iter().copied().chain([("--admin", admin)]);
            for (flag, address) in ports.filter(|(_, address)| is_beyond(address)) {
                if !self.insecure {
                    return Err(SecurityError::Plaintext { flag, address });
                }
                plaintext.push(format!("{flag} {address}"));
            }
        }
        let tokens = self.tokens.as_deref().map(TokenFile::open).transpose()?;
        let access = Access::new(Rules {
            certificates: certificates.clone().filter(|_| is_beyond(&admin)),
            tokens,
            open_on_loopback: self.admin_open_on_loopback,
            metrics_need_token: self.metrics_need_token,
        });
        Ok(Opened {
            access,
            certificates,
            plaintext,
        })
    }

    fn certificates(&self, role: PeerRole) -> Result<Option<Certificates>, SecurityError> {
        let Some(directory) = &self.certs else {
            return Ok(None);
        };
        let certificates = Certificates::open(directory)?;
        match certificates.check_role(role) {
            Ok(()) => Ok(Some(certificates)),
            Err(RoleError::Invalid(error)) => Err(error.into()),
            Err(RoleError::Other {
                certificate: found,
                expected,
            }) => Err(SecurityError::OtherIdentity {
                directory: directory.clone(),
                found,
                expected,
            }),
        }
    }
}

impl Opened {
    /// Returns the rules of the admin port.
    pub const fn access(&self) -> &Access {
        &self.access
    }

    /// Returns the certificates for the gRPC port; `None` for plaintext.
    pub const fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    fn warn_of_plaintext(&self) {
        if !self.plaintext.is_empty() {
            tracing::warn!(
                plaintext = self.plaintext.join(", "),
                "plaintext beyond loopback, by --insecure: every host on the way can read and change what is sent, and \
                 every host that reaches a port can use it; give --certs in place of it"
            );
        }
    }

    /// Returns the protection of a port: plaintext on loopback or without certificates, or else `with`.
    pub fn protection(
        &self,
        listen: SocketAddr,
        with: fn(Certificates) -> Protection,
    ) -> Protection {
        let certificates = self.certificates.clone();
        let certificates = certificates.filter(|_| !is_loopback(listen.ip()));
        certificates.map_or(Protection::Plain, with)
    }

    /// Follows the files. Never ends.
    pub async fn follow(self) {
        let certificates = async {
            if let Some(certificates) = &self.certificates {
                certificates.follow().await;
            }
        };
        let tokens = async {
            if let Some(tokens) = self.access.tokens() {
                tokens.follow().await;
            }
        };
        tokio::join!(certificates, tokens);
    }

    /// Returns the state for `/status`.
    pub fn status(&self) -> SecurityStatus {
        SecurityStatus::of(self, SystemTime::now())
    }
}
