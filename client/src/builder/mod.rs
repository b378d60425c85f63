//! The builder through which a service configures its limiter and feed.

mod env;
mod error;
mod quota;
mod security;

pub use error::BuildError;
use error::named;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::names::{Bucket, Name, Zone};
use plimsoll_core::quantity::Rate;
use plimsoll_core::report::{Identity, InstanceId, Role};
use plimsoll_proto::shared::Shared;

use crate::feed::cache::{CacheFile, Owner, Restored};
use crate::feed::{Control, Counters, Feed, Lifecycle, LocalKill};
use crate::hot::rng;
use crate::hot::table::Table;
use crate::hot::thread_slots::THREAD_SLOTS_MAX;
use crate::limiter::{BUCKETS_MAX_DEFAULT, BeforePolicy, KEYS_MAX_DEFAULT, Limiter};
use crate::setup::SetupProblem;
use crate::subscription::assignment::FAILOVER_DELAY_DEFAULT;
use crate::subscription::assignment::endpoints::{Addresses, Aggregators};
use crate::subscription::{CanaryBy, Subscription};

/// The fewest threads with counters of their own.
const THREAD_SLOTS_MIN: usize = 8;

/// The most keys of a limiter: as many as an aggregator takes from one client.
const KEYS_MAX: usize = 100_000;

/// The largest number of buckets of a limiter, if set.
pub(crate) const BUCKETS_MAX: usize = 4_096;

/// Default time that [`Limiter::ready`] waits: a start without the control plane must not last longer.
pub const READY_WITHIN_DEFAULT: Duration = Duration::from_secs(5);

/// Configures and makes a [`Limiter`] and its [`Feed`]. Made by [`Limiter::builder`].
#[derive(Clone, Debug)]
pub struct LimiterBuilder {
    service: Name,
    name: Option<Name>,
    zone: Zone,
    addresses: Addresses,
    #[cfg(feature = "tls")]
    certificates: Option<PathBuf>,
    is_insecure: bool,
    failover_delay: Duration,
    keys_max: usize,
    buckets_max: usize,
    directive_cache: Option<PathBuf>,
    cold: BTreeMap<Bucket, Rate>,
    before_policy: BeforePolicy,
    ready_within: Duration,
    kill_file: Option<PathBuf>,
    canary_by: CanaryBy,
    observes_responses: bool,
    #[cfg(feature = "quota")]
    quota_store: Option<crate::QuotaStore>,
}

impl LimiterBuilder {
    /// Starts from an instance of `service` in the zone `default`, without an aggregator.
    pub(crate) fn new(service: &str) -> Result<Self, BuildError> {
        Ok(Self {
            service: named("service", service, Name::new)?,
            name: None,
            zone: named("zone", "default", Zone::new)?,
            addresses: Addresses::default(),
            #[cfg(feature = "tls")]
            certificates: None,
            is_insecure: false,
            failover_delay: FAILOVER_DELAY_DEFAULT,
            keys_max: KEYS_MAX_DEFAULT,
            buckets_max: BUCKETS_MAX_DEFAULT,
            directive_cache: None,
            cold: BTreeMap::new(),
            before_policy: BeforePolicy::default(),
            ready_within: READY_WITHIN_DEFAULT,
            kill_file: None,
            canary_by: CanaryBy::default(),
            observes_responses: true,
            #[cfg(feature = "quota")]
            quota_store: None,
        })
    }

    /// Names this instance by a name that survives restarts, such as `host:port`. The default is made of the
    /// host and the process id.
    ///
    /// # Errors
    /// When the name is invalid.
    pub fn name(mut self, name: &str) -> Result<Self, BuildError> {
        self.name = Some(named("name", name, Name::new)?);
        Ok(self)
    }

    /// Sets the zone that this instance runs in, by default `default`.
    ///
    /// # Errors
    /// When the zone's name is invalid.
    pub fn zone(mut self, zone: &str) -> Result<Self, BuildError> {
        self.zone = named("zone", zone, Zone::new)?;
        Ok(self)
    }

    /// Sets the aggregator of the zone, as `https://HOST:PORT` or `http://HOST:PORT`; see
    /// [`aggregators`](Self::aggregators).
    ///
    /// # Errors
    /// When the address is malformed.
    pub fn aggregator(self, address: &str) -> Result<Self, BuildError> {
        self.aggregators(&[address])
    }

    /// Sets the aggregators of the zone: `https://HOST:PORT` each, for streams over mutual TLS with the
    /// [certificates](Self::certificates), or `http://HOST:PORT` each, for plaintext; at most
    /// [`ENDPOINTS_MAX`](crate::ENDPOINTS_MAX). Or `dns://HOST:PORT` alone, for all addresses that the name resolves
    /// to, now and later, over mutual TLS if the limiter has certificates. Plaintext is for loopback addresses,
    /// unless it is [allowed anywhere](Self::insecure).
    ///
    /// Buckets are assigned to aggregators by a hash of `HOST:PORT`, so every client of a zone must be given the same
    /// spelling of it.
    ///
    /// # Errors
    /// When an address is malformed, or the list is empty.
    pub fn aggregators<S: AsRef<str>>(mut self, addresses: &[S]) -> Result<Self, BuildError> {
        if addresses.is_empty() {
            return Err(BuildError::NoAggregators);
        }
        let addresses: Vec<&str> = addresses.iter().map(AsRef::as_ref).collect();
        let malformed = |address: &str| BuildError::Address { address: address.to_owned() };
        self.addresses = Addresses::of(&addresses).map_err(malformed)?;
        Ok(self)
    }

