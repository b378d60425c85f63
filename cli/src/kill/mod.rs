//! `plimsoll kill`: stops enforcement, in the whole fleet or for one bucket, and measures how fast that would be.

mod say;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use plimsoll_core::bucket::Bucket;
use plimsoll_core::text::Text;
use plimsoll_proto::switch::{self, DRILL_MAX_MS, DrillOrder, Drilled, Off, On, Switches, TTL_MAX_S};

use crate::ask::{self, Admin, AskError, Asked, CONTROLLER, Output, Question, words};
use crate::shutdown;

/// What to do where nobody answers.
const AWAY: &str = "while no controller lives, ask an aggregator: --aggregator http://HOST:7411 on its machine stops its \
                    zone; or stop one service by its kill file (--kill-file) or PLIMSOLL_KILL=1";

/// Stop enforcement, and say what is stopped: kills go to a controller, or, when none lives, to the aggregator of a zone.
#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, Subcommand)]
enum Act {
    /// Refuse nothing any more: every client only observes, in the whole fleet or for one bucket
    On(OnArgs),
    /// End a kill; what was killed stays in shadow until somebody raises it again
    Off(OffArgs),
    /// Say what is killed, since when and why
    Status(StatusArgs),
    /// Measure how long a kill would take to reach every client, without refusing less
    Drill(DrillArgs),
}

#[derive(Debug, Args)]
struct OnArgs {
    /// Why, in a few words: whoever looks at the status sees it
    #[arg(long, env = "PLIMSOLL_REASON", value_name = "TEXT", value_parser = words)]
    reason: Text,
    /// Kill this bucket alone, not the whole fleet
    #[arg(long, env = "PLIMSOLL_BUCKET", value_name = "NAME", value_parser = bucket)]
    bucket: Option<Bucket>,
    /// End it after this long by itself, as in 10m; what was killed stays in shadow. Controllers only
    #[arg(long, env = "PLIMSOLL_TTL", value_name = "TIME", value_parser = ttl)]
    ttl: Option<Duration>,
    #[command(flatten)]
    whom: Whom,
}

#[derive(Debug, Args)]
struct OffArgs {
    /// Why, for the log
    #[arg(long, env = "PLIMSOLL_REASON", value_name = "TEXT", value_parser = words)]
    reason: Option<Text>,
    /// The bucket that was killed alone
    #[arg(long, env = "PLIMSOLL_BUCKET", value_name = "NAME", value_parser = bucket)]
    bucket: Option<Bucket>,
    #[command(flatten)]
    whom: Whom,
}

#[derive(Debug, Args)]
struct StatusArgs {
    #[command(flatten)]
    whom: Whom,
}

#[derive(Debug, Args)]
struct DrillArgs {
    /// How long to wait for clients to answer
    #[arg(long, env = "PLIMSOLL_TIMEOUT", value_name = "TIME", default_value = "10s", value_parser = wait)]
    timeout: Duration,
    #[command(flatten)]
    whom: Whom,
}

/// Whom to ask, and how to say what it answers.
#[derive(Debug, Args)]
struct Whom {
    /// The controller's admin port; http://127.0.0.1:7401 unless an aggregator is named
    #[arg(long, env = "PLIMSOLL_CONTROLLER_ADMIN", value_name = "URL", value_hint = ValueHint::Url, value_parser = ask::admin)]
    controller: Option<Admin>,
    /// An aggregator's admin port (7411), for when no controller lives; with --controller, asked if that one is not there
    #[arg(long, env = "PLIMSOLL_AGGREGATOR_ADMIN", value_name = "URL", value_hint = ValueHint::Url, value_parser = ask::admin)]
    aggregator: Option<Admin>,
    /// How to say what came of it
    #[arg(long, short, value_enum, default_value_t, env = "PLIMSOLL_OUTPUT", value_name = "FORMAT")]
    output: Output,
}

fn bucket(name: &str) -> Result<Bucket, String> {
    Bucket::new(name).map_err(|error| error.to_string())
}

fn ttl(text: &str) -> Result<Duration, String> {
    let ttl =
        humantime::parse_duration(text).map_err(|error| format!("{error}; write it as in 10m or 2h"))?;
    if ttl < Duration::from_secs(1) || ttl.as_secs() > TTL_MAX_S || ttl.subsec_nanos() > 0 {
        return Err(
            "whole seconds from 1s to 366d are possible; without --ttl it holds until `kill off`".to_owned()
        );
    }
    Ok(ttl)
}

fn wait(text: &str) -> Result<Duration, String> {
    let wait = humantime::parse_duration(text).map_err(|error| format!("{error}; write it as in 10s"))?;
    let ms = Duration::from_millis(1)..=Duration::from_millis(DRILL_MAX_MS);
    if ms.contains(&wait) { Ok(wait) } else { Err(format!("1ms to {}s are possible", DRILL_MAX_MS / 1_000)) }
}

/// Who calls, as far as the environment says; nobody checks.
fn by() -> Option<Text> {
    let named = |name: &str| std::env::var(name).ok().and_then(|user| Text::new(&user).ok());
    named("SUDO_USER").or_else(|| named("USER")).or_else(|| named("LOGNAME"))
}

impl Whom {
    /// Whom to ask, one after the other.
    fn admins(&self) -> Vec<Admin> {
        let default = || ask::admin(CONTROLLER).ok().filter(|_| self.aggregator.is_none());
        self.controller.clone().or_else(default).into_iter().chain(self.aggregator.clone()).collect()
    }
}

/// Runs the command; the exit code is 0 when it was done, 1 when it could not be or a drill is not complete, and 2 when it was
/// asked for something that cannot be.
pub(crate) fn run(args: KillArgs) -> anyhow::Result<ExitCode> {
    shutdown::runtime()?.block_on(async {
        match args.act {
            Act::On(OnArgs { reason, bucket, ttl, whom }) => {
                let ttl_s = ttl.map(|ttl| ttl.as_secs());
                let order = On { reason, bucket: bucket.clone(), ttl_s, by: by() };
                let asked: Asked<Switches> = ask(&whom, &Question::post(switch::ON, &order)?).await?;
                say::turned(&asked, whom.output, bucket.as_ref(), true)
            }
            Act::Off(OffArgs { reason, bucket, whom }) => {
                let order = Off { bucket: bucket.clone(), reason, by: by() };
                let asked: Asked<Switches> = ask(&whom, &Question::post(switch::OFF, &order)?).await?;
                say::turned(&asked, whom.output, bucket.as_ref(), false)
            }
            Act::Status(StatusArgs { whom }) => {
                let asked: Asked<Switches> = ask(&whom, &Question::get(switch::STATUS)).await?;
                say::status(&asked, whom.output)
            }
            Act::Drill(DrillArgs { timeout, whom }) => {
                let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(DRILL_MAX_MS);
                let question = Question::post(switch::DRILL, &DrillOrder { timeout_ms })?.taking(timeout);
                let asked: Asked<Drilled> = ask(&whom, &question).await?;
                say::drilled(&asked, whom.output)
            }
        }
    })
}

async fn ask<T: serde::de::DeserializeOwned>(whom: &Whom, question: &Question) -> Result<Asked<T>, AskError> {
    ask::first_that_is_there(&whom.admins(), question, AWAY).await
}
