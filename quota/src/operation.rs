//! The operations on buckets, independent of the protocol.

use plimsoll_core::quota::{GcraRate, QuotaRate, Refill, Session, Throttled};
use smallvec::SmallVec;

use crate::store::Kind;

pub(crate) const KEY_BYTES_MAX: usize = 512;
pub(crate) const KEYS_PER_TAKE_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    /// Takes up to `take` tokens: `RL.REDUCE`. Answered by [`Answer::Tokens`].
    Reduce {
        bucket: BucketName<'a>,
        /// Caller's time in milliseconds; `None` for the server's clock.
        at_ms: Option<u64>,
        take: u64,
        /// Decides if emptying the bucket begins a new phase.
        refill: Refill,
    },
    /// Takes strictly, for a session: `RL.SESSIONIZE`. Answered by [`Answer::Session`].
    Sessionize {
        bucket: BucketName<'a>,
        at_ms: Option<u64>,
        take: u64,
    },
    /// Decides by the generic cell rate algorithm: `CL.THROTTLE`. Answered by
    /// [`Answer::Throttled`]. The parameters are not part of its key.
    Throttle {
        key: &'a [u8],
        rate: GcraRate,
        quantity: u64,
    },
    /// Takes from all of these buckets, or from none: `QUOTA.TAKE`. Answered by [`Answer::Taken`].
    Take(SmallVec<[Demand<'a>; 1]>),
    /// Gives tokens of a lease back: `QUOTA.GIVE`. Answered by [`Answer::Tokens`], the tokens
    /// afterwards.
    Give { bucket: BucketName<'a>, tokens: u64 },
}

impl<'a> Operation<'a> {
    /// Returns the keys of its buckets, and the kind that separates buckets of one key.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (&'a [u8], Kind)> {
        let of = |bucket: &BucketName<'a>| (bucket.key, Kind::Tokens(bucket.rate));
        let (one, several) = match self {
            Self::Reduce { bucket, .. }
            | Self::Sessionize { bucket, .. }
            | Self::Give { bucket, .. } => (Some(of(bucket)), &[][..]),
            Self::Throttle { key, .. } => (Some((*key, Kind::Throttle)), &[][..]),
            Self::Take(demands) => (None, &demands[..]),
        };
        one.into_iter()
            .chain(several.iter().map(move |demand| of(&demand.bucket)))
    }
}

/// A token bucket: its parameters are a part of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BucketName<'a> {
    /// Any bytes, at most [`KEY_BYTES_MAX`].
    pub(crate) key: &'a [u8],
    pub(crate) rate: QuotaRate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demand<'a> {
    pub(crate) bucket: BucketName<'a>,
    /// Minimum tokens; with fewer, nothing is taken from any bucket.
    pub(crate) least: u64,
    /// Tokens of a lease, which includes `least`; see [`plimsoll_core::quota::lease`].
    pub(crate) wanted: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Tokens before the operation, or after a `Give`.
    Tokens(u64),
    Session(Session),
    Throttled(Throttled),
    Taken(SmallVec<[Taken; 1]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Tokens taken: at least `least`, or 0 if any bucket had fewer.
    pub(crate) granted: u64,
    pub(crate) remaining: u64,
    pub(crate) refill_in_ms: u64,
    /// Milliseconds until the bucket holds `least` tokens if nothing more is taken; `None` if it
    /// never does.
    pub(crate) holds_in_ms: Option<u64>,
}

/// Reason why an operation has no answer. Nothing was granted, but under `always` its tokens may be
/// debited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The disk failed, or did not answer in time.
    #[error(
        "the store does not answer; see plimsoll_quota_store_errors_total and the log of the server"
    )]
    Store,
    /// Too many operations wait for the disk, or memory has no room for a bucket.
    #[error("too many operations wait for the store")]
    Busy,
}
