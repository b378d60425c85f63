//! `plimsoll certs check`: loads a directory of certificates as a tier does.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use clap::{Args, ValueHint};
use humantime::format_rfc3339_seconds;
use plimsoll_tls::{Certificates, Health};
use serde::Serialize;

use super::files::{CERTIFICATE, KEY};
use crate::cmd::{exit_code, unusable};
use crate::output::OutputArgs;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Verifies that the files are readable, the key belongs to the certificate, its chain leads to
ca.crt, its identity and its validity, and warns of a key that all users can read.

Exit code 0: a tier works with it; 1: it is not valid now; 2: a tier does not start with it.")]
pub(crate) struct CheckArgs {
    /// Directory with tls.crt, tls.key and ca.crt, as --certs takes it
    #[arg(env = "PLIMSOLL_CERTS", value_name = "DIR", value_hint = ValueHint::DirPath)]
    dir: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

/// Result of a check, in the form for scripts.
#[derive(Debug, Default, Serialize)]
struct Findings {
    valid: bool,
    identity: String,
    faults: Vec<String>,
    warnings: Vec<String>,
}

pub(super) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let certificates = Certificates::open(&args.dir).map_err(unusable)?;
    let mut findings = Findings {
        identity: certificates.id().to_string(),
        ..Findings::default()
    };
    findings.note_validity(&args.dir, &certificates.health(), SystemTime::now());
    if certificates.is_key_public() {
        let key = args.dir.join(KEY);
        let key = key.display();
        findings.warnings.push(format!(
            "all users have access to {key}: run `chmod 600 {key}`"
        ));
    }
    findings.valid = findings.faults.is_empty();
    args.output
        .print(&findings, |out| findings.write_text(out))?;
    Ok(exit_code(findings.valid))
}

impl Findings {
    /// Notes that a certificate is not valid now, or will not be soon.
    fn note_validity(&mut self, directory: &Path, health: &Health, now: SystemTime) {
        let place = directory.join(CERTIFICATE);
        let (place, end) = (place.display(), format_rfc3339_seconds(health.not_after));
        if health.is_expired(now) {
            self.faults
                .push(format!("{place} expired at {end}: renew it"));
        } else if health.not_before > now {
            let begin = format_rfc3339_seconds(health.not_before);
            self.faults.push(format!(
                "{place} becomes valid at {begin}: compare the clock of this machine with that of the CA"
            ));
        } else if health.is_ending(now) {
            self.warnings.push(format!(
                "{place} ends at {end}, and less than a quarter of its validity is left: renew it"
            ));
        }
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.identity)?;
        for fault in &self.faults {
            writeln!(out, "error: {fault}")?;
        }
        for warning in &self.warnings {
            writeln!(out, "warning: {warning}")?;
        }
        if self.valid {
            writeln!(out, "valid")?;
        }
        Ok(())
    }
}
