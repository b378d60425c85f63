//! `plimsoll quota`: runs a quota server, or shows and resets the buckets of one.

pub(crate) mod operator;

use clap::Args;

use self::operator::QuotaCommand;

/// Run a quota server, which holds exact token buckets behind the Redis protocol, or ask one
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct QuotaArgs {
    /// The command to a quota server; without it, one runs.
    #[command(subcommand)]
    pub(crate) command: Option<QuotaCommand>,
    /// The arguments of the server.
    #[command(flatten)]
    pub(crate) server: plimsoll_quota::Args,
}
