//! How a service sets its limiter up.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::names::{Bucket, InvalidName, Name, Zone};
use plimsoll_core::quantity::{InvalidRate, Rate};
use plimsoll_core::report::{Identity, InstanceId, Role};
use plimsoll_proto::shared::Shared;
use plimsoll_proto::transport::InvalidEndpoint;

use crate::hot::rng;
use crate::assignment::endpoints::Aggregators;
use crate::feed::{Feed, Health, LocalKill, VARIABLE};
use crate::cache::file::{Found, Keepsake};
use crate::cache::directive_cache::Owner;
use crate::limiter::{KEYS_MAX_DEFAULT, Limiter};
use crate::hot::thread_slots::SEATS_MAX;
use crate::assignment::GRACE;
use crate::subscription::Subscription;
use crate::hot::table::Table;

/// The fewest threads that have cells of their own.
const SEATS_LEAST: usize = 8;

/// What a limiter has to know before it starts.
#[derive(Clone, Debug)]
pub struct Settings {
    service: Name,
    name: Option<Name>,
    zone: Zone,
    aggregators: Aggregators,
    grace: Duration,
    keys_max: usize,
    directives: Option<PathBuf>,
    cold: BTreeMap<Bucket, Rate>,
    kill_file: Option<PathBuf>,
}

