//! The arguments of `plimsoll load`.

use std::num::NonZeroU64;
use std::time::Duration;

use clap::ValueHint;
use http::header::InvalidHeaderValue;
use http::{HeaderValue, Uri};
use plimsoll_core::names::check_name;

use super::{Manners, Schedule};
use crate::cmd::parse_time;
use crate::output::OutputArgs;

/// Default time that a caller waits for an answer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

/// Send HTTP load to a service, to try a limit with it
///
/// Requests are GETs with the header x-tenant. Each second has as many as its rate says, at random moments, and they are
/// sent whether or not earlier ones were answered: a slow service gets no less load. Answers with status 200 count as
/// served, with 429 as refused, and all others as failed.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// URL to request, such as http://127.0.0.1:8080/checkout; several share the rate evenly
    #[arg(long, env = "PLIMSOLL_TARGETS", value_name = "URL", value_delimiter = ',', required = true, value_hint = ValueHint::Url, value_parser = parse_target)]
    pub(super) target: Vec<Uri>,
    /// Requests/s in all, optionally changing at given times, such as 800,10000@10s
    #[arg(
        long,
        env = "PLIMSOLL_RPS",
        value_name = "RATE[,RATE@TIME]...",
        allow_hyphen_values = true
    )]
    pub(super) rps: Schedule,
    /// Tenant of the requests; several share the rate evenly
    #[arg(
        long,
        env = "PLIMSOLL_TENANT",
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "default",
        value_parser = parse_tenant
    )]
    pub(super) tenant: Vec<HeaderValue>,
    /// Number of users behind each tenant of --tenant: a request is of NAME-0, NAME-1 or another, drawn at random. Results are of all together
    #[arg(long, env = "PLIMSOLL_NAMES", value_name = "N")]
    pub(super) names: Option<NonZeroU64>,
    /// Plan of the tenants of --tenant, in the header x-plan
    #[arg(long, env = "PLIMSOLL_PLAN", value_name = "NAME", value_parser = parse_tenant)]
    pub(super) plan: Option<HeaderValue>,
    /// Another tenant with its own requests/s, in addition to --rps
    #[arg(long, env = "PLIMSOLL_HOT", value_name = "NAME=RATE[,RATE@TIME]...", value_parser = parse_hot)]
    pub(super) hot: Option<(HeaderValue, Schedule)>,
    /// Seed of the moments and users of the requests, to repeat them; without it a random one, which the results name
    #[arg(long, env = "PLIMSOLL_SEED", value_name = "N")]
    pub(super) seed: Option<u64>,
    /// Maximum number of times that a request is sent again after a refusal, a failure or a timeout
    #[arg(long, env = "PLIMSOLL_RETRIES", value_name = "N", default_value_t = 0)]
    pub(super) retries: u32,
    /// Manners of callers with --retries
    #[arg(long, env = "PLIMSOLL_CALLER", value_enum, default_value_t)]
    pub(super) caller: Manners,
    /// Time that a caller waits for an answer, with each attempt; later answers count as failed
    #[arg(long, env = "PLIMSOLL_TIMEOUT", value_name = "TIME", default_value = "5s", value_parser = parse_period)]
    pub(super) timeout: Duration,
    /// Interval at which to print the results so far
    #[arg(long, env = "PLIMSOLL_EVERY", value_name = "TIME", value_parser = parse_period)]
    pub(super) every: Option<Duration>,
    /// Time after which to stop; without it, run until Ctrl-C
    #[arg(long, env = "PLIMSOLL_DURATION", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(super) duration: Option<Duration>,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  500 requests/s for half a minute:
    plimsoll load --target http://127.0.0.1:8080/checkout --rps 500 --duration 30s
  A surge: 800 requests/s, and 10,000 after ten seconds:
    plimsoll load --target http://127.0.0.1:8080/checkout --rps 800,10000@10s --every 1s
  Many tenants with a few requests each, user-0 to user-9999:
    plimsoll load --target http://127.0.0.1:8080/checkout --rps 500 --tenant user --names 10000
  A surge of three times the load, by callers who retry as fast as they can:
    plimsoll load --target http://127.0.0.1:8080/a --rps 9,27@10s,9@40s --retries 3 --caller rude
  A hot tenant in addition, with the results as JSON:
    plimsoll load --target http://127.0.0.1:8080/checkout --rps 200 --hot acme=2000 --output json";

fn parse_target(text: &str) -> Result<Uri, String> {
    let invalid = |cause: &str| format!("{cause}; write it as http://HOST:PORT/PATH");
    let uri: Uri = text
        .parse()
        .map_err(|error| invalid(&format!("not a URL: {error}")))?;
    match uri.scheme_str() {
        Some("http") if uri.host().is_some_and(|host| !host.is_empty()) => Ok(uri),
        Some("https") => Err(invalid("https is not supported")),
        _ => Err(invalid("not the URL of an HTTP server")),
    }
}

fn parse_tenant(name: &str) -> Result<HeaderValue, String> {
    check_name(name).map_err(|error| error.to_string())?;
    name.parse()
        .map_err(|error: InvalidHeaderValue| error.to_string())
}

fn parse_hot(text: &str) -> Result<(HeaderValue, Schedule), String> {
    let (name, rates) = text
        .split_once('=')
        .ok_or("write it as NAME=RATE, such as acme=500")?;
    Ok((parse_tenant(name)?, rates.parse()?))
}

fn parse_period(text: &str) -> Result<Duration, String> {
    parse_time(
        text,
        "500ms or 10s",
        |it| !it.is_zero(),
        "give a time above 0",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_a_plain_http_url() {
        for good in [
            "http://127.0.0.1:8080/checkout",
            "http://shop/a?b=c",
            "http://[::1]:80",
        ] {
            assert_eq!(parse_target(good).unwrap(), good);
        }
        for (bad, cause) in [
            ("https://shop/a", "https is not supported"),
            ("shop/a", "http://HOST:PORT/PATH"),
            ("/checkout", "not the URL of an HTTP server"),
            ("http://", "http://HOST:PORT/PATH"),
        ] {
            assert!(parse_target(bad).unwrap_err().contains(cause), "{bad}");
        }
    }

    #[test]
    fn hot_tenant_has_name_and_rate() {
        assert_eq!(
            parse_hot("acme=5").unwrap(),
            ("acme".parse().unwrap(), Schedule::constant(5.0))
        );
        for bad in ["acme", "=5", "acme=", "a\nb=5", "a b=5", "acme=-1"] {
            parse_hot(bad).unwrap_err();
        }
    }
}
