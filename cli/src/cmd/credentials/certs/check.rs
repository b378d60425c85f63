//! `plimsoll certs check`: loads a directory of certificates as a tier does, and lets two directories shake hands in
//! memory, by the code of the tiers.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use clap::{Args, ValueHint};
use plimsoll_core::exchange::PeerRole;
use plimsoll_core::exchange::authority::check_parent;
use plimsoll_tls::rustls::pki_types::ServerName;
use plimsoll_tls::{Certificates, Health, accept, connect};
use serde::Serialize;

use super::files::{CERTIFICATE, KEY};
use crate::cmd::credentials::unusable;
use crate::output::OutputArgs;
use crate::shutdown;

/// The room for one direction of a handshake in memory, above the size of any.
const HANDSHAKE_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Verifies that the files are readable, the key belongs to the certificate, its chain leads to
ca.crt, its identity and its validity, and warns of a key that all users can read. With --peer it
tries a handshake between both directories as well, and whether one may be the parent of the other.

Exit code 0: a tier works with it; 1: it is not valid now, or the two refuse one another;
2: a tier does not start with it.")]
pub(super) struct CheckArgs {
    /// Directory with tls.crt, tls.key and ca.crt, as --certs takes it
    #[arg(env = "PLIMSOLL_CERTS", value_name = "DIR", value_hint = ValueHint::DirPath)]
    dir: PathBuf,
    /// Directory of a parent or child that it shall be accepted by
    #[arg(long, env = "PLIMSOLL_PEER_CERTS", value_name = "DIR", value_hint = ValueHint::DirPath)]
    peer: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// The result of a check, in the form that scripts read.
#[derive(Debug, Default, Serialize)]
struct Findings {
    valid: bool,
    identities: Vec<String>,
    faults: Vec<String>,
    warnings: Vec<String>,
}

pub(super) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let now = SystemTime::now();
    let mut findings = Findings::default();
    let own = findings.open(&args.dir, now)?;
    if let Some(peer) = &args.peer {
        let peer = findings.open(peer, now)?;
        shutdown::runtime()?.block_on(findings.pair(&own, &peer));
    }
    findings.valid = findings.faults.is_empty();
    args.output.print(&findings, |out| findings.write_text(out))?;
    Ok(if findings.valid { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Findings {
    /// Loads a directory, and notes what will go wrong later.
    fn open(&mut self, directory: &Path, now: SystemTime) -> anyhow::Result<Certificates> {
        let certificates = Certificates::open(directory).map_err(unusable)?;
        self.identities.push(certificates.id().to_string());
        self.note_validity(directory, &certificates.health(), now);
        if certificates.is_key_public() {
            let key = directory.join(KEY);
            let key = key.display();
            self.warnings.push(format!("all users have access to {key}: run `chmod 600 {key}`"));
        }
        Ok(certificates)
    }

    /// Notes that a certificate is not valid now, or will not be soon.
    fn note_validity(&mut self, directory: &Path, health: &Health, now: SystemTime) {
        let (place, Health { not_before, not_after, .. }) = (directory.join(CERTIFICATE), health);
        let (place, end) = (place.display(), humantime::format_rfc3339_seconds(*not_after));
        if health.is_expired(now) {
            self.faults.push(format!("{place} expired at {end}: renew it"));
        } else if *not_before > now {
            let begin = humantime::format_rfc3339_seconds(*not_before);
            self.faults.push(format!(
                "{place} becomes valid at {begin}: compare the clock of this machine with that of the CA"
            ));
        } else if health.is_ending(now) {
            self.warnings.push(format!(
                "{place} ends at {end}, and less than a quarter of its validity is left: renew it"
            ));
        }
    }

    /// Notes why two processes with these certificates would refuse one another.
    async fn pair(&mut self, own: &Certificates, peer: &Certificates) {
        let (one, other) = (own.id(), peer.id());
        let pairs = [(own, peer, check_parent(&one, &other)), (peer, own, check_parent(&other, &one))];
        if let [(.., Err(error)), (.., Err(reverse))] = &pairs {
            let is_parent = matches!(one.role(), PeerRole::Controller | PeerRole::Quota);
            self.faults.push(if is_parent { reverse.to_string() } else { error.to_string() });
        }
        for (child, parent, allowed) in pairs {
            if allowed.is_ok() {
                self.shake_hands(child, parent).await;
            }
        }
    }

    async fn shake_hands(&mut self, child: &Certificates, parent: &Certificates) {
        let (near, far) = tokio::io::duplex(HANDSHAKE_BYTES_MAX);
        // Names of hosts are not compared.
        let Ok(name) = ServerName::try_from("plimsoll") else { return };
        let (connected, accepted) =
            tokio::join!(connect(child.child(), name, near), accept(parent.mutual_server(), far));
        let failures = [(child, connected.err()), (parent, accepted.err())];
        for (end, failure) in failures {
            self.faults.extend(failure.map(|failure| format!("{}: {failure}", end.directory().display())));
        }
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        self.identities.iter().try_for_each(|identity| writeln!(out, "{identity}"))?;
        self.faults.iter().try_for_each(|fault| writeln!(out, "error: {fault}"))?;
        self.warnings.iter().try_for_each(|warning| writeln!(out, "warning: {warning}"))?;
        match (self.valid, self.identities.len()) {
            (false, _) => Ok(()),
            (true, 1) => writeln!(out, "valid"),
            (true, _) => writeln!(out, "valid: each accepts the other"),
        }
    }
}
