//! `plimsoll certs`: a development CA, the certificates that it issues, and the check of certificates of any CA.

mod authority;
mod certificate;
mod check;
mod files;
mod init;
mod issue;

use std::process::ExitCode;

use clap::Subcommand;

/// Issue certificates for development, and check certificates of any CA
///
/// In production let cert-manager or SPIRE issue: they renew certificates and keep the key of the CA from the machines
/// that run Plimsoll.
#[derive(Debug, Subcommand)]
#[command(after_long_help = "\
Examples:
  plimsoll certs init --dir ca
  plimsoll certs issue controller --ca ca --out certs/controller
  plimsoll certs issue aggregator --zone eu-1a --ca ca --out certs/aggregator
  plimsoll certs issue service --zone eu-1a --service checkout --ca ca --out certs/checkout
  plimsoll certs issue quota --host quota.example --ca ca --out certs/quota
  plimsoll certs check certs/checkout

Exit code 0: done; 1: a certificate is not valid now, or a file cannot be written; 2: invalid arguments or files.")]
pub(crate) enum CertsCommand {
    /// Make a CA for development
    Init(init::InitArgs),
    /// Issue a certificate that is signed by the CA for development
    #[command(subcommand)]
    Issue(issue::IssueCommand),
    /// Check a directory of certificates as a tier would load it
    Check(check::CheckArgs),
}

pub(crate) fn run(command: &CertsCommand) -> anyhow::Result<ExitCode> {
    match command {
        CertsCommand::Init(args) => init::run(args)?,
        CertsCommand::Issue(command) => issue::run(command)?,
        CertsCommand::Check(args) => return check::run(args),
    }
    Ok(ExitCode::SUCCESS)
}
