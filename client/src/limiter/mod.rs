//! The limiter: what a service asks, once for each request.

pub(crate) mod shard;

use std::sync::Arc;

use plimsoll_core::names::InvalidName;
use plimsoll_core::quantity::DropRatio;
use plimsoll_core::report::{Counts, Identity};
use plimsoll_core::decision::trace::TraceId;
use plimsoll_core::decision::Verdict;

use crate::hot::decision::Desk;
use crate::hot::rng::OwnDraws;
use crate::interner::pin::Pin;
use crate::limiter::shard::Shard;
use crate::subscription::Subscription;
use crate::hot::table::{BucketPlace, KeyPlace, Table};

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
    #[cfg(feature = "middleware")]
    bucket: u32,
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

/// Where what becomes of a request is written down.
#[cfg(feature = "middleware")]
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) table: Arc<Table>,
    pub(crate) bucket: u32,
}

impl Limiter {
    /// A limiter with nobody to carry its messages: the caller passes reports and directives to and fro and says
    /// what time it is. No clock, no socket and no entropy take part; `seed` is for the hashes of names. So many threads at
    /// a time have cells of their own; 0 will do where only [shards](Self::shard) decide.
    #[must_use]
    pub fn detached(identity: Identity, keys_max: usize, threads: usize, seed: u64) -> (Self, Subscription) {
        let table = Arc::new(Table::new(keys_max, threads, seed));
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
        match self.table.place(bucket, tenant) {
            Some(place) => self.table.decide(place, &mut own_desk(&self.table)),
            None => Verdict::Admit,
        }
    }

    /// Decides by names for a request that may belong to a trace; see [`KeyHandle::admit_traced`].
    pub fn admit_traced(&self, bucket: &str, tenant: &str, trace: Option<TraceId>) -> Verdict {
        match self.table.place(bucket, tenant) {
            Some(place) => decide_traced(&self.table, place, || trace),
            None => Verdict::Admit,
        }
    }

    /// Decides for a request that several (bucket, tenant) pairs are asked for, such as one by workspace and one by user:
    /// by one independent draw, refused by the strictest of them, counted for all. One that is refused takes no token of
    /// any guard. All buckets must be this limiter's.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (limiter, _feed) = plimsoll_client::Settings::new("shop")?.build()?;
    /// let (workspaces, users) = (limiter.bucket("by-workspace")?, limiter.bucket("by-user")?);
    /// assert!(limiter.admit_all([(&workspaces, "acme"), (&users, "jo")]).is_admit());
    /// # Ok(()) }
    /// ```
    pub fn admit_all<const N: usize>(&self, asked: [(&BucketHandle, &str); N]) -> Verdict {
        self.admit_all_traced(asked, None)
    }

    /// The same for a request that may belong to a trace: where any of the buckets has a coherent coin, the one draw is that
    /// of the trace, for all of them. See [`KeyHandle::admit_traced`].
    pub fn admit_all_traced<const N: usize>(
        &self,
        asked: [(&BucketHandle, &str); N],
        trace: Option<TraceId>,
    ) -> Verdict {
        debug_assert!(asked.iter().all(|(bucket, _)| Arc::ptr_eq(&self.table, &bucket.table)));
        let places = asked.map(|(bucket, tenant)| self.table.key(bucket.place, tenant));
        self.table.decide_all(places, trace, &mut own_desk(&self.table))
    }
}

/// What would become of a request now, without asking: nothing is counted, drawn or taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// The probability that the coin refuses it, over all requests: of one that belongs to a trace a coherent coin has
    /// decided already, and says so only when it is asked.
    pub ratio: DropRatio,
    /// Whether refusals are carried out here: not in shadow, while killed, or outside the canary.
    pub enforced: bool,
    /// Whether a guard is set, and has nothing left until its next refill.
    pub exhausted: bool,
}

impl BucketHandle {
    /// Decides for a tenant by name; see [`Limiter::admit`].
    #[inline]
    pub fn admit(&self, tenant: &str) -> Verdict {
        let place = self.table.key(self.place, tenant);
        decide(&self.table, place)
    }

    /// Decides for a request that counts for `cost`; see [`KeyHandle::admit_n`].
    #[inline]
    pub fn admit_n(&self, tenant: &str, cost: u32) -> Verdict {
        decide_n(&self.table, self.table.key(self.place, tenant), cost)
    }

    /// Decides by a draw that the caller made; see [`KeyHandle::admit_with`].
    #[inline]
    pub fn admit_with(&self, tenant: &str, draw: u32) -> Verdict {
        decide_with(&self.table, self.table.key(self.place, tenant), draw)
    }

    /// Decides for a request that may belong to a trace; see [`KeyHandle::admit_traced`].
    #[inline]
    pub fn admit_traced(&self, tenant: &str, trace: Option<TraceId>) -> Verdict {
        self.admit_by_trace(tenant, || trace)
    }

