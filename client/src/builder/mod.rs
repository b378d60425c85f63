//! The builder of a limiter and its feed.

mod env;
mod error;
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
use plimsoll_host::Shared;

use crate::feed::cache::{CacheFile, Owner};
use crate::feed::{Control, Counters, Feed, FeedHandle, Lifecycle, LocalKill};
use crate::hot::rng;
use crate::hot::table::{BUCKETS_MAX, BUCKETS_MAX_DEFAULT, Table};
use crate::hot::thread_counters::slots::THREAD_SLOTS_MAX;
#[cfg(feature = "quota")]
use crate::limiter::quota::Quotas;
use crate::limiter::{BeforePolicy, KEYS_MAX_DEFAULT, Limiter};
use crate::setup::SetupProblem;
use crate::subscription::assignment::FAILOVER_DELAY_DEFAULT;
use crate::subscription::assignment::endpoints::{Addresses, Aggregators};
use crate::subscription::{CanaryBy, Subscription};

const THREAD_SLOTS_MIN: usize = 8;

/// Maximum number of keys of a limiter. An aggregator takes as many from one client.
const KEYS_MAX: usize = 100_000;

/// Default time that [`Limiter::ready`] waits: a start without the control plane must not last longer.
pub const READY_WITHIN_DEFAULT: Duration = Duration::from_secs(5);

/// Configures and makes a [`Limiter`] and its feed. Made by [`Limiter::builder`]. An invalid value is an error of
/// [`build`](Self::build).
#[derive(Debug, Default)]
#[must_use = "a builder does nothing until it builds"]
pub struct LimiterBuilder {
    /// The first error, which `build` returns.
    error: Option<BuildError>,
    service: Option<Name>,
    name: Option<Name>,
    zone: Option<Zone>,
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

impl Limiter {
    /// Starts to configure a limiter for an instance of `service`, in the zone `default`, without an
    /// aggregator.
    pub fn builder(service: &str) -> LimiterBuilder {
        LimiterBuilder::new(service)
    }

    /// Starts to configure a limiter for an instance of `service` by the environment of this process, under the names
    /// that [`LimiterBuilder::variables`] lists.
    pub fn from_env(service: &str) -> LimiterBuilder {
        LimiterBuilder::new(service).variables(std::env::vars_os())
    }
}

impl LimiterBuilder {
    fn new(service: &str) -> Self {
        let builder = Self {
            failover_delay: FAILOVER_DELAY_DEFAULT,
            keys_max: KEYS_MAX_DEFAULT,
            buckets_max: BUCKETS_MAX_DEFAULT,
            ready_within: READY_WITHIN_DEFAULT,
            observes_responses: true,
            ..Self::default()
        };
        builder
            .set(|builder| {
                builder.service = Some(named("service", service, Name::new)?);
                Ok(())
            })
            .zone("default")
    }

    fn set(mut self, set: impl FnOnce(&mut Self) -> Result<(), BuildError>) -> Self {
        if let Err(error) = set(&mut self) {
            self.error.get_or_insert(error);
        }
        self
    }

    /// Names this instance by a name that survives restarts, such as `host:port`. The default is made of the
    /// host and the process id.
    pub fn name(self, name: &str) -> Self {
        self.set(|builder| {
            builder.name = Some(named("name", name, Name::new)?);
            Ok(())
        })
    }

    /// Sets the zone that this instance runs in, by default `default`.
    pub fn zone(self, zone: &str) -> Self {
        self.set(|builder| {
            builder.zone = Some(named("zone", zone, Zone::new)?);
            Ok(())
        })
    }

    /// Sets the aggregator of the zone, as `https://HOST:PORT` or `http://HOST:PORT`; see
    /// [`aggregators`](Self::aggregators).
    pub fn aggregator(self, address: &str) -> Self {
        self.aggregators(&[address])
    }

    /// Sets the aggregators of the zone: `https://HOST:PORT` each, for streams over mutual TLS with
    /// the [certificates](Self::certificates), or `http://HOST:PORT` each, for plaintext; at most
    /// [`ENDPOINTS_MAX`](crate::ENDPOINTS_MAX). Or only `dns://HOST:PORT`, for all addresses that
    /// the name resolves to, now and later, over mutual TLS if the limiter has certificates.
    /// Plaintext is for loopback addresses, unless it is [allowed anywhere](Self::insecure).
    ///
    /// Buckets are assigned to aggregators by a hash of `HOST:PORT`, so every client of a zone must
    /// be given the same spelling of it.
    pub fn aggregators<S: AsRef<str>>(self, addresses: &[S]) -> Self {
        self.set(|builder| {
            if addresses.is_empty() {
                return Err(BuildError::NoAggregators);
            }
            let addresses: Vec<&str> = addresses.iter().map(AsRef::as_ref).collect();
            let malformed = |address: &str| BuildError::Address {
                address: address.to_owned(),
            };
            builder.addresses = Addresses::of(&addresses).map_err(malformed)?;
            Ok(())
        })
    }

