//! The flags of a limiter in a separate process, shared by the sidecar and the demo service.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueHint;
use clap::builder::{ArgPredicate, PossibleValuesParser, TypedValueParser};
use plimsoll_client::{
    BeforePolicy, BuildError, FAILOVER_DELAY_DEFAULT, Limiter, LimiterBuilder, QuotaStore,
    QuotaStoreError,
};

/// The aggregators, the identity and the files of a limiter.
#[derive(Clone, Debug, clap::Args)]
pub struct LimiterArgs {
    /// Aggregators of its zone: https://HOST:PORT each, http://HOST:PORT each for plaintext, or dns://HOST:PORT for
    /// all addresses of a name. Buckets are assigned by hashing HOST:PORT, so give all services and sidecars of a zone
    /// the same. With --certs the default is https://127.0.0.1:7410
    #[arg(
        long,
        env = "PLIMSOLL_AGGREGATOR",
        value_name = "URL",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:7410",
        default_value_if("certs", ArgPredicate::IsPresent, "https://127.0.0.1:7410")
    )]
    pub aggregator: Vec<String>,
    /// Time that one of several aggregators may be unreachable before its buckets move to the others
    #[arg(long, env = "PLIMSOLL_GRACE", value_name = "TIME", default_value = "20s", value_parser = humantime::parse_duration)]
    pub grace: Duration,
    /// Zone of this process
    #[arg(
        long,
        env = "PLIMSOLL_ZONE",
        value_name = "NAME",
        default_value = "default"
    )]
    pub zone: String,
    /// Name of this instance, stable over restarts; made of host and port unless given
    #[arg(long, env = "PLIMSOLL_NAME", value_name = "NAME")]
    pub name: Option<String>,
    /// File that caches directives, so that the next start begins with them
    #[arg(long, env = "PLIMSOLL_DIRECTIVES", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub directives: Option<PathBuf>,
    /// Kill file of this process: while it exists, the process refuses nothing
    #[arg(long, env = "PLIMSOLL_KILL_FILE", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub kill_file: Option<PathBuf>,
    /// Limit of a bucket in requests/s until its first directive arrives; unlimited by default
    #[arg(long, env = "PLIMSOLL_COLD_RPS", value_name = "NAME=RATE", value_delimiter = ',', value_parser = parse_cold_rps)]
    pub cold_rps: Vec<(String, f64)>,
    /// Decision about requests of a bucket before its policy is known: allow or deny. They are counted
    #[arg(long, env = "PLIMSOLL_BEFORE_POLICY", value_name = "DECISION", default_value = "allow", value_parser = PossibleValuesParser::new(["allow", "deny"]).try_map(|it| it.parse::<BeforePolicy>()))]
    pub before_policy: BeforePolicy,
    /// Store of exact quotas: plimsoll://HOST:PORT, redis://HOST:PORT or
    /// redis+cluster://HOST:PORT, or over TLS plimsolls://.., rediss://.. and so on. Quotas are not enforced without one
    #[arg(long, env = "PLIMSOLL_QUOTA_STORE", value_name = "URL")]
    pub quota_store: Option<String>,
    /// User of the store of exact quotas
    #[arg(
        long,
        env = "PLIMSOLL_QUOTA_USERNAME",
        value_name = "NAME",
        requires = "quota_store"
    )]
    pub quota_username: Option<String>,
    /// File with the password for the store of exact quotas
    #[arg(long, env = "PLIMSOLL_QUOTA_PASSWORD_FILE", value_name = "FILE", value_hint = ValueHint::FilePath, requires = "quota_store")]
    pub quota_password_file: Option<PathBuf>,
    /// Authorities of the store's certificate, PEM; by default those of the system
    #[arg(long, env = "PLIMSOLL_QUOTA_CA", value_name = "FILE", value_hint = ValueHint::FilePath, requires = "quota_store")]
    pub quota_ca: Option<PathBuf>,
    /// Time that a request waits for the store; then the policy of the quota decides. 20ms by default, in a sidecar
    /// 10ms, because Envoy waits 20 ms for the sidecar
    #[arg(long, env = "PLIMSOLL_QUOTA_TIMEOUT", value_name = "TIME", value_parser = humantime::parse_duration, requires = "quota_store")]
    pub quota_timeout: Option<Duration>,
}

