//! The limiter: what a service asks, once for each request.

use std::sync::Arc;

use plimsoll_core::bucket::InvalidName;
use plimsoll_core::report::{Counts, Identity};
use plimsoll_core::verdict::Verdict;

use crate::draws;
use crate::pin::Pin;
use crate::shard::Shard;
use crate::subscription::Subscription;
use crate::table::{BucketPlace, KeyPlace, Table};

/// The most keys a limiter tells apart unless told otherwise.
pub const KEYS_MAX_DEFAULT: usize = 10_000;

/// Decides which requests to admit, from directives that the [feed](crate::Feed) keeps up to date behind its back.
///
/// Cloning is cheap and gives another handle to the same limiter. A decision never blocks, allocates, makes a system
/// call or fails: where nothing is known, the request is admitted and counted.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (limiter, _feed) = plimsoll_client::Settings::new("shop")?.build()?;
/// let checkout = limiter.bucket("checkout")?;
/// assert!(checkout.admit("acme").is_admit());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Limiter {
    pub(crate) table: Arc<Table>,
}

/// A bucket, resolved once: the fastest way to decide by tenant name.
#[derive(Clone, Debug)]
pub struct BucketHandle {
    table: Arc<Table>,
    place: BucketPlace,
}

/// A key, resolved once: the fastest way to decide.
#[derive(Clone, Debug)]
pub struct KeyHandle {
    pub(crate) table: Arc<Table>,
    pub(crate) place: KeyPlace,
    /// Keeps the key from leaving while there is a handle; the default class never leaves.
    _pin: Option<Pin>,
}

/// Why a bucket cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BucketError {
    /// The name breaks the rule of names.
    #[error("bucket `{name}`: {source}")]
    Name {
        /// What was asked for.
        name: String,
        /// What is wrong with it.
        source: InvalidName,
    },
    /// The limiter has no room for another bucket or its default class.
    #[error("bucket `{0}`: the limiter's table is full; raise its keys_max")]
    Full(String),
}

impl Limiter {
    /// A limiter with nobody to carry its messages: the caller passes reports and directives to and fro and says
    /// what time it is. No clock, no socket and no entropy take part; `seed` is for the hashes of names.
    #[must_use]
    pub fn detached(identity: Identity, keys_max: usize, seed: u64) -> (Self, Subscription) {
        let table = Arc::new(Table::new(keys_max, seed));
        let subscription = Subscription::new(identity, Arc::clone(&table));
        (Self { table }, subscription)
    }

    /// A part of this limiter whose decisions are drawn from `seed` alone.
    #[must_use]
    pub fn shard(&self, seed: u64) -> Shard {
        Shard::new(Arc::clone(&self.table), seed)
    }

    /// Declares a bucket: its directives are asked for at once, before there is any traffic.
    ///
    /// # Errors
    /// When the name is invalid or the table is full.
    pub fn bucket(&self, name: &str) -> Result<BucketHandle, BucketError> {
        let declared = self.table.declare(name);
        let place = declared.map_err(|source| BucketError::Name { name: name.to_owned(), source })?;
        let place = place.ok_or_else(|| BucketError::Full(name.to_owned()))?;
        Ok(BucketHandle { table: Arc::clone(&self.table), place })
    }

    /// Decides by names. A tenant whose name is invalid, or for which there is no room, counts as the default class;
    /// a bucket for which there is none is admitted.
    pub fn admit(&self, bucket: &str, tenant: &str) -> Verdict {
        draws::with_thread(|thread| {
            let mut coins = self.table.stripes.of_thread(thread.number);
            self.table.admit(bucket, tenant, &mut coins, &mut thread.generator)
        })
    }
}

impl BucketHandle {
    /// Decides for a tenant by name; see [`Limiter::admit`].
    #[inline]
    pub fn admit(&self, tenant: &str) -> Verdict {
        let place = self.table.key(self.place, tenant);
        decide(&self.table, place)
    }

    /// Resolves a tenant's key once, which keeps its place in the table while the handle lives. A tenant without room, or
    /// with an invalid name, shares the default class.
    #[must_use]
    pub fn key(&self, tenant: &str) -> KeyHandle {
        let pin = Pin::new(&self.table, self.place.bucket, tenant);
        let key = pin.as_ref().map_or(self.place.default_key, Pin::key);
        let place = KeyPlace { key, default_key: self.place.default_key };
        KeyHandle { table: Arc::clone(&self.table), place, _pin: pin }
    }
}

impl KeyHandle {
    /// Decides for this key.
    #[inline]
    pub fn admit(&self) -> Verdict {
        decide(&self.table, self.place)
    }

    /// What was decided for this key so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.table.counters.read(self.place.key)
    }
}

/// Decides with what the present thread has: its generator and its coins.
#[inline]
fn decide(table: &Table, place: KeyPlace) -> Verdict {
    draws::with_thread(|thread| {
        table.decide(place, &mut table.stripes.of_thread(thread.number), &mut thread.generator)
    })
}
