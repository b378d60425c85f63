//! `plimsoll certs show`: identity, issuer, validity and names of certificates, and never a key.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::{Args, ValueHint};
use plimsoll_core::exchange::PeerId;
use serde::Serialize;

use super::certificate::{Certificate, parse_chain};
use super::files::{CA_CERTIFICATE, CERTIFICATE, read_text};
use crate::cmd::credentials::unusable;
use crate::output::OutputArgs;

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// PEM file with certificates, or directory with tls.crt or ca.crt
    #[arg(env = "PLIMSOLL_CERTS", value_name = "FILE_OR_DIR", value_hint = ValueHint::AnyPath)]
    path: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

/// A certificate in the form that scripts read.
#[derive(Debug, Serialize)]
struct Shown {
    file: String,
    /// The identity of a process; absent in the certificate of a CA.
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<String>,
    ca: bool,
    subject: String,
    issuer: String,
    not_before: String,
    not_after: String,
    /// Negative once it has expired.
    seconds_left: i64,
    names: Vec<String>,
    sha256: String,
}

pub(super) fn run(args: &ShowArgs) -> anyhow::Result<()> {
    let now = SystemTime::now();
    let mut shown = Vec::new();
    for path in files(&args.path)? {
        let text =
            read_text(&path, "give a PEM file with certificates, or a directory with tls.crt or ca.crt")?;
        for der in parse_chain(&path, &text)? {
            let certificate = Certificate::parse(&der, &path)?;
            shown.push(Shown::new(&path, certificate, now));
        }
    }
    args.output.print(&shown, |out| shown.iter().try_for_each(|certificate| certificate.write_text(out)))
}

/// The files to show: the path itself, or those of a directory.
fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let names = [CERTIFICATE, CA_CERTIFICATE].map(|name| path.join(name));
    let found: Vec<PathBuf> = names.into_iter().filter(|path| path.exists()).collect();
    if found.is_empty() {
        return Err(unusable(format_args!(
            "{} has neither {CERTIFICATE} nor {CA_CERTIFICATE}: give a directory as `plimsoll certs issue` writes it",
            path.display()
        )));
    }
    Ok(found)
}

impl Shown {
    fn new(path: &Path, certificate: Certificate, now: SystemTime) -> Self {
        let identity = certificate.uris().find(|uri| uri.parse::<PeerId>().is_ok()).map(str::to_owned);
        let left = match certificate.not_after.duration_since(now) {
            Ok(left) => i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            Err(over) => -i64::try_from(over.duration().as_secs()).unwrap_or(i64::MAX).max(1),
        };
        Self {
            file: path.display().to_string(),
            identity,
            ca: certificate.is_ca,
            subject: certificate.subject,
            issuer: certificate.issuer,
            not_before: humantime::format_rfc3339_seconds(certificate.not_before).to_string(),
            not_after: humantime::format_rfc3339_seconds(certificate.not_after).to_string(),
            seconds_left: left,
            names: certificate.names,
            sha256: certificate.fingerprint,
        }
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let span = humantime::format_duration(Duration::from_secs(self.seconds_left.unsigned_abs()));
        let state =
            if self.seconds_left < 0 { format!("expired {span} ago") } else { format!("{span} left") };
        let kind = if self.ca { "CA" } else { "none: no tier accepts it" };
        writeln!(out, "{}", self.file)?;
        writeln!(out, "  identity   {}", self.identity.as_deref().unwrap_or(kind))?;
        writeln!(out, "  subject    {}", self.subject)?;
        writeln!(out, "  issuer     {}", self.issuer)?;
        writeln!(out, "  valid      {} to {}, {state}", self.not_before, self.not_after)?;
        writeln!(out, "  names      {}", self.names.join(", "))?;
        writeln!(out, "  sha256     {}", self.sha256)
    }
}