    /// Sets the directory with this service's certificate, `tls.crt`, its key, `tls.key`, and the
    /// authorities of its peers, `ca.crt`, all PEM. The certificate must name the zone and the
    /// service of this limiter, as `spiffe://TRUST-DOMAIN/plimsoll/zone/ZONE/service/SERVICE`. The
    /// [feed](Feed) reads the files again when they change.
    ///
    /// A service with an expired certificate starts anyway, decides by the directives it has, and
    /// connects once the files are renewed.
    #[cfg(feature = "tls")]
    pub fn certificates(mut self, directory: impl Into<PathBuf>) -> Self {
        self.certificates = Some(directory.into());
        self
    }

    /// Allows plaintext to aggregators at any address, where others can read and change reports and directives. It is
    /// logged as a warning.
    pub fn insecure(mut self) -> Self {
        self.is_insecure = true;
        self
    }

    /// Sets how long one of several aggregators may be unreachable before its buckets fail over to the
    /// others, by default [`FAILOVER_DELAY_DEFAULT`]. It must be equal in all clients of a zone.
    pub fn failover_delay(mut self, delay: Duration) -> Self {
        self.failover_delay = delay;
        self
    }

    /// Caches directives in a file, so that the next process of this instance starts with them. The file's
    /// directory must exist and be writable; otherwise nothing is cached, which is logged and counted in the
    /// metrics. Instances must not share a file.
    pub fn directive_cache(mut self, path: impl Into<PathBuf>) -> Self {
        self.directive_cache = Some(path.into());
        self
    }

    /// Sets the kill file of this process: while the file exists, with any content, every bucket is
    /// in shadow here. The [feed](Feed) checks it about every half second, off the request path.
    pub fn kill_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.kill_file = Some(path.into());
        self
    }

    /// Sets the unit that divides a canary's share, by default the instance. By key, the instance
    /// should have a [name](Self::name) that survives restarts: it chooses the same keys again.
    pub fn canary_by(mut self, by: CanaryBy) -> Self {
        self.canary_by = by;
        self
    }

    /// States that responses pass this process by, except [recorded](Limiter::record) ones: reports
    /// count the other admitted requests as unobserved, so that rollout gates know why they see no
    /// latency.
    pub fn responses_elsewhere(mut self) -> Self {
        self.observes_responses = false;
        self
    }

    /// Limits a bucket to `rps` requests/s on this instance while there is no directive for it: before the
    /// first one arrives, and while a restarted aggregator has no ratios yet. All tenants share the rate.
    /// Without it, every request is admitted and counted during that time, unless `before_policy` denies.
    pub fn cold_rps(self, bucket: &str, rps: f64) -> Self {
        self.set(|builder| {
            builder
                .cold
                .insert(named("bucket", bucket, Bucket::new)?, Rate::new(rps)?);
            Ok(())
        })
    }

    /// Sets the decision about requests of buckets without a known policy, by default to admit
    /// them. They are counted in `plimsoll_decisions_before_policy_total`. A bucket that no policy
    /// names is known as such.
    pub fn before_policy(mut self, decision: BeforePolicy) -> Self {
        self.before_policy = decision;
        self
    }

    /// Sets how long [`Limiter::ready`] waits for directives, by default [`READY_WITHIN_DEFAULT`].
    pub fn ready_within(mut self, time: Duration) -> Self {
        self.ready_within = time;
        self
    }

    /// Sets the maximum number of keys, that is (bucket, tenant) pairs, with their own state, by
    /// default [`KEYS_MAX_DEFAULT`]. Further tenants share their bucket's default class.
    ///
    /// Memory for all keys is reserved at the start and committed on first use: about 140 bytes a
    /// key, and 56 more for each thread that decides for it. At the default, the 140 are 113 for
    /// interned names (32 to 64 for the index, with the directive, 18 for the handles that refer to
    /// the key and the queue of free places, 36 for the log of up to 4,096 new names, and 6 for the
    /// frequency sketch), 24 for a guard's tokens and 4 for the plan.
    ///
    /// While at least half of the places are free, a tenant gets one with its first request; after
    /// that, with about its eighth request within a second. A tenant is evicted after a minute
    /// without requests, or after ten seconds when more than three quarters of the places are
    /// taken. When fewer than a sixteenth are free, a tenant is evicted in favor of another tenant
    /// with at least twice as many requests. At most 100,000, which is as many as an aggregator
    /// takes from one client.
    pub fn keys_max(mut self, keys_max: usize) -> Self {
        self.keys_max = keys_max.min(KEYS_MAX);
        self
    }

    /// Sets the maximum number of buckets, by default
    /// [`BUCKETS_MAX_DEFAULT`](crate::BUCKETS_MAX_DEFAULT) and at most 4,096. Half of them are for
    /// buckets that the service [declares](Limiter::bucket); names that only requests bring share
    /// the other half. Each bucket takes one of the [keys](Self::keys_max) for its default class.
    /// An aggregator has room for every bucket that the policy names, and for 1,024 others of one
    /// client.
    pub fn buckets_max(mut self, buckets_max: usize) -> Self {
        self.buckets_max = buckets_max.clamp(1, BUCKETS_MAX);
        self
    }

