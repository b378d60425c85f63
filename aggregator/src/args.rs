//! The command line of an aggregator, and the errors that stop it.

use std::net::{Ipv4Addr, SocketAddr};

use plimsoll_admin::security::{SecurityArgs, SecurityError};
use plimsoll_core::names::InvalidName;
use plimsoll_core::report::DECISIONS_PER_S_MAX;
use plimsoll_proto::transport::{self, ServeError};
use tokio::task::JoinError;

/// Default gRPC port for children.
pub const PORT: u16 = 7410;
/// Default admin port.
pub const ADMIN_PORT: u16 = 7411;
/// Default bound on the keys of one bucket, including its class `default`.
pub const TENANTS_PER_BUCKET_MAX: u32 = 200_000;

/// The arguments of an aggregator.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Failure domain that this aggregator serves, such as eu-west-1a
    #[arg(
        long,
        env = "PLIMSOLL_ZONE",
        value_name = "NAME",
        default_value = "default"
    )]
    pub zone: String,
    /// Name that stays the same across restarts; host and port unless given
    #[arg(long, env = "PLIMSOLL_NAME", value_name = "NAME")]
    pub name: Option<String>,
    /// URL of the controller, or of an aggregator on the path to it: https:// with --certs, http:// on loopback or with
    /// --insecure
    #[arg(
        long,
        env = "PLIMSOLL_CONTROLLER",
        value_name = "URL",
        default_value = "http://127.0.0.1:7400"
    )]
    pub controller: String,
    /// Address for clients and child aggregators. Beyond loopback it needs --certs, or --insecure
    #[arg(long, env = "PLIMSOLL_LISTEN", value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)))]
    pub listen: SocketAddr,
    /// Maximum of tenants that are counted separately in one bucket; those with the least traffic beyond it
    /// count as `default`
    #[arg(long, env = "PLIMSOLL_TENANTS_PER_BUCKET_MAX", value_name = "N", default_value_t = TENANTS_PER_BUCKET_MAX)]
    pub tenants_per_bucket_max: u32,
    /// Requests/s that one client is believed to decide. Counts above this, and above 100 times its own past, are
    /// cut and added to plimsoll_counts_cut_total
    #[arg(long, env = "PLIMSOLL_DECISIONS_PER_S_MAX", value_name = "N", default_value_t = DECISIONS_PER_S_MAX, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub decisions_per_s_max: u64,
    /// Maximum of connections whose peer has not sent a greeting; half of them from one address
    #[arg(long, env = "PLIMSOLL_PENDING_MAX", value_name = "N", default_value_t = transport::PENDING_MAX_DEFAULT, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    pub pending_max: usize,
    /// Address for metrics, health checks, status and the kill switch
    #[arg(long, env = "PLIMSOLL_ADMIN", value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, ADMIN_PORT)))]
    pub admin: SocketAddr,
    /// Certificates, tokens and exceptions.
    #[command(flatten)]
    pub security: SecurityArgs,
}

/// The reason why an aggregator cannot start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An argument is not a valid name.
    #[error("{flag} `{name}`: {source}")]
    Name {
        /// The flag of the argument.
        flag: &'static str,
        /// The value of the argument.
        name: String,
        /// The rule that it breaks.
        source: InvalidName,
    },
    /// The flags of trust cannot be used, or the parent's address.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// The system returned no random bytes for the instance id.
    #[error("cannot read random bytes for the instance id: {0}")]
    Entropy(#[from] getrandom::Error),
    /// The task that reads the files at the start panicked.
    #[error("the start of the aggregator failed: {0}")]
    Start(#[from] JoinError),
    /// A port cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A socket failed.
    #[error("cannot read the address of a listening socket: {0}")]
    Socket(#[from] std::io::Error),
}

impl Error {
    /// Returns true for invalid arguments: another attempt would fail as well.
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::Name { .. } | Self::Security(_))
    }
}
