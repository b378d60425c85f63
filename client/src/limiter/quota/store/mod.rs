//! The stores of exact quotas: what is asked of them, and the kinds of failure.

mod commands;
mod connections;
mod hint;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::names::{DEFAULT_TENANT, check_tenant};
use plimsoll_core::quota::{OnStoreError, Quota, QuotaKey, QuotaRate};
use tokio::time::timeout;

use super::book::{Demand, EVERY_TENANT, Key, Reply};
use super::config::{QuotaStore, QuotaStoreError, StoreKind};
#[cfg(all(test, not(feature = "loom")))]
use super::tests::memory::Memory;
use commands::{Dialect, give_command, parse, take_command};
use connections::CONNECT_MAX;
use connections::Connections;
pub(super) use connections::LATE_MAX;

/// The keys of one take, at most, as at the quota server.
const KEYS_PER_TAKE_MAX: usize = 64;

#[derive(Clone)]
pub(super) struct Ask {
    pub(super) key: Key,
    pub(super) demand: Demand,
}

impl Ask {
    /// Asks for exactly these tokens, or none.
    pub(super) const fn all(key: Key, tokens: u64) -> Self {
        Self {
            key,
            demand: Demand {
                least: tokens,
                wanted: tokens,
            },
        }
    }

    /// Makes the demand of no tokens of a bucket that no policy has, for a question to a store without a request.
    fn of_nothing() -> Option<Self> {
        let rate = QuotaRate::new(1, 1, 1_000).ok()?;
        // A quota server answers this key for any access token.
        let name = "plimsoll-start".parse().ok()?;
        let quota = Quota::new(name, rate, QuotaKey::Tenant, OnStoreError::Deny, 1).ok()?;
        let (quota, tenant) = (Arc::new(quota), DEFAULT_TENANT.into());
        Some(Self::all(Key { quota, tenant }, 0))
    }
}

impl Key {
    /// Returns the tenant in the keys of a store: one with an invalid name is the default class.
    pub(super) fn stored_tenant(&self) -> &str {
        match (&*self.tenant, self.quota.key) {
            (_, QuotaKey::Global) => EVERY_TENANT,
            (tenant, QuotaKey::Tenant) if check_tenant(tenant).is_ok() => tenant,
            _ => DEFAULT_TENANT,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Failure {
    Timeout,
    Connection,
    /// The store is loading, in a failover or overloaded.
    Busy,
    /// The quota server cannot save debits now.
    Unavailable,
    /// Any other error that the server replies, or a reply that is no answer.
    Reply,
    /// The store was not asked: the breaker is open, or the caller does not wait.
    Open,
    /// Too many calls wait already.
    Overflow,
}

impl Failure {
    /// In the order of the variants.
    pub(crate) const WORDS: [&str; 7] = [
        "timeout",
        "connection",
        "busy",
        "unavailable",
        "error",
        "not_asked",
        "overflow",
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        Self::WORDS[self as usize]
    }
}

pub(super) enum Store {
    Remote {
        dialect: Dialect,
        connections: Box<Connections>,
    },
    #[cfg(all(test, not(feature = "loom")))]
    Memory(Memory),
}

impl Store {
    pub(super) fn new(config: &QuotaStore, seed: u64) -> Result<Self, QuotaStoreError> {
        let dialect = match config.kind {
            StoreKind::Server => Dialect::Server,
            StoreKind::Redis | StoreKind::Cluster => Dialect::redis(seed),
        };
        Ok(Self::Remote {
            dialect,
            connections: Box::new(Connections::new(config.clone())?),
        })
    }

    /// Returns the groups of keys that one take can debit, by index, in their order. At Redis
    /// Cluster a group has the keys of one tenant, the hash tag of a key.
    pub(super) fn groups(&self, asks: &[Ask]) -> Vec<Vec<usize>> {
        let is_cluster = self.connections().is_some_and(Connections::is_cluster);
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (at, ask) in asks.iter().enumerate() {
            let is_of_tenant = |other: &usize| {
                let other = asks.get(*other).map(|other| other.key.stored_tenant());
                other == Some(ask.key.stored_tenant())
            };
            let has_room = |group: &&mut Vec<usize>| {
                group.len() < KEYS_PER_TAKE_MAX
                    && (!is_cluster || group.first().is_some_and(is_of_tenant))
            };
            match groups.iter_mut().find(has_room) {
                Some(group) => group.push(at),
                None => groups.push(vec![at]),
            }
        }
        groups
    }

    /// Takes from all buckets, which are in one group, or from none.
    pub(super) async fn take(&self, asks: &[Ask]) -> Result<Vec<Reply>, Failure> {
        match self {
            Self::Remote {
                dialect,
                connections,
            } => {
                let value = connections
                    .run(|with_script| take_command(dialect, asks, with_script))
                    .await?;
                parse(value, asks).ok_or(Failure::Reply)
            }
            #[cfg(all(test, not(feature = "loom")))]
            Self::Memory(memory) => memory.take(asks).await,
        }
    }

    pub(super) async fn give(&self, key: &Key, tokens: u64) -> Result<(), Failure> {
        match self {
            Self::Remote {
                dialect,
                connections,
            } => {
                // One mark for all attempts, so that a repeated give counts once.
                let mark = dialect.next_mark();
                connections
                    .run(|with_script| give_command(dialect, key, tokens, mark, with_script))
                    .await
                    .map(drop)
            }
            #[cfg(all(test, not(feature = "loom")))]
            Self::Memory(memory) => memory.give(key, tokens).await,
        }
    }

    /// Connects, and takes nothing from a bucket once.
    pub(super) async fn greet(&self) -> Result<(), Failure> {
        let greeted = async {
            if let Some(connections) = self.connections() {
                connections.connect().await?;
            }
            self.probe().await
        };
        timeout(CONNECT_MAX * 2, greeted)
            .await
            .unwrap_or(Err(Failure::Timeout))
    }

    /// Takes nothing from a bucket: a store that answers this answers requests, too.
    pub(super) async fn probe(&self) -> Result<(), Failure> {
        #[cfg(all(test, not(feature = "loom")))]
        if let Self::Memory(memory) = self {
            return memory.probe().await;
        }
        self.take(&[Ask::of_nothing().ok_or(Failure::Reply)?])
            .await
            .map(drop)
    }

    pub(super) fn fault(&self) -> Option<String> {
        self.connections()?.fault()
    }

    /// Closes the connections, so that the next call makes new ones.
    pub(super) async fn disconnect(&self) {
        if let Some(connections) = self.connections() {
            connections.close().await;
        }
    }

    fn connections(&self) -> Option<&Connections> {
        match self {
            Self::Remote { connections, .. } => Some(connections),
            #[cfg(all(test, not(feature = "loom")))]
            Self::Memory(_) => None,
        }
    }
}

fn millis(number: i64) -> Duration {
    Duration::from_millis(u64::try_from(number).unwrap_or(0))
}