/// Why a limiter cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A name breaks the rule of names.
    #[error("{what} `{name}`: {source}")]
    Name {
        /// What it should name.
        what: &'static str,
        /// What was given.
        name: String,
        /// What is wrong with it.
        source: InvalidName,
    },
    /// An aggregator's address cannot be used.
    #[error(transparent)]
    Aggregator(#[from] InvalidEndpoint),
    /// A rate that is none.
    #[error("cold_rps: {0}")]
    Rate(#[from] InvalidRate),
    /// The system gave no randomness to seed the coins with.
    #[error("the system gave no randomness: {0}")]
    Entropy(#[from] getrandom::Error),
}

fn named<N>(
    what: &'static str,
    name: &str,
    new: impl FnOnce(&str) -> Result<N, InvalidName>,
) -> Result<N, SettingsError> {
    new(name).map_err(|source| SettingsError::Name { what, name: name.to_owned(), source })
}

impl Settings {
    /// Settings for an instance of `service`, in the zone `default`, without an aggregator.
    ///
    /// # Errors
    /// When the service's name is invalid.
    pub fn new(service: &str) -> Result<Self, SettingsError> {
        Ok(Self {
            service: named("service", service, Name::new)?,
            name: None,
            zone: named("zone", "default", Zone::new)?,
            aggregators: Aggregators::None,
            grace: GRACE,
            keys_max: KEYS_MAX_DEFAULT,
            directives: None,
            cold: BTreeMap::new(),
            kill_file: None,
        })
    }

    /// A name for this instance that outlives restarts, such as `host:port`. Without one, the host and the process
    /// id serve.
    ///
    /// # Errors
    /// When the name is invalid.
    pub fn name(mut self, name: &str) -> Result<Self, SettingsError> {
        self.name = Some(named("name", name, Name::new)?);
        Ok(self)
    }

    /// The zone this instance runs in.
    ///
    /// # Errors
    /// When the zone's name is invalid.
    pub fn zone(mut self, zone: &str) -> Result<Self, SettingsError> {
        self.zone = named("zone", zone, Zone::new)?;
        Ok(self)
    }

    /// The aggregator of the zone, as `http://HOST:PORT`.
    ///
    /// # Errors
    /// When it is no such address.
    pub fn aggregator(self, address: &str) -> Result<Self, SettingsError> {
        self.aggregators(&[address])
    }

    /// The aggregators of the zone, as `http://HOST:PORT` each, at most [`ENDPOINTS_MAX`](crate::ENDPOINTS_MAX); or
    /// `dns://HOST:PORT` alone, for all addresses that the name stands for, now and later. Buckets are spread over
    /// them by the addresses as they are written here, so every client of a zone has to write them alike.
    ///
    /// # Errors
    /// When one of them is no such address.
    pub fn aggregators<S: AsRef<str>>(mut self, addresses: &[S]) -> Result<Self, SettingsError> {
        self.aggregators = Aggregators::of(addresses)?;
        Ok(self)
    }

    /// How long one of several aggregators may be away before its buckets go to the others, by default [`GRACE`]. To be
    /// the same in every client of a zone.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// A file in which directives are kept for the next process of this instance, which then starts from them instead
    /// of from nothing. Its directory must exist and be writable; where it is not, nothing is kept and nothing else
    /// happens. No two instances may share it.
    #[must_use]
    pub fn directives(mut self, path: impl Into<PathBuf>) -> Self {
        self.directives = Some(path.into());
        self
    }

    /// A file that kills this process alone: while it exists, whatever is in it, every bucket is in shadow here. It is
    /// looked at about every half second by the [feed](Feed), off the request path. The same holds for the whole life of
    /// a process that has `PLIMSOLL_KILL` in its environment, as `1`, `true` or `on`.
    #[must_use]
    pub fn kill_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.kill_file = Some(path.into());
        self
    }

    /// Lets at most so many requests/s of a bucket pass this instance while nothing was directed for it: before the
    /// first directive, and while an aggregator that has just started does not know any ratios yet. Without it
    /// everything passes and is counted. All tenants share it.
    ///
    /// # Errors
    /// When the bucket's name is invalid, or the rate is negative or not finite.
    pub fn cold_rps(mut self, bucket: &str, rps: f64) -> Result<Self, SettingsError> {
        let name = named("bucket", bucket, Bucket::new)?;
        self.cold.insert(name, Rate::new(rps)?);
        Ok(self)
    }

    /// The most (bucket, tenant) pairs told apart, by default [`KEYS_MAX_DEFAULT`]; beyond it tenants share their
    /// bucket's default class. Memory for all of them is set aside at the start, and taken when it is first used: about 126
    /// bytes each, and 56 more for each thread that decides for it. The 126 are 102 for names (64 for the name itself, 10
    /// for the rest of the longest, 13 for the index, 9 for who holds on to it and its place in line, 6 to count the names
    /// that wait; with up to 9 more where the number is just above a power of two), 16 for a guard's tokens and 8 for what
    /// is directed. One name in eight may be longer than 56 bytes.
    ///
    /// While half of the places are free, a tenant has one of its own from its first request on; after that, when it was
    /// asked for about eight times within a second. Tenants that nobody asks for in a minute give theirs back, in ten
    /// seconds when more than three quarters are taken, and when there are none left those that are asked for least
    /// give way to those that are asked for at least twice as often.
    #[must_use]
    pub fn keys_max(mut self, keys_max: usize) -> Self {
        self.keys_max = keys_max;
        self
    }

    /// Makes the limiter and the feed that keeps it up to date.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn build(self) -> Result<(Limiter, Feed), SettingsError> {
        let seed = rng::seed_process()?;
        let mut instance = [0; 16];
        getrandom::fill(&mut instance)?;
        let owner = Owner { service: self.service.clone(), zone: self.zone.clone() };
        let identity = Identity {
            instance: InstanceId(u128::from_be_bytes(instance)),
            name: self.name.unwrap_or_else(|| host_and_process(&self.service)),
            service: self.service,
            zone: self.zone,
            role: Role::Client,
        };
        let table = Arc::new(Table::new(self.keys_max, seats(), seed));
        let mut subscription = Subscription::new(identity, Arc::clone(&table));
        if matches!(self.aggregators, Aggregators::List(_) | Aggregators::ByName(_)) {
            subscription.spread_over_several(self.grace);
        }
        let keepsake = self.directives.map(|path| Keepsake::new(path, owner));
        let (found, kept) = keepsake.as_ref().map_or((Found::Nothing, None), Keepsake::read);
        kept.into_iter().for_each(|kept| subscription.restore(kept));
        let local_kill = LocalKill::new(std::env::var_os(VARIABLE).as_deref(), self.kill_file);
        local_kill.begin(&mut subscription);
        let cold = !self.cold.is_empty();
        for (bucket, rate) in self.cold {
            // In force before the first request, and asked for before there is one. Where there is no room, the bucket
            // is admitted like any other that finds none.
            let _ = table.declare(bucket.as_str());
            subscription.set_cold(bucket, rate);
        }
        let feed = Feed {
            subscription: Shared::new(subscription),
            aggregators: self.aggregators,
            keepsake,
            cold,
            local_kill,
            health: Arc::new(Health::new(found)),
        };
        Ok((Limiter { table }, feed))
    }
}

/// How many threads have cells of their own: runtimes have a thread for each core, and some services two such runtimes.
fn seats() -> usize {
    std::thread::available_parallelism()
        .map_or(SEATS_LEAST, |cores| cores.get() * 2)
        .clamp(SEATS_LEAST, SEATS_MAX)
}

fn host_and_process(service: &Name) -> Name {
    let host = std::env::var("HOSTNAME")
        .or_else(|_| std::fs::read_to_string("/proc/sys/kernel/hostname"))
        .unwrap_or_default();
    let name = format!("{}:{}", host.trim(), std::process::id());
    Name::new(&name).unwrap_or_else(|_| service.clone())
}
