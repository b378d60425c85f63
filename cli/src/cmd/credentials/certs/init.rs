//! `plimsoll certs init`: makes a development CA.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, ValueHint};

use super::authority::{check_trust_domain, create};
use super::files::{CA_CERTIFICATE, CA_KEY, PUBLIC, SECRET, create_directory, write};
use crate::cmd::unusable;
use crate::output;

const DAY: Duration = Duration::from_secs(86_400);

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Directory of the CA: ca.crt, which every tier gets, and ca.key, which stays there
    #[arg(long, env = "PLIMSOLL_CA_DIR", value_name = "DIR", value_hint = ValueHint::DirPath)]
    dir: PathBuf,
    /// Trust domain of the fleet: the first part of every identity
    #[arg(long, env = "PLIMSOLL_TRUST_DOMAIN", value_name = "NAME", default_value = "plimsoll.local", value_parser = check_trust_domain)]
    trust_domain: String,
    /// Days for which the CA is valid
    #[arg(long, env = "PLIMSOLL_DAYS", value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    days: u32,
    /// Replace a CA that is there: processes that know the new one refuse certificates of the old one
    #[arg(long, env = "PLIMSOLL_FORCE")]
    force: bool,
}

pub(super) fn run(args: &InitArgs) -> anyhow::Result<()> {
    let (certificate, key) = (args.dir.join(CA_CERTIFICATE), args.dir.join(CA_KEY));
    for path in [&key, &certificate] {
        if !args.force && path.symlink_metadata().is_ok() {
            return Err(unusable(format_args!(
                "{} exists and is not overwritten: give another --dir, or --force to replace the CA, which then \
                 has to issue all certificates again",
                path.display()
            )));
        }
    }
    let authority = create(&args.trust_domain, DAY * args.days, SystemTime::now())?;
    create_directory(&args.dir)?;
    write(&key, &authority.key, SECRET)?;
    write(&certificate, &authority.certificate, PUBLIC)?;
    let (domain, days) = (&args.trust_domain, args.days);
    let (certificate, key, dir) = (certificate.display(), key.display(), args.dir.display());
    let mut out = output::stdout();
    writeln!(
        out,
        "CA for development, trust domain {domain}, valid for {days} days"
    )?;
    writeln!(out, "  {certificate}  for every tier and operator")?;
    writeln!(
        out,
        "  {key}  secret: whoever has it can issue every identity of the fleet"
    )?;
    writeln!(
        out,
        "next: plimsoll certs issue controller --ca {dir} --out DIR"
    )?;
    Ok(())
}