    /// The same, asking for the trace only where it matters.
    #[inline]
    pub(crate) fn admit_by_trace(&self, tenant: &str, trace: impl FnOnce() -> Option<TraceId>) -> Verdict {
        decide_traced(&self.table, self.table.key(self.place, tenant), trace)
    }

    /// Watches what becomes of a request for this bucket.
    #[cfg(feature = "middleware")]
    pub(crate) fn watch(&self) -> Watch {
        Watch { table: Arc::clone(&self.table), bucket: self.place.bucket }
    }

    /// What would become of a tenant's request now; see [`KeyHandle::peek`]. A name that is new takes no room.
    #[must_use]
    pub fn peek(&self, tenant: &str) -> Outlook {
        self.table.outlook(self.table.known(self.place, tenant))
    }

    /// Resolves a tenant's key once, which keeps its place in the table while the handle lives. A tenant without room, or
    /// with an invalid name, shares the default class.
    #[must_use]
    pub fn key(&self, tenant: &str) -> KeyHandle {
        let pin = Pin::new(&self.table, self.place.bucket, tenant);
        let key = pin.as_ref().map_or(self.place.default_key, Pin::key);
        let place = KeyPlace { key, default_key: self.place.default_key };
        KeyHandle {
            table: Arc::clone(&self.table),
            place,
            #[cfg(feature = "middleware")]
            bucket: self.place.bucket,
            _pin: pin,
        }
    }
}

impl KeyHandle {
    /// Decides for this key.
    #[inline]
    pub fn admit(&self) -> Verdict {
        decide(&self.table, self.place)
    }

    /// Decides for a request that counts for `cost` ordinary ones: by one independent toss, admitted or refused whole, and
    /// `cost` tokens where there is a guard. One that costs more than the guard's depth passes when the guard is full,
    /// and leaves a debt. A cost of 0 is admitted and not counted.
    #[inline]
    pub fn admit_n(&self, cost: u32) -> Verdict {
        decide_n(&self.table, self.place, cost)
    }

    /// Decides by a draw that the caller made, uniform over all of `u32`, in place of a toss: the same draw is refused by
    /// every ratio from some point on, so that whoever decides by the same draw agrees. The guard decides as ever.
    #[inline]
    pub fn admit_with(&self, draw: u32) -> Verdict {
        decide_with(&self.table, self.place, draw)
    }

    /// Decides for a request that may belong to a trace. Where the bucket's coin is coherent, the draw is that of the trace:
    /// the same wherever in the fleet the request is asked for, so that of several services on its way the strictest decides
    /// for all of them. Without a trace, before the fleet's key was heard, and for any other coin this is
    /// [`admit`](Self::admit). The guard decides as ever.
    ///
    /// ```
    /// use plimsoll_client::TraceId;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (limiter, _feed) = plimsoll_client::Settings::new("shop")?.build()?;
    /// let key = limiter.bucket("checkout")?.key("acme");
    /// let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    /// assert!(key.admit_traced(TraceId::of_traceparent(traceparent.as_bytes())).is_admit());
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn admit_traced(&self, trace: Option<TraceId>) -> Verdict {
        decide_traced(&self.table, self.place, || trace)
    }

    /// The same, asking for the trace only where it matters.
    #[cfg(feature = "middleware")]
    pub(crate) fn admit_by_trace(&self, trace: impl FnOnce() -> Option<TraceId>) -> Verdict {
        decide_traced(&self.table, self.place, trace)
    }

    /// Watches what becomes of a request for this key's bucket.
    #[cfg(feature = "middleware")]
    pub(crate) fn watch(&self) -> Watch {
        Watch { table: Arc::clone(&self.table), bucket: self.bucket }
    }

    /// What would become of a request now.
    #[must_use]
    pub fn peek(&self) -> Outlook {
        self.table.outlook(self.place)
    }

    /// What was decided for this key so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.table.slabs.counts(self.place.key)
    }
}

/// What the present thread decides with: its cells and its generator.
#[inline]
fn own_desk(table: &Table) -> Desk<'_, OwnDraws> {
    Desk { slab: table.slabs.of_thread(), draws: OwnDraws }
}

/// Decides with what the present thread has.
#[inline]
fn decide(table: &Table, place: KeyPlace) -> Verdict {
    table.decide(place, &mut own_desk(table))
}

/// Decides for a request that may belong to a trace.
#[inline]
fn decide_traced(table: &Table, place: KeyPlace, trace: impl FnOnce() -> Option<TraceId>) -> Verdict {
    table.decide_traced(place, trace, &mut own_desk(table))
}

/// Decides for a request that counts for several.
#[inline]
fn decide_n(table: &Table, place: KeyPlace, cost: u32) -> Verdict {
    match cost {
        0 => Verdict::Admit,
        1 => decide(table, place),
        _ => table.decide_by(place, cost, None, &mut own_desk(table)),
    }
}

/// Decides by a given draw.
#[inline]
fn decide_with(table: &Table, place: KeyPlace, draw: u32) -> Verdict {
    table.decide_by(place, 1, Some(draw), &mut own_desk(table))
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests;
