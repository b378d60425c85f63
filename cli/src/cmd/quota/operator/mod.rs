//! `plimsoll quota get | list | reset | top`: shows the buckets of a quota server, and makes them full again.

mod answers;
mod key;

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueHint};
use plimsoll_quota::admin::api::{
    Buckets, GET, LIST, PAGE_DEFAULT, PAGE_MAX, RESET, Reset, ResetDone, TOP, TOP_DEFAULT, TOP_MAX, Top,
};
use serde::de::DeserializeOwned;

use self::key::{KeyArgs, check_escapes, route};
use crate::admin_client::{
    Address, AdminError, OperatorArgs, QUOTA, Request, parse_quota_server, send_to_first_reachable,
};
use crate::output::OutputArgs;
use crate::shutdown;

/// The hint of a request that no quota server answers.
const UNREACHABLE: &str = "give the admin port of the quota server with --server URL: http://127.0.0.1:PORT on its own \
                           machine if it is not 7432, https://HOST:7432 from another";
/// The buckets of one list, at most.
const LIST_MAX: u64 = 100_000;

/// The commands of operators.
#[derive(Debug, Subcommand)]
pub(crate) enum QuotaCommand {
    /// Show the buckets of a key, or those of a tenant: the tokens that are left, and the next refill
    ///
    /// Times are in UTC, by the clock of the server. Exit code 0: shown; 1: no such bucket, refused, or no server
    /// answers; 2: invalid arguments.
    Get {
        #[command(flatten)]
        key: KeyArgs,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// List buckets in the order of their keys
    List {
        /// Beginning of the keys
        #[arg(long, env = "PLIMSOLL_PREFIX", value_name = "TEXT", default_value = "", value_parser = check_escapes, hide_default_value = true)]
        prefix: String,
        /// Maximum of buckets
        #[arg(long, env = "PLIMSOLL_LIST_LIMIT", value_name = "N", default_value_t = PAGE_DEFAULT as u64, value_parser = clap::value_parser!(u64).range(1..=LIST_MAX))]
        limit: u64,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Make the buckets of a key, or those of a tenant, full again
    ///
    /// The reset is on disk when the command ends, and the log of the server names who ordered it. Services that
    /// remember a refusal ask again within 5 s; leases that they hold stay theirs. Exit code 0: done; 1: no such
    /// bucket, refused, or no server answers; 2: invalid arguments.
    Reset {
        #[command(flatten)]
        key: KeyArgs,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Show the keys that are asked for and refused most often
    ///
    /// Counts halve each minute, and are those of the buckets in memory.
    Top {
        /// Maximum of keys in each table
        #[arg(long, env = "PLIMSOLL_TOP_LIMIT", value_name = "N", default_value_t = TOP_DEFAULT as u64, value_parser = clap::value_parser!(u64).range(1..=TOP_MAX as u64))]
        limit: u64,
        #[command(flatten)]
        server: ServerArgs,
    },
}

/// The quota server to send a request to, the credentials of the operator, and the format of the output.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Admin port of the quota server
    #[arg(long = "server", env = "PLIMSOLL_QUOTA_SERVER", value_name = "URL", default_value = QUOTA, value_hint = ValueHint::Url, value_parser = parse_quota_server)]
    address: Address,
    #[command(flatten)]
    operator: OperatorArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl ServerArgs {
    fn send<T: DeserializeOwned>(&self, request: &Request) -> anyhow::Result<T> {
        let operator = self.operator.open().map_err(AdminError::Unsent)?;
        let addresses = std::slice::from_ref(&self.address);
        let answer = send_to_first_reachable(&operator, addresses, request, UNREACHABLE);
        Ok(shutdown::runtime()?.block_on(answer)?.body)
    }

    /// Reads the buckets whose keys begin with `prefix`, page by page.
    fn list(&self, prefix: &str, limit: usize) -> anyhow::Result<Buckets> {
        let mut listed = Buckets::default();
        loop {
            let page = (limit - listed.buckets.len()).min(PAGE_MAX).to_string();
            let mut query = vec![("prefix", prefix), ("limit", &page)];
            query.extend(listed.next.as_deref().map(|after| ("after", after)));
            let page: Buckets = self.send(&Request::get(route(LIST, &query)))?;
            let is_empty = page.buckets.is_empty();
            listed.buckets.extend(page.buckets);
            listed.next = page.next;
            if listed.next.is_none() || is_empty || listed.buckets.len() >= limit {
                return Ok(listed);
            }
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The server refuses or cannot be reached, or its answer cannot be printed.
pub(crate) fn run(command: &QuotaCommand) -> anyhow::Result<ExitCode> {
    match command {
        QuotaCommand::Get { key, server } => {
            let buckets: Buckets = match key.wanted()? {
                Reset::Key(key) => server.send(&Request::get(route(GET, &[("key", &key)])))?,
                Reset::Prefix(prefix) => {
                    let found = server.list(&prefix, PAGE_MAX)?;
                    anyhow::ensure!(
                        !found.buckets.is_empty(),
                        "no bucket begins with `{prefix}`: the tenant was never counted, or its buckets have long \
                         been full again"
                    );
                    found
                }
            };
            server.output.print(&buckets, |out| answers::write_buckets(out, &buckets))?;
        }
        QuotaCommand::List { prefix, limit, server } => {
            let buckets = server.list(prefix, usize::try_from(*limit)?)?;
            server.output.print(&buckets, |out| answers::write_buckets(out, &buckets))?;
        }
        QuotaCommand::Reset { key, server } => {
            let wanted = key.wanted()?;
            let done: ResetDone = server.send(&Request::post(RESET, &wanted)?)?;
            server.output.print(&done, |out| answers::write_reset(out, &wanted, done))?;
        }
        QuotaCommand::Top { limit, server } => {
            let top: Top = server.send(&Request::get(route(TOP, &[("limit", &limit.to_string())])))?;
            server.output.print(&top, |out| answers::write_top(out, &top))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
