//! The command line of a quota server, and the errors that stop it.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueHint;
use plimsoll_admin::security::{SecurityArgs, SecurityError};
use plimsoll_net::ListenError;
use tokio::task::JoinError;

use crate::operation::Unavailable;
use crate::store::OpenError;

/// Default port of the Redis protocol.
pub const RESP_PORT: u16 = 9049;
/// Default admin port.
pub const ADMIN_PORT: u16 = 7432;

/// Default limit of how far `AT` may be ahead of the server's clock.
pub const AT_AHEAD_MAX: Duration = Duration::from_secs(3_600);

/// The arguments of a quota server.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Address of the Redis protocol. Beyond loopback give --tokens, and --certs or --insecure
    #[arg(long, env = "PLIMSOLL_LISTEN", value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, RESP_PORT)))]
    pub listen: SocketAddr,
    /// Address for metrics, health checks and the commands of operators
    #[arg(long, env = "PLIMSOLL_ADMIN", value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, ADMIN_PORT)))]
    pub admin: SocketAddr,
    /// Directory of the balances, created if absent
    #[arg(long, env = "PLIMSOLL_DATA", value_name = "DIR", value_hint = ValueHint::DirPath, default_value = "plimsoll-quota")]
    pub data: PathBuf,
    /// When a debit is on disk: always (before its reply), interval:TIME (at most this much later), or none
    #[arg(
        long,
        env = "PLIMSOLL_DURABILITY",
        value_name = "WHEN",
        default_value_t
    )]
    pub durability: Durability,
    /// Memory for buckets in MiB; others are read from disk
    #[arg(long, env = "PLIMSOLL_CACHE_MIB", value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(16..=65_536))]
    pub cache_mib: u64,
    /// Time by which AT may be ahead of the clock of the server: a key that has met a later time gets no refill until then
    #[arg(long, env = "PLIMSOLL_AT_AHEAD_MAX", value_name = "TIME", default_value = "1h", value_parser = humantime::parse_duration)]
    pub at_ahead_max: Duration,
    /// Certificates, tokens and exceptions.
    #[command(flatten)]
    pub security: SecurityArgs,
}

/// Time when a debit is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Before its reply.
    Always,
    /// At most this long after its reply.
    Interval(Duration),
    /// At the server's stop, when it needs the memory, or when an operator looks up or resets buckets.
    None,
}

/// Reason why a text is not a durability.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is none of always, interval:TIME with a time from 10ms to 10s such as interval:100ms, and none"
)]
pub struct InvalidDurability(String);

impl Default for Durability {
    fn default() -> Self {
        Self::Interval(Duration::from_millis(100))
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.write_str("always"),
            Self::Interval(time) => write!(f, "interval:{}", humantime::format_duration(*time)),
            Self::None => f.write_str("none"),
        }
    }
}

impl FromStr for Durability {
    type Err = InvalidDurability;

    fn from_str(text: &str) -> Result<Self, InvalidDurability> {
        let invalid = || InvalidDurability(text.to_owned());
        match text {
            "always" => Ok(Self::Always),
            "none" => Ok(Self::None),
            _ => {
                let time = text.strip_prefix("interval:").ok_or_else(invalid)?;
                let time = humantime::parse_duration(time).map_err(|_| invalid())?;
                let range = Duration::from_millis(10)..=Duration::from_secs(10);
                if range.contains(&time) {
                    Ok(Self::Interval(time))
                } else {
                    Err(invalid())
                }
            }
        }
    }
}

/// Reason why a quota server stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Certificates, tokens or addresses cannot be used.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Clients need tokens, and there are none.
    #[error(
        "--listen {0} is not a loopback address, and its clients need tokens: give --tokens FILE, which `plimsoll tokens` \
         makes"
    )]
    NoTokens(SocketAddr),
    /// The task that opens the store panicked.
    #[error("the start of the quota server failed: {0}")]
    Start(#[from] JoinError),
    /// A port cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A socket failed.
    #[error("cannot read the address of a listening socket: {0}")]
    Socket(#[from] std::io::Error),
    /// The last balances could not be saved.
    #[error("the balances could not be saved at the end: {0}")]
    Save(#[from] Unavailable),
}

impl Error {
    /// Returns true for invalid arguments: another attempt would fail, too.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::Security(_) | Self::NoTokens(_))
    }
}