    /// Sets the store of exact quotas: a quota server of Plimsoll, or Redis. The policy defines the quotas, which
    /// arrive with the directives. Without a store they are not enforced here, which is a
    /// [setup problem](Limiter::setup_problems).
    ///
    /// [`Limiter::check_async`] and the middleware ask the store. The feed connects to it when it starts, and gives
    /// leases back when it is shut down.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use plimsoll_client::{Limiter, QuotaStore};
    ///
    /// let store = QuotaStore::new("plimsolls://quota.internal:9049")?.password_file("/run/secrets/quota");
    /// let (limiter, feed) = Limiter::builder("shop").aggregator("http://127.0.0.1:7410").quota_store(store).build()?;
    /// # drop((limiter, feed));
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "quota")]
    pub fn quota_store(mut self, store: crate::QuotaStore) -> Self {
        self.quota_store = Some(store);
        self
    }

    /// Builds the limiter, and runs the feed that keeps its directives up to date on the present
    /// tokio runtime, which must have its timer and its IO enabled. A limiter whose feed has
    /// nothing to do needs no runtime.
    ///
    /// # Errors
    /// If a setting is invalid, `PLIMSOLL_KILL` is set, an aggregator would be reached in plaintext
    /// without permission, the certificates cannot be used or belong to another service, the
    /// operating system provides no random seed, there is no runtime, or another feed of this process runs for an instance of
    /// the same [name](Self::name).
    pub fn build(self) -> Result<(Limiter, FeedHandle), BuildError> {
        let (limiter, feed) = self.build_detached()?;
        Ok((limiter, feed.spawn()?))
    }

    /// Builds the limiter, and a feed that the caller [runs](Feed::run), on another runtime or among its own tasks.
    ///
    /// # Errors
    /// As for [`build`](Self::build), but for the runtime and for another feed, which are errors of the feed.
    pub fn build_detached(mut self) -> Result<(Limiter, Feed), BuildError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let (service, zone) = (self.service.take(), self.zone.take());
        let owner = service
            .zip(zone)
            .map(|(service, zone)| Owner { service, zone });
        // Both are set: an invalid one was returned above.
        let owner = owner.ok_or(BuildError::NoAggregators)?;
        let seed = rng::seed_process()?;
        let mut instance = [0; 16];
        getrandom::fill(&mut instance)?;
        let security = self.security(&owner)?;
        let lifecycle = Lifecycle::new(self.name.clone().map(|name| (owner.service.clone(), name)));
        let identity = Identity {
            instance: InstanceId(u128::from_be_bytes(instance)),
            name: self
                .name
                .unwrap_or_else(|| host_and_process(&owner.service)),
            service: owner.service.clone(),
            zone: owner.zone.clone(),
            role: Role::Client,
        };
        let zone = owner.zone.to_string();
        let mut table = Table::with_buckets(self.keys_max, self.buckets_max, thread_slots(), seed);
        table.before_policy = self.before_policy.word();
        // An operator who sets this variable of earlier versions wants to stop refusals.
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
        if let Some(store) = &self.quota_store {
            table.layered.set_store(Quotas::new(store)?);
        }
        let mut subscription = Subscription::new(identity, Arc::clone(&table));
        subscription.divide_canary(self.canary_by);
        if !self.observes_responses {
            subscription.count_unobserved();
        }
        let aggregators = self.addresses.aggregators;
        if matches!(aggregators, Aggregators::List(_) | Aggregators::ByName(_)) {
            subscription.use_several_aggregators(self.failover_delay);
        }
        if !matches!(aggregators, Aggregators::None) {
            subscription.expect_answer(aggregators.to_string());
        }
        let cache = self.directive_cache.map(|path| CacheFile::new(path, owner));
        if let Some(directives) = cache.as_ref().and_then(CacheFile::read) {
            subscription.restore(directives);
        }
        let local_kill = LocalKill(self.kill_file);
        local_kill.begin(&mut subscription);
        let has_cold_rates = !self.cold.is_empty();
        for (bucket, rate) in self.cold {
            // Declared before the first request, so that the rate holds from the start. Without
            // room in the table, the bucket's requests are admitted.
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
            counters: Arc::new(Counters {
                zone,
                ..Counters::default()
            }),
            lifecycle,
        });
        if matches!(control.aggregators, Aggregators::None) {
            control.table.problems.raise(SetupProblem::NoAggregator);
        }
        Ok((
            Limiter {
                table,
                control: Some(Arc::clone(&control)),
            },
            Feed { control },
        ))
    }
}

/// Number of threads with their own counters: runtimes have a thread for each core, and some
/// services have two runtimes.
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