    /// Sets the directory with this service's certificate, `tls.crt`, its key, `tls.key`, and the authorities of its
    /// peers, `ca.crt`, all PEM. The certificate must name the zone and the service of this limiter, as
    /// `spiffe://TRUST-DOMAIN/plimsoll/zone/ZONE/service/SERVICE`. The [feed](Feed) reads the files again when they
    /// change.
    ///
    /// A service whose certificate has expired starts all the same, decides by the directives it has, and connects
    /// once the files are renewed.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn certificates(mut self, directory: impl Into<PathBuf>) -> Self {
        self.certificates = Some(directory.into());
        self
    }

    /// Allows plaintext to aggregators at any address, where others can read and change reports and directives. It is
    /// logged as a warning.
    #[must_use]
    pub fn insecure(mut self) -> Self {
        self.is_insecure = true;
        self
    }

    /// Sets how long one of several aggregators may be unreachable before its buckets fail over to the
    /// others, by default [`FAILOVER_DELAY_DEFAULT`]. It must be equal in all clients of a zone.
    #[must_use]
    pub fn failover_delay(mut self, delay: Duration) -> Self {
        self.failover_delay = delay;
        self
    }

    /// Caches directives in a file, so that the next process of this instance starts with them. The file's
    /// directory must exist and be writable; otherwise nothing is cached, which is logged and counted in the
    /// metrics. Instances must not share a file.
    #[must_use]
    pub fn directive_cache(mut self, path: impl Into<PathBuf>) -> Self {
        self.directive_cache = Some(path.into());
        self
    }

    /// Sets the kill file of this process: while the file exists, whatever it contains, every bucket is in
    /// shadow here. The [feed](Feed) checks it about every half second, off the request path.
    #[must_use]
    pub fn kill_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.kill_file = Some(path.into());
        self
    }

    /// Sets the unit by which a canary's share is divided, by default the instance. By key, the instance should have a
    /// [name](Self::name) that survives restarts: it chooses the same keys again.
    #[must_use]
    pub fn canary_by(mut self, by: CanaryBy) -> Self {
        self.canary_by = by;
        self
    }

    /// States that responses pass this process by, except those that are [recorded](Limiter::record): reports count the
    /// other admitted requests as unobserved, so that rollout gates know why they see no latency.
    #[must_use]
    pub fn responses_elsewhere(mut self) -> Self {
        self.observes_responses = false;
        self
    }

    /// Limits a bucket to `rps` requests/s on this instance while there is no directive for it: before the
    /// first one arrives, and while a restarted aggregator has no ratios yet. All tenants share the rate.
    /// Without it, every request is admitted and counted during that time.
    ///
    /// # Errors
    /// When the bucket's name is invalid, or the rate is negative or not finite.
    pub fn cold_rps(mut self, bucket: &str, rps: f64) -> Result<Self, BuildError> {
        let name = named("bucket", bucket, Bucket::new)?;
        self.cold.insert(name, Rate::new(rps)?);
        Ok(self)
    }

    /// Sets the decision about requests of buckets whose policy is not known yet, by default to admit them. They are
    /// counted in `plimsoll_decisions_before_policy_total`. A bucket that no policy names is known as such.
    #[must_use]
    pub fn before_policy(mut self, decision: BeforePolicy) -> Self {
        self.before_policy = decision;
        self
    }

    /// Sets how long [`Limiter::ready`] waits for directives, by default [`READY_WITHIN_DEFAULT`].
    #[must_use]
    pub fn ready_within(mut self, time: Duration) -> Self {
        self.ready_within = time;
        self
    }

    /// Sets the largest number of keys, that is (bucket, tenant) pairs, with a state of their own, by default
    /// [`KEYS_MAX_DEFAULT`]. Further tenants share their bucket's default class.
    ///
    /// Memory for all keys is reserved at the start and committed on first use: about 130 bytes a key, and 56
    /// more for each thread that decides for it. The 130 are 113 for interned names (32 to 64 for the index,
    /// with the directive, 18 for the handles that refer to the key and the queue of free places, 36 for the
    /// log of new names, of which there is room for 4,096, and 6 for the frequency sketch) and 16 for a guard's
    /// tokens.
    ///
    /// While at least half of the places are free, a tenant gets one with its first request; after that, with
    /// about its eighth request within a second. A tenant is evicted after a minute without requests, or
    /// after ten seconds when more than three quarters of the places are taken. When no place is left, a
    /// tenant is evicted in favor of one that sends at least twice as many requests. At most 100,000, which is
    /// as many as an aggregator takes from one client.
    #[must_use]
    pub fn keys_max(mut self, keys_max: usize) -> Self {
        self.keys_max = keys_max.min(KEYS_MAX);
        self
    }

    /// Sets the largest number of buckets, by default [`BUCKETS_MAX_DEFAULT`](crate::BUCKETS_MAX_DEFAULT) and at most
    /// 4,096. Half of them are for buckets that the service [declares](Limiter::bucket); names that only requests bring
    /// share the other half. Each bucket takes one of the [keys](Self::keys_max) for its default class. An aggregator
    /// has room for every bucket that the policy names, and for 1,024 others of one client.
    #[must_use]
    pub fn buckets_max(mut self, buckets_max: usize) -> Self {
        self.buckets_max = buckets_max.clamp(1, BUCKETS_MAX);
        self
    }

    /// Builds the limiter, and the feed that keeps its directives up to date.
    ///
    /// # Errors
    /// When an aggregator would be reached in plaintext without permission, the certificates cannot be used or are
    /// those of another service, or the operating system provides no random seed.
    pub fn build(self) -> Result<(Limiter, Feed), BuildError> {
        let seed = rng::seed_process()?;
        let mut instance = [0; 16];
        getrandom::fill(&mut instance)?;
        let owner = Owner { service: self.service.clone(), zone: self.zone.clone() };
        let security = self.security()?;
        let lifecycle = Lifecycle::new(self.name.clone().map(|name| (self.service.clone(), name)));
        let identity = Identity {
            instance: InstanceId(u128::from_be_bytes(instance)),
            name: self.name.unwrap_or_else(|| host_and_process(&self.service)),
            service: self.service,
            zone: self.zone,
            role: Role::Client,
        };
        let zone = owner.zone.to_string();
        let mut table = Table::with_buckets(self.keys_max, self.buckets_max, thread_slots(), seed);
        table.before_policy = self.before_policy.word();
        // Whoever sets this variable of earlier versions wants to stop refusals.
        if let Some(value) = std::env::var_os("PLIMSOLL_KILL") {
            return Err(BuildError::Variable {
                name: "PLIMSOLL_KILL",
                value: value.to_string_lossy().into_owned(),
                cause:
                    "unset it, and create the kill file to stop refusals (PLIMSOLL_KILL_FILE, --kill-file)"
                        .to_owned(),
            });
        }
        let table = Arc::new(table);
        #[cfg(feature = "quota")]
        quota::set_store(&table, self.quota_store.as_ref())?;
        let mut subscription = Subscription::new(identity, Arc::clone(&table));
        subscription.divide_canary(self.canary_by);
        if !self.observes_responses {
            subscription.count_unobserved();
        }
        let aggregators = self.addresses.aggregators;
        if matches!(aggregators, Aggregators::List(_) | Aggregators::ByName(_)) {
            subscription.use_several_aggregators(self.failover_delay);
        }
        let cache = self.directive_cache.map(|path| CacheFile::new(path, owner));
        let (restored, snapshot) = cache.as_ref().map_or((Restored::Nothing, None), CacheFile::read);
        if let Some(snapshot) = snapshot {
            subscription.restore(snapshot);
        }
        let local_kill = LocalKill(self.kill_file);
        local_kill.begin(&mut subscription);
        let has_cold_rates = !self.cold.is_empty();
        for (bucket, rate) in self.cold {
            // Declared before the first request, so that the rate holds from the start. Without room in the
            // table, the bucket's requests are admitted like those of any other bucket without room.
            if let Ok(None) = table.declare(bucket.as_str()) {
                table.raise_full(bucket.as_str());
            }
            subscription.set_cold_rate(bucket, rate);
        }
        let control = Arc::new(Control {
            table: Arc::clone(&table),
            subscription: Shared::new(subscription),
            aggregators,
            security,
            cache,
            has_cold_rates,
            before_policy: self.before_policy,
            ready_within: self.ready_within,
            local_kill,
            counters: Arc::new(Counters { zone, restored, ..Counters::default() }),
            lifecycle,
        });
        if matches!(control.aggregators, Aggregators::None) {
            control.table.problems.raise(SetupProblem::NoAggregator);
        }
        control.watch();
        Ok((Limiter { table, control: Some(Arc::clone(&control)) }, Feed { control }))
    }
}

/// The number of threads with counters of their own: runtimes have a thread for each core, and some services
/// have two runtimes.
fn thread_slots() -> usize {
    std::thread::available_parallelism()
        .map_or(THREAD_SLOTS_MIN, |cores| cores.get() * 2)
        .clamp(THREAD_SLOTS_MIN, THREAD_SLOTS_MAX)
}

fn host_and_process(service: &Name) -> Name {
    let host = plimsoll_host::hostname().unwrap_or_default();
    let name = format!("{host}:{}", std::process::id());
    Name::new(&name).unwrap_or_else(|_| service.clone())
}
