//! The arguments of `plimsoll-bench streams`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueHint;
use plimsoll_proto::transport::{Dial, Security};
use plimsoll_tls::Certificates;

/// Open client streams to aggregators and time how fast a limit reaches the clients
///
/// The program runs its own controller, for aggregators that are started with `--controller` and the address
/// given here, and opens client streams to them. Once in each interval it changes the limit and prints a line
/// of JSON: for each aggregator, the connected clients, the bytes per client and second in both directions,
/// and the time from the moment at which the controller takes the new limit to the moment at which each
/// client has applied it. Both moments come from one monotonic clock in this process. A client that was
/// connected at the decision and has not applied it when the line is printed counts as if it did so then. The
/// limit is far above the load.
///
/// With `--controller-elsewhere` it starts no controller and changes no limit: the requests that clients
/// decide can then be compared with those that are counted while controllers restart.
///
/// At SIGUSR1 every stream breaks, and all clients connect again at once.
///
/// A client is the real limiter with the real driver of its stream. Without `--names` its guard is not refilled,
/// and nothing on the wire depends on that.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Aggregator and number of streams to open to it, such as http://127.0.0.1:7410=1000; several may be
    /// given
    #[arg(long, env = "PLIMSOLL_AGGREGATORS", value_name = "URL=STREAMS", value_delimiter = ',', required = true, value_parser = parse_target, value_hint = ValueHint::Url)]
    pub(super) aggregator: Vec<Target>,
    /// Address at which the controller of this process listens for the aggregators
    #[arg(long, env = "PLIMSOLL_LISTEN", value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, plimsoll_controller::PORT)))]
    pub(super) listen: SocketAddr,
    /// Start no controller: the aggregators have one of their own
    #[arg(long, env = "PLIMSOLL_CONTROLLER_ELSEWHERE", conflicts_with = "listen")]
    pub(super) controller_elsewhere: bool,
    /// Folder with the tls.crt, tls.key and ca.crt of the clients: the service `streams` of the zone `default`
    #[arg(long, env = "PLIMSOLL_CERTS", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(super) certs: Option<PathBuf>,
    /// Let clients forget their TLS session with each connection
    #[arg(long, env = "PLIMSOLL_FORGET_SESSIONS", requires = "certs")]
    pub(super) forget_sessions: bool,
    /// Process ids of the aggregators in the same order, to print their processor time and memory
    #[arg(long, env = "PLIMSOLL_PIDS", value_name = "PID", value_delimiter = ',')]
    pub(super) pid: Vec<u32>,
    /// Number of tenants; each client decides for one of them, and a directive has an entry for each
    #[arg(
        long,
        env = "PLIMSOLL_TENANTS",
        value_name = "COUNT",
        default_value_t = 10
    )]
    pub(super) tenants: usize,
    /// Unlisted tenants of each client in each bucket, by whose names it decides instead: few of them often, most of
    /// them seldom
    #[arg(
        long,
        env = "PLIMSOLL_NAMES",
        value_name = "COUNT",
        requires = "controller_elsewhere"
    )]
    pub(super) names: Option<usize>,
    /// Number of buckets of the names
    #[arg(
        long,
        env = "PLIMSOLL_BUCKETS",
        value_name = "COUNT",
        default_value_t = 1,
        requires = "names"
    )]
    pub(super) buckets: usize,
    /// Requests/s that each client decides
    #[arg(
        long,
        env = "PLIMSOLL_RPS",
        value_name = "RATE",
        default_value_t = 10.0
    )]
    pub(super) rps: f64,
    /// Time for which clients decide requests, from their first report on; their streams stay open, so that
    /// everything is counted
    #[arg(long, env = "PLIMSOLL_ASK_FOR", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(super) ask_for: Option<Duration>,
    /// Interval of limit changes and lines of output
    #[arg(long, env = "PLIMSOLL_EVERY", value_name = "TIME", default_value = "1s", value_parser = parse_period)]
    pub(super) every: Duration,
    /// Time after which to stop; without it, run until Ctrl-C
    #[arg(long, env = "PLIMSOLL_DURATION", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(super) duration: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) url: String,
    pub(super) streams: usize,
}

impl Args {
    /// Returns the way to a target for one client, with a separate TLS session cache.
    pub(super) fn dial(&self, target: &Target) -> anyhow::Result<Dial> {
        let security = match &self.certs {
            Some(directory) => Security::Mutual(Certificates::open(directory)?),
            None => Security::Plain { anywhere: true },
        };
        Ok(Dial::new(&target.url, &security)?)
    }
}

fn parse_target(text: &str) -> Result<Target, String> {
    let (url, streams) = text
        .rsplit_once('=')
        .ok_or("write it as URL=STREAMS, such as http://127.0.0.1:7410=1000")?;
    let streams = streams
        .parse()
        .map_err(|_| format!("`{streams}` is not a number of streams"))?;
    Ok(Target {
        url: url.to_owned(),
        streams,
    })
}

fn parse_period(text: &str) -> Result<Duration, String> {
    let period = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write it as 500ms or 10s"))?;
    if period.is_zero() {
        Err("give a time above 0".to_owned())
    } else {
        Ok(period)
    }
}