impl LimiterArgs {
    /// Begins the limiter of a service. `default_name` is the instance's name unless a flag sets
    /// one.
    ///
    /// # Errors
    /// When the address of the store of quotas is invalid.
    pub fn builder(&self, service: &str, default_name: &str) -> Result<LimiterBuilder, BuildError> {
        let name = self.name.as_deref().unwrap_or(default_name);
        let builder = Limiter::builder(service).name(name).zone(&self.zone);
        let mut builder = builder
            .aggregators(&self.aggregator)
            .failover_delay(self.grace)
            .before_policy(self.before_policy);
        if let Some(path) = &self.directives {
            builder = builder.directive_cache(path);
        }
        if let Some(path) = &self.kill_file {
            builder = builder.kill_file(path);
        }
        for (bucket, rps) in &self.cold_rps {
            builder = builder.cold_rps(bucket, *rps);
        }
        if let Some(store) = self.quota_store()? {
            builder = builder.quota_store(store);
        }
        Ok(builder)
    }

    fn quota_store(&self) -> Result<Option<QuotaStore>, QuotaStoreError> {
        let Some(address) = &self.quota_store else {
            return Ok(None);
        };
        let mut store = QuotaStore::new(address)?;
        if let Some(name) = &self.quota_username {
            store = store.username(name);
        }
        if let Some(path) = &self.quota_password_file {
            store = store.password_file(path);
        }
        if let Some(path) = &self.quota_ca {
            store = store.ca(path);
        }
        if let Some(timeout) = self.quota_timeout {
            store = store.timeout(timeout);
        }
        Ok(Some(store))
    }
}

impl Default for LimiterArgs {
    fn default() -> Self {
        Self {
            aggregator: vec!["http://127.0.0.1:7410".to_owned()],
            grace: FAILOVER_DELAY_DEFAULT,
            zone: "default".to_owned(),
            name: None,
            directives: None,
            kill_file: None,
            cold_rps: Vec::new(),
            before_policy: BeforePolicy::Allow,
            quota_store: None,
            quota_username: None,
            quota_password_file: None,
            quota_ca: None,
            quota_timeout: None,
        }
    }
}

fn parse_cold_rps(text: &str) -> Result<(String, f64), String> {
    let (name, rps) = text
        .split_once('=')
        .ok_or("write it as NAME=RATE, such as checkout=100")?;
    let rps = rps
        .parse()
        .map_err(|_| format!("`{rps}` is not a number of requests/s"))?;
    Ok((name.to_owned(), rps))
}

/// Returns the text of an error about addresses, trust or the store of quotas, with flags in place
/// of the methods of the library; `None` for other errors. `identity` names the flags of the
/// identity.
#[must_use]
pub fn trust_in_flags(error: &BuildError, identity: &str) -> Option<String> {
    Some(match error {
        BuildError::Address { address } => format!(
            "--aggregator {address}: write https://HOST:PORT or http://HOST:PORT for each aggregator, all with one scheme, \
             or dns://HOST:PORT alone"
        ),
        BuildError::CertificatesNeeded { address } => format!(
            "--aggregator {address} is reached over mutual TLS: give --certs DIR, which `plimsoll certs` makes, or \
             --insecure and an address http://HOST:PORT"
        ),
        BuildError::Plaintext { address } => format!(
            "--aggregator {address} would be reached in plaintext: give --certs DIR, which `plimsoll certs` makes, and an \
             address https://HOST:PORT, or --insecure if the network is trusted"
        ),
        BuildError::Certificates(error) => format!("--certs: {error}"),
        BuildError::WrongCertificate {
            certificate,
            limiter,
        } => format!(
            "--certs has the certificate of {certificate}, and this process is {limiter}: give the directory of its own \
             certificate, or correct {identity}"
        ),
        BuildError::NoIdentity(error) => format!("{identity}: {error}"),
        BuildError::QuotaStore(error) => format!("--quota-store: {error}"),
        _ => return None,
    })
}
