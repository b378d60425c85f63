//! What a controller keeps: `plimsoll state copy` moves it between a directory and a store, and [`history`] reads and
//! writes its traffic.

pub(crate) mod history;

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use clap::{Args, Subcommand};
use plimsoll_controller::members::{StatePlace, StoreAccess, StoreAddress, copy};
use serde::Serialize;

use crate::cmd::unusable;
use crate::output::OutputArgs;
use crate::shutdown;

/// Move the state of a controller between a directory and a store
#[derive(Debug, Subcommand)]
pub(crate) enum StateCommand {
    /// Copy epoch, policy in force, kills, stages and history; the audit log stays where it is
    Copy(CopyArgs),
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Every controller must be stopped: each place is refused while one uses it, and a place with a state is never written to.
Exit code 0: copied; 1: refused, or the store does not answer; 2: invalid arguments.

Examples:
  plimsoll state copy /var/lib/plimsoll etcd://a:2379,b:2379,c:2379/plimsoll
  plimsoll state copy etcd://a:2379/plimsoll ./plimsoll-state")]
pub(crate) struct CopyArgs {
    /// State directory, or URL of a store, to copy from
    #[arg(env = "PLIMSOLL_COPY_FROM", value_name = "FROM")]
    from: Place,
    /// State directory, or URL of a store, to copy to; without a state
    #[arg(env = "PLIMSOLL_COPY_TO", value_name = "TO")]
    to: Place,
    #[command(flatten)]
    access: StoreAccess,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Debug)]
enum Place {
    Directory(PathBuf),
    Store(StoreAddress),
}

#[derive(Debug, Serialize)]
struct Copied {
    /// The epoch of the state; the next leader begins a later one.
    epoch: u64,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains("://") {
            let address = text.parse::<StoreAddress>();
            return address.map(Self::Store).map_err(|error| error.to_string());
        }
        Ok(Self::Directory(text.into()))
    }
}

impl Place {
    fn open(&self, access: &StoreAccess) -> anyhow::Result<StatePlace> {
        Ok(match self {
            Self::Directory(path) => StatePlace::Directory(path.clone()),
            Self::Store(address) => StatePlace::Store(access.client(address).map_err(unusable)?),
        })
    }
}

/// Copies a state.
///
/// # Errors
/// As `--help` says.
pub(crate) fn run(StateCommand::Copy(args): &StateCommand) -> anyhow::Result<ExitCode> {
    let epoch = shutdown::runtime()?.block_on(async {
        let (from, to) = (args.from.open(&args.access)?, args.to.open(&args.access)?);
        let copied = tokio::spawn(copy(from, to)).await?;
        anyhow::Ok(copied?)
    })?;
    let copied = Copied { epoch };
    args.output.report(&copied, |out| {
        writeln!(out, "copied: the state of epoch {epoch}, and its history")
    })
}
