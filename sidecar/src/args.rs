//! The command line of a sidecar, and the errors that stop it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueHint;
use plimsoll_admin::security::{SecurityArgs, SecurityError};
use plimsoll_client::{BUCKETS_MAX_DEFAULT, BuildError, CanaryBy, FeedError, KEYS_MAX_DEFAULT};
use plimsoll_core::names::InvalidName;
use plimsoll_net::ListenError;
use tokio::task::JoinError;

use crate::limiter_args::{LimiterArgs, trust_in_flags};
use crate::limits::LimitsError;
use crate::rules::ReadError;
use crate::serve::UnixSocketError;

/// Default port of the rate limit service.
pub const RLS_PORT: u16 = 7420;
/// Default port of HTTP checks.
pub const HTTP_PORT: u16 = 7421;
/// Default admin port.
pub const ADMIN_PORT: u16 = 7422;

/// The arguments of a sidecar.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The limiter
    #[command(flatten)]
    pub limiter: LimiterArgs,
    /// Service on whose behalf it asks for directives and reports; its certificate names it
    #[arg(
        long,
        env = "PLIMSOLL_SERVICE",
        value_name = "NAME",
        default_value = "sidecar"
    )]
    pub service: String,
    /// Rules that map descriptors and requests to buckets and tenants, in YAML. Followed while running
    #[arg(long, env = "PLIMSOLL_RULES", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub rules: Option<PathBuf>,
    /// Address of Envoy's rate limit service. Beyond loopback it needs --certs, or --insecure
    #[arg(long, env = "PLIMSOLL_RLS", value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, RLS_PORT)))]
    pub rls: SocketAddr,
    /// Address of checks over HTTP. Beyond loopback it needs --tokens, because callers send one,
    /// and --certs or --insecure
    #[arg(long, env = "PLIMSOLL_HTTP", value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, HTTP_PORT)))]
    pub http: SocketAddr,
    /// Address for metrics, health checks and status
    #[arg(long, env = "PLIMSOLL_ADMIN", value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, ADMIN_PORT)))]
    pub admin: SocketAddr,
    /// Directory of the Unix sockets rls.sock and http.sock, such as /run/plimsoll. Without it there are none
    #[arg(long, env = "PLIMSOLL_SOCKETS", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub sockets: Option<PathBuf>,
    /// Time that a start waits for the policies of the buckets of its rules. Until then its ports are closed and
    /// /readyz answers 503; after it --before-policy decides
    #[arg(long, env = "PLIMSOLL_READY_WITHIN", value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    pub ready_within: Duration,
    /// Unit by which the share of a canary is divided here: each (bucket, tenant) pair by itself (key), or this instance
    /// as a whole (instance)
    #[arg(long, env = "PLIMSOLL_CANARY_BY", value_name = "UNIT", default_value = "key", value_parser = parse_canary_by)]
    pub canary_by: CanaryBy,
    /// Maximum of (bucket, tenant) pairs that are counted separately
    #[arg(long, env = "PLIMSOLL_KEYS_MAX", value_name = "N", default_value_t = KEYS_MAX_DEFAULT, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100_000))]
    pub keys_max: usize,
    /// Maximum of buckets; half of them for those that the rules name
    #[arg(long, env = "PLIMSOLL_BUCKETS_MAX", value_name = "N", default_value_t = BUCKETS_MAX_DEFAULT, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=4_096))]
    pub buckets_max: usize,
    /// Certificates, tokens and exceptions.
    #[command(flatten)]
    pub security: SecurityArgs,
}

fn parse_canary_by(text: &str) -> Result<CanaryBy, String> {
    match text {
        "key" => Ok(CanaryBy::Key),
        "instance" => Ok(CanaryBy::Instance),
        _ => Err("give key or instance".to_owned()),
    }
}

/// Reason why a sidecar cannot start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An argument is not a valid name.
    #[error("{flag} `{name}`: {source}")]
    Name {
        /// Flag of the argument.
        flag: &'static str,
        /// Value of the argument.
        name: String,
        /// Rule that it breaks.
        source: InvalidName,
    },
    /// The flags of trust cannot be used.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// Callers of HTTP need tokens, and there are none.
    #[error(
        "--http {0} is not a loopback address, and its callers need tokens: give --tokens FILE, which `plimsoll tokens` makes"
    )]
    NoTokens(SocketAddr),
    /// The limiter cannot be built from the arguments.
    #[error("{}", trust_in_flags(.0, "--zone or --service").unwrap_or_else(|| .0.to_string()))]
    Limiter(BuildError),
    /// The rules file cannot be read, or is not valid.
    #[error("{flag}{0}", flag = if matches!(.0, ReadError::Unread(_)) { "--rules: " } else { "" })]
    Rules(#[from] ReadError),
    /// The limiter has no room for the rules.
    #[error("{0}; raise --buckets-max or --keys-max")]
    Limits(#[from] LimitsError),
    /// The task that reads the files at the start panicked.
    #[error("the start of the sidecar failed: {0}")]
    Start(#[from] JoinError),
    /// A port cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A Unix socket cannot be served.
    #[error(transparent)]
    Unix(#[from] UnixSocketError),
    /// A socket failed.
    #[error("cannot read the address of a listening socket: {0}")]
    Socket(#[from] std::io::Error),
    /// The exchange with the aggregators cannot begin.
    #[error(transparent)]
    Feed(#[from] FeedError),
}

// No source: its text names the methods of the library, and would follow the text with the flags.
impl From<BuildError> for Error {
    fn from(error: BuildError) -> Self {
        Self::Limiter(error)
    }
}

impl Error {
    /// Returns true for invalid arguments or rules: another attempt would fail, too.
    pub const fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Name { .. }
                | Self::Security(_)
                | Self::NoTokens(_)
                | Self::Limiter(_)
                | Self::Rules(_)
                | Self::Limits(_)
        )
    }
}
