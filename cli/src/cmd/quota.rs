//! `plimsoll quota`: runs a quota server, or shows and resets the buckets of one.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use clap::{Args, Subcommand, ValueHint};
use plimsoll_controller::events::{Event, QUOTA_RESET, QuotaReset};
use plimsoll_quota::admin::api::{
    BucketStatus, Buckets, GET, Holds, LIST, PAGE_DEFAULT, PAGE_MAX, RESET, Reset, ResetDone, TOP,
    TOP_DEFAULT, TOP_MAX, Top, TopKey,
};
use plimsoll_quota::admin::key_text::unescape;
use plimsoll_tls::Tier;

use crate::admin_client::{
    Address, AdminArgs, AdminError, AdminPort, ControllerArgs, CredentialArgs, QUOTA,
};
use crate::output::{self, OutputArgs, counted, write_table};

const LIST_MAX: u64 = 100_000;
/// The last second of the year 9999.
const DATE_MAX_MS: u64 = 253_402_300_799_000;

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

/// The commands of operators.
#[derive(Debug, Subcommand)]
pub(crate) enum QuotaCommand {
    /// Show the bucket of a key: the tokens that are left, and the next refill
    ///
    /// Times are in UTC, by the clock of the server. Exit code 0: shown; 1: no such bucket, refused, or no server
    /// answers; 2: invalid arguments.
    Get {
        /// Key as `plimsoll quota list` shows it, such as {acme}:api_calls
        #[arg(env = "PLIMSOLL_QUOTA_KEY", value_parser = check_key)]
        key: String,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// List buckets in the order of their keys
    List {
        /// Beginning of the keys, such as {acme}: for all quotas of a tenant
        #[arg(long, env = "PLIMSOLL_PREFIX", value_name = "TEXT", default_value = "", value_parser = check_escapes, hide_default_value = true)]
        prefix: String,
        /// Maximum of buckets
        #[arg(long, env = "PLIMSOLL_LIST_LIMIT", value_name = "N", default_value_t = PAGE_DEFAULT as u64, value_parser = clap::value_parser!(u64).range(1..=LIST_MAX))]
        limit: u64,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Make the buckets of a key, or of all keys with a prefix, full again
    ///
    /// The reset is on disk when the command ends, and the log of the server names who ordered it. The controller is told,
    /// so that `plimsoll events` shows it, too. Services that remember a refusal ask again within 5 s; leases that they
    /// hold stay theirs. Exit code 0: done; 1: no such bucket, refused, or no server answers; 2: invalid arguments.
    Reset {
        /// Key as `plimsoll quota list` shows it, such as {acme}:api_calls
        #[arg(env = "PLIMSOLL_QUOTA_KEY", value_parser = check_key, required_unless_present = "prefix")]
        key: Option<String>,
        /// Beginning of the keys, such as {acme}: for all quotas of a tenant
        #[arg(long, env = "PLIMSOLL_PREFIX", value_name = "TEXT", value_parser = check_key, conflicts_with = "key")]
        prefix: Option<String>,
        #[command(flatten)]
        server: ServerAddress,
        #[command(flatten)]
        admin: AdminArgs,
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

/// The quota server to ask.
#[derive(Debug, Args)]
pub(crate) struct ServerAddress {
    /// Admin port of the quota server
    #[arg(id = "quota_server", long = "server", env = "PLIMSOLL_QUOTA_SERVER", value_name = "URL", default_value = QUOTA, value_hint = ValueHint::Url, value_parser = |text: &str| Address::parse(text, Tier::Quota))]
    address: Address,
}

/// The quota server to ask, the credentials of the operator, and the format of the output.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    server: ServerAddress,
    #[command(flatten)]
    credentials: CredentialArgs,
    #[command(flatten)]
    output: OutputArgs,
}

fn check_escapes(text: &str) -> Result<String, String> {
    unescape(text)
        .map(|_| text.to_owned())
        .map_err(|error| error.to_string())
}

fn check_key(text: &str) -> Result<String, String> {
    if text.is_empty() {
        Err("give at least one character".to_owned())
    } else {
        check_escapes(text)
    }
}

impl ServerArgs {
    fn port(&self) -> Result<AdminPort, AdminError> {
        AdminPort::new(&self.server.address, &self.credentials)
    }

    fn show(&self, buckets: &Buckets) -> anyhow::Result<ExitCode> {
        self.output
            .report(buckets, |out| write_buckets(out, buckets))
    }

    /// Reads the buckets of keys with `prefix`, page by page.
    fn list(&self, prefix: &str, limit: usize) -> anyhow::Result<Buckets> {
        let (port, mut listed) = (self.port()?, Buckets::default());
        loop {
            let page = (limit - listed.buckets.len()).min(PAGE_MAX).to_string();
            let after = listed.next.as_deref().map(|after| [("after", after)]);
            let request = port
                .get(LIST)
                .query(&[("prefix", prefix), ("limit", &page)])
                .query(&after);
            let page: Buckets = port.ask(request)?;
            let is_empty = page.buckets.is_empty();
            listed.buckets.extend(page.buckets);
            listed.next = page.next;
            if listed.next.is_none() || is_empty || listed.buckets.len() >= limit {
                return Ok(listed);
            }
        }
    }
}

pub(crate) fn run(command: &QuotaCommand) -> anyhow::Result<ExitCode> {
    match command {
        QuotaCommand::Get { key, server } => {
            let port = server.port()?;
            let buckets: Buckets = port.ask(port.get(GET).query(&[("key", key)]))?;
            server.show(&buckets)
        }
        QuotaCommand::List {
            prefix,
            limit,
            server,
        } => server.show(&server.list(prefix, usize::try_from(*limit)?)?),
        QuotaCommand::Reset {
            key,
            prefix,
            server,
            admin,
        } => {
            let controller = &admin.controller;
            let port = AdminPort::new(&server.address, &controller.credentials)?;
            let wanted = match (prefix, key) {
                (Some(prefix), _) => Reset::Prefix(prefix.clone()),
                (None, key) => Reset::Key(key.clone().unwrap_or_default()),
            };
            let done: ResetDone = port.ask(port.post(RESET, &wanted)?)?;
            let buckets = counted(done.buckets, "bucket");
            let code = admin
                .output
                .report(&done, |out| writeln!(out, "full again: {buckets}"))?;
            if let Err(error) = tell(controller, wanted, done.buckets) {
                let error = error.to_string();
                let cause = error.lines().next().unwrap_or_default();
                writeln!(output::stderr(), "not among the events: {cause}")?;
            }
            Ok(code)
        }
        QuotaCommand::Top { limit, server } => {
            let port = server.port()?;
            let top: Top = port.ask(port.get(TOP).query(&[("limit", limit)]))?;
            server.output.report(&top, |out| write_top(out, &top))
        }
    }
}

/// Tells the controller of a reset.
fn tell(controller: &ControllerArgs, reset: Reset, buckets: u64) -> anyhow::Result<()> {
    let (key, is_prefix) = match reset {
        Reset::Key(key) => (key, false),
        Reset::Prefix(prefix) => (prefix, true),
    };
    let reset = QuotaReset {
        key,
        is_prefix,
        buckets,
    };
    let port = controller.port()?;
    let _: Event = port.ask(port.post(QUOTA_RESET, &reset)?)?;
    Ok(())
}

fn write_buckets(out: &mut dyn Write, answer: &Buckets) -> io::Result<()> {
    if answer.buckets.is_empty() {
        return writeln!(out, "no buckets");
    }
    let headings = [
        "KEY",
        "LEFT",
        "MAX",
        "REFILL",
        "NEXT REFILL (UTC)",
        "FULL AT (UTC)",
    ];
    write_table(out, &headings, answer.buckets.iter().map(row))?;
    if answer.next.is_some() {
        writeln!(
            out,
            "there are more: raise --limit, or give a longer --prefix"
        )?;
    }
    Ok(())
}

fn row(BucketStatus { key, holds }: &BucketStatus) -> Vec<String> {
    let time = |time: Option<u64>| time.map_or_else(|| "full".to_owned(), date);
    let cells = match *holds {
        Holds::Tokens {
            tokens,
            max,
            refill,
            every_ms,
            next_refill_ms,
            full_at_ms,
        } => {
            let every = humantime::format_duration(Duration::from_millis(every_ms));
            let refill = format!("{refill} every {every}");
            [
                tokens.to_string(),
                max.to_string(),
                refill,
                time(next_refill_ms),
                time(full_at_ms),
            ]
        }
        Holds::Throttle { at_rest_ms } => [
            "-".to_owned(),
            "-".to_owned(),
            "throttle".to_owned(),
            "-".to_owned(),
            date(at_rest_ms),
        ],
    };
    std::iter::once(key.clone()).chain(cells).collect()
}

/// Formats milliseconds since 1970 in UTC.
fn date(ms: u64) -> String {
    if ms > DATE_MAX_MS {
        return "after the year 9999".to_owned();
    }
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(ms)).to_string()
}

fn write_top(out: &mut dyn Write, top: &Top) -> io::Result<()> {
    if top.asked.is_empty() {
        return writeln!(out, "no key was asked for in the last minutes");
    }
    let rows = |keys: &[TopKey]| -> Vec<Vec<String>> {
        keys.iter()
            .map(|key| vec![key.key.clone(), key.count.to_string()])
            .collect()
    };
    write_table(out, &["KEY", "ASKED"], rows(&top.asked))?;
    write_table(out, &["KEY", "REFUSED"], rows(&top.refused))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_buckets_show_tokens_and_refills() {
        let holds = |tokens, next_refill_ms| Holds::Tokens {
            tokens,
            max: 10_000,
            refill: 10_000,
            every_ms: 3_600_000,
            next_refill_ms,
            full_at_ms: next_refill_ms,
        };
        let hour = 1_790_000_000_000;
        for (holds, expected) in [
            (
                holds(7, Some(hour)),
                "a 7 10000 10000 every 1h 2026-09-21T14:13:20.000Z 2026-09-21T14:13:20.000Z",
            ),
            (
                holds(10_000, None),
                "a 10000 10000 10000 every 1h full full",
            ),
            (
                holds(0, Some(u64::MAX)),
                "a 0 10000 10000 every 1h after the year 9999 after the year 9999",
            ),
            (
                Holds::Throttle { at_rest_ms: hour },
                "a - - throttle - 2026-09-21T14:13:20.000Z",
            ),
        ] {
            assert_eq!(
                row(&BucketStatus {
                    key: "a".to_owned(),
                    holds
                })
                .join(" "),
                expected
            );
        }
    }
}
