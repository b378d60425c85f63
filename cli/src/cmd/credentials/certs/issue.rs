//! `plimsoll certs issue`: signs the certificate of a controller, an aggregator, a service or a
//! quota server, and writes the directory for `--certs`.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand, ValueHint};
use plimsoll_core::exchange::{PeerId, PeerRole};
use plimsoll_core::names::{Name, Zone};
use plimsoll_tls::rustls::pki_types::ServerName;
use rcgen::SanType;

use super::authority::{Authority, check_trust_domain};
use super::certificate::{Certificate, parse_chain};
use super::files::{
    CA_CERTIFICATE, CA_KEY, CERTIFICATE, KEY, PUBLIC, SECRET, create_directory, read_text, write,
};
use crate::cmd::{parse_time, unusable};
use crate::output;

const LIFETIME_MIN: Duration = Duration::from_secs(1);
const LIFETIME_MAX: Duration = Duration::from_secs(366 * 86_400);

#[derive(Debug, Subcommand)]
pub(crate) enum IssueCommand {
    /// Certificate of a controller
    Controller {
        #[command(flatten)]
        files: FileArgs,
    },
    /// Certificate of the aggregators of a zone
    Aggregator {
        /// Zone of the aggregators, as their --zone
        #[arg(long, env = "PLIMSOLL_ZONE", value_name = "NAME")]
        zone: Zone,
        #[command(flatten)]
        files: FileArgs,
    },
    /// Certificate of the instances of a service in a zone
    Service {
        /// Zone of the instances
        #[arg(long, env = "PLIMSOLL_ZONE", value_name = "NAME")]
        zone: Zone,
        /// Name of the service
        #[arg(long, env = "PLIMSOLL_SERVICE", value_name = "NAME")]
        service: Name,
        #[command(flatten)]
        files: FileArgs,
    },
    /// Certificate of a quota server. Clients compare the host name that they connect to: give it with --host
    Quota {
        #[command(flatten)]
        files: FileArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct FileArgs {
    /// Directory of the CA, as `plimsoll certs init` makes it
    #[arg(long, env = "PLIMSOLL_CA_DIR", value_name = "DIR", value_hint = ValueHint::DirPath)]
    ca: PathBuf,
    /// Directory for tls.crt, tls.key and ca.crt, as --certs takes it. Run the command again to renew them: a
    /// running process takes the new ones by itself
    #[arg(long, env = "PLIMSOLL_OUT", value_name = "DIR", value_hint = ValueHint::DirPath)]
    out: PathBuf,
    /// DNS name or IP address, for tools that compare it such as curl and Prometheus; repeat it for several.
    /// Controllers, aggregators and services themselves compare identities
    #[arg(long = "host", env = "PLIMSOLL_HOSTS", value_name = "NAME_OR_IP", value_delimiter = ',', default_values = ["localhost", "127.0.0.1", "::1"], value_parser = parse_host)]
    hosts: Vec<SanType>,
    /// Time for which the certificate is valid, such as 24h or 7d
    #[arg(long, env = "PLIMSOLL_LIFETIME", value_name = "TIME", default_value = "24h", value_parser = parse_lifetime)]
    lifetime: Duration,
    /// Trust domain; that of the CA by default
    #[arg(long, env = "PLIMSOLL_TRUST_DOMAIN", value_name = "NAME", value_parser = check_trust_domain)]
    trust_domain: Option<String>,
}

fn parse_host(text: &str) -> Result<SanType, String> {
    let invalid = || format!("`{text}` is neither a DNS name nor an IP address");
    match ServerName::try_from(text).map_err(|_| invalid())? {
        ServerName::IpAddress(address) => Ok(SanType::IpAddress(std::net::IpAddr::from(address))),
        _ => text.try_into().map(SanType::DnsName).map_err(|_| invalid()),
    }
}

fn parse_lifetime(text: &str) -> Result<Duration, String> {
    parse_time(
        text,
        "24h",
        |lifetime| (LIFETIME_MIN..=LIFETIME_MAX).contains(lifetime),
        "give 1s to 366d; a short one is safer, because a certificate cannot be revoked",
    )
}

pub(super) fn run(command: &IssueCommand) -> anyhow::Result<()> {
    let (role, files) = match command {
        IssueCommand::Controller { files } => (PeerRole::Controller, files),
        IssueCommand::Quota { files } => (PeerRole::Quota, files),
        IssueCommand::Aggregator { zone, files } => {
            (PeerRole::Aggregator { zone: zone.clone() }, files)
        }
        IssueCommand::Service {
            zone,
            service,
            files,
        } => (
            PeerRole::Service {
                zone: zone.clone(),
                service: service.clone(),
            },
            files,
        ),
    };
    files.issue(role, SystemTime::now())
}

impl FileArgs {
    fn issue(&self, role: PeerRole, now: SystemTime) -> anyhow::Result<()> {
        let authority = Authority::open(&self.ca)?;
        let trust_domain =
            self.trust_domain.as_ref().or(authority.trust_domain.as_ref()).ok_or_else(|| {
                unusable(
                    "the CA names no trust domain (a URI name spiffe://NAME): give it with --trust-domain",
                )
            })?;
        let id = PeerId::new(trust_domain, role).map_err(unusable)?;
        self.check(&authority, &id, now)?;
        let issued = authority.issue(&id, &self.hosts, self.lifetime, now)?;
        create_directory(&self.out)?;
        write(&self.out.join(CA_CERTIFICATE), &authority.bundle, PUBLIC)?;
        write(&self.out.join(KEY), &issued.key, SECRET)?;
        write(&self.out.join(CERTIFICATE), &issued.certificate, PUBLIC)?;
        let (out, lifetime) = (
            self.out.display(),
            humantime::format_duration(self.lifetime),
        );
        writeln!(
            output::stdout(),
            "issued {id} for {lifetime}; use it with --certs {out}"
        )?;
        Ok(())
    }

    fn check(&self, authority: &Authority, id: &PeerId, now: SystemTime) -> anyhow::Result<()> {
        let key = self.out.join(CA_KEY);
        if key.exists() {
            return Err(unusable(format_args!(
                "{} is the key of a CA: give a directory of its own to the process with --out",
                key.display()
            )));
        }
        if let Some(held) = self.held_id().filter(|held| held != id) {
            return Err(unusable(format_args!(
                "{} has the certificate of {held}: give {id} a directory of its own with --out, or remove \
                 {CERTIFICATE} to replace it",
                self.out.display()
            )));
        }
        if now + self.lifetime > authority.not_after {
            return Err(unusable(format_args!(
                "the CA in {} ends at {}, before the certificate would: give a shorter --lifetime, or make a new \
                 CA with `plimsoll certs init`",
                self.ca.display(),
                humantime::format_rfc3339_seconds(authority.not_after)
            )));
        }
        Ok(())
    }

    /// Identity in the replaced files. Damaged files have none.
    fn held_id(&self) -> Option<PeerId> {
        let path = self.out.join(CERTIFICATE);
        let chain = parse_chain(&path, &read_text(&path, "").ok()?).ok()?;
        let held = Certificate::parse(chain.first()?, &path).ok()?;
        held.uris.iter().find_map(|uri| uri.parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_name_or_address() {
        let dns = |name: &str| SanType::DnsName(name.try_into().unwrap());
        let address = |address: &str| SanType::IpAddress(address.parse().unwrap());
        for (text, expected) in [
            ("localhost", dns("localhost")),
            (
                "controller.plimsoll.svc.cluster.local",
                dns("controller.plimsoll.svc.cluster.local"),
            ),
            ("10.1.2.3", address("10.1.2.3")),
            ("::1", address("::1")),
        ] {
            assert_eq!(parse_host(text), Ok(expected), "{text}");
        }
        for bad in ["", "a b", "https://a", "a:7401", "[::1]", "*", "ä", "-a"] {
            let error = parse_host(bad).unwrap_err();
            assert!(
                error.contains("neither a DNS name nor an IP address"),
                "{bad}: {error}"
            );
        }
    }

    #[test]
    fn lifetime_has_bounds() {
        for (text, seconds) in [
            ("1s", 1),
            ("24h", 86_400),
            ("7d", 604_800),
            ("366d", 366 * 86_400),
        ] {
            assert_eq!(
                parse_lifetime(text),
                Ok(Duration::from_secs(seconds)),
                "{text}"
            );
        }
        for bad in ["", "24", "-1h", "0s", "367d", "99999999999d"] {
            assert!(parse_lifetime(bad).is_err(), "{bad}");
        }
    }
}
