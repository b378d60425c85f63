//! The command line of an aggregator, and the errors that stop it.

use std::net::{Ipv4Addr, SocketAddr};

use plimsoll_admin::security::{Opened, SecurityArgs, SecurityError};
use plimsoll_core::names::InvalidName;
use plimsoll_core::report::DECISIONS_PER_S_MAX;
use plimsoll_net::{ListenError, PENDING_MAX_DEFAULT};
use plimsoll_proto::transport::{
    Dial, InvalidEndpoint, InvalidParentList, ParentList, Security, ServeError,
};
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
    /// --insecure. Of several controllers, separated by commas, the aggregator follows the one that leads. At most 16
    #[arg(
        long,
        env = "PLIMSOLL_CONTROLLER",
        value_name = "URL",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:7400"
    )]
    pub controller: Vec<String>,
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
    #[arg(long, env = "PLIMSOLL_PENDING_MAX", value_name = "N", default_value_t = PENDING_MAX_DEFAULT, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
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
    /// The certificates or tokens cannot be used, or an address needs a protection that the flags do not give.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// The address of the controller is invalid, or asks for a protection that the flags do not give.
    #[error("--controller: {0}{remedy}", remedy = remedy(.0))]
    Parent(#[from] InvalidEndpoint),
    /// The list of controllers is too long, or has an address twice.
    #[error("--controller: {0}")]
    Parents(#[from] InvalidParentList),
    /// The system returned no random bytes for the instance id.
    #[error("cannot read random bytes for the instance id: {0}")]
    Entropy(#[from] getrandom::Error),
    /// The task that reads the files at the start panicked.
    #[error("the start of the aggregator failed: {0}")]
    Start(#[from] JoinError),
    /// A port cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The server of the streams failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The address of a listening socket cannot be read.
    #[error("cannot read the address of a listening socket: {0}")]
    Socket(#[from] std::io::Error),
}

impl Error {
    /// Returns true for invalid arguments: another attempt would fail as well.
    pub const fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Name { .. } | Self::Security(_) | Self::Parent(_) | Self::Parents(_)
        )
    }
}

impl Args {
    /// Returns the ways to the controllers.
    ///
    /// # Errors
    /// If an address is invalid, given twice, or asks for a protection that the flags do not give, or if there are more
    /// than 16.
    pub(crate) fn parents(&self, opened: &Opened) -> Result<ParentList, Error> {
        let dials = self.controller.iter().map(|url| self.dial(url, opened));
        Ok(ParentList::new(dials.collect::<Result<_, _>>()?)?)
    }

    fn dial(&self, url: &str, opened: &Opened) -> Result<Dial, InvalidEndpoint> {
        let anywhere = self.security.insecure;
        let is_plain = anywhere && url.starts_with("http://");
        let security = match opened.certificates() {
            Some(certificates) if !is_plain => Security::Mutual(certificates.clone()),
            _ => Security::Plain { anywhere },
        };
        Dial::new(url, &security)
    }
}

const fn remedy(error: &InvalidEndpoint) -> &'static str {
    match error {
        InvalidEndpoint::NeedsCertificates { .. } => {
            "; give --certs DIR, which `plimsoll certs` makes"
        }
        InvalidEndpoint::Plaintext { .. } => "; the flags are --certs DIR and --insecure",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::exchange::PeerRole;
    use plimsoll_core::names::Zone;
    use plimsoll_tls::testing::{Authority, Validity};

    use super::*;
    use crate::Aggregator;

    const LOCAL: &str = "http://127.0.0.1:7400";
    const PLAIN: &str = "http://controller.example:7400";
    const TLS: &str = "https://controller.example:7400";

    /// Returns what is plaintext beyond loopback, or the text of the error.
    fn opened(controller: &str, security: SecurityArgs) -> Result<Vec<String>, String> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let args = Args {
            zone: "a".to_owned(),
            name: None,
            controller: controller.split(',').map(str::to_owned).collect(),
            listen: any,
            tenants_per_bucket_max: TENANTS_PER_BUCKET_MAX,
            decisions_per_s_max: DECISIONS_PER_S_MAX,
            pending_max: PENDING_MAX_DEFAULT,
            admin: any,
            security,
        };
        match Aggregator::new(&args) {
            Ok(aggregator) => Ok(aggregator.security.status().plaintext),
            Err(error) => {
                assert!(error.is_usage(), "{error}");
                Err(error.to_string())
            }
        }
    }

    #[test]
    fn every_controller_of_the_list_is_checked() {
        let insecure = SecurityArgs {
            insecure: true,
            ..SecurityArgs::default()
        };
        let both = format!("{LOCAL},{PLAIN}");
        let exposed = Ok(vec![format!("--controller {PLAIN}")]);
        assert_eq!(opened(&both, insecure), exposed);
        let many: Vec<String> = (0..17)
            .map(|port| format!("http://127.0.0.1:{}", port + 1))
            .collect();
        let opened = |controllers: &str| opened(controllers, SecurityArgs::default());
        assert_eq!(opened(&many[..16].join(",")), Ok(Vec::new()));
        for (controllers, word) in [
            (&*both, "`http://controller.example:7400`"),
            (&format!("{LOCAL},a"), "`a`"),
            (&format!("{LOCAL},{LOCAL}"), "`127.0.0.1:7400`"),
            (&many.join(","), "17"),
        ] {
            let error = opened(controllers).unwrap_err();
            assert!(
                error.starts_with("--controller: ") && error.contains(word),
                "{error}"
            );
        }
    }

    #[test]
    fn parent_is_reached_as_the_flags_allow() {
        let directory = tempfile::tempdir().unwrap();
        let zone = Zone::new("a").unwrap();
        let role = PeerRole::Aggregator { zone };
        Authority::new("a").write(directory.path(), role, Validity::default());
        let certs = Some(directory.path().to_owned());
        // The words of the error; `None` if the parent can be reached.
        for (controller, has_certificates, insecure, fault) in [
            (LOCAL, false, false, None),
            (LOCAL, true, false, None),
            (PLAIN, false, false, Some(["--certs", "--insecure"])),
            (PLAIN, true, false, Some(["https://", "--insecure"])),
            (PLAIN, false, true, None),
            (PLAIN, true, true, None),
            (TLS, false, false, Some(["asks for TLS", "--certs"])),
            (TLS, false, true, Some(["asks for TLS", "--certs"])),
            (TLS, true, false, None),
            (TLS, true, true, None),
        ] {
            let security = SecurityArgs {
                certs: certs.clone().filter(|_| has_certificates),
                insecure,
                ..SecurityArgs::default()
            };
            let case = format!("{controller} {has_certificates} {insecure}");
            match (opened(controller, security), fault) {
                (Ok(plaintext), None) => {
                    let flag = format!("--controller {controller}");
                    let expected: &[String] = if controller == PLAIN { &[flag] } else { &[] };
                    assert_eq!(plaintext, expected, "{case}");
                }
                (Err(error), Some(words)) => {
                    let error = error.strip_prefix("--controller: ").unwrap();
                    assert!(
                        words.iter().all(|word| error.contains(word)),
                        "{case}: {error}"
                    );
                }
                (result, _) => panic!("{case}: {result:?}"),
            }
        }
    }
}
