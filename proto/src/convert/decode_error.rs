//! Reasons to reject a message of the other end of a stream.

use plimsoll_core::names::InvalidName;
use plimsoll_core::quantity::{InvalidRate, OutOfRange};
use plimsoll_core::quota::{InvalidBucketQuotas, InvalidQuota, InvalidQuotaRate};

/// A message that is out of range. It ends its stream, and nothing of it reaches a state machine. Keys of earlier
/// parts of its report have already been passed on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DecodeError {
    /// An invalid name.
    #[error("{field}: {source}")]
    Name {
        /// The field.
        field: &'static str,
        /// The rule that the name breaks.
        source: InvalidName,
    },
    /// A number outside of the range of its quantity.
    #[error("{0}")]
    Range(#[from] OutOfRange),
    /// A number that is not a rate.
    #[error("rate: {0}")]
    Rate(#[from] InvalidRate),
    /// A quota without tokens or time, or with too many.
    #[error("quotas: {0}")]
    QuotaRate(#[from] InvalidQuotaRate),
    /// A lease out of range.
    #[error("quotas: {0}")]
    Quota(#[from] InvalidQuota),
    /// Quotas that cannot belong to one bucket.
    #[error("quotas: {0}")]
    Quotas(#[from] InvalidBucketQuotas),
    /// A canary share above 100 %.
    #[error("canary_milli_percent: {0} exceeds the maximum of 100000")]
    Percent(u32),
    /// A gap or a repetition in the numbers of the reports of a stream.
    #[error("seq: expected report {expected}, got {got}")]
    Gap {
        /// The expected number.
        expected: u64,
        /// The number received.
        got: u64,
    },
    /// An instance id that is not 16 bytes long.
    #[error("instance: expected 16 bytes, got {0}")]
    Instance(usize),
    /// A key of a coherent coin that is not 16 bytes long.
    #[error("coherence.key: expected 16 bytes, got {0}")]
    CoinKey(usize),
    /// A number without a meaning in its enumeration.
    #[error("{field}: {value} is not a known value")]
    Enumeration {
        /// The field.
        field: &'static str,
        /// The number received.
        value: i32,
    },
    /// A zero in a field that must be positive.
    #[error("{0}: must not be zero")]
    Zero(&'static str),
    /// A list longer than a message, or all parts of one, may carry.
    #[error("{field}: {got} entries exceed the maximum of {most}")]
    TooMany {
        /// The field.
        field: &'static str,
        /// The number of entries received.
        got: usize,
        /// Maximum number of entries.
        most: usize,
    },
    /// The first key id of a part that is not above those of the parts before it.
    #[error("id_gaps: id {0} is not above the one before it")]
    Unsorted(u32),
    /// A definition that skips ids, is the second one of its id in a report, or has an id below those of an
    /// earlier part.
    #[error("definitions: id {0} is neither the next id nor reused once")]
    Definition(u32),
    /// A greeting of several parts that defines or counts keys.
    #[error("definitions: a greeting in several parts must not carry keys")]
    GreetingKeys,
    /// Counts for an id without a definition.
    #[error("count_deltas: id {0} has no definition")]
    Undefined(u32),
    /// A column with another length than the list of ids, bins or latencies that it belongs to.
    #[error("{field}: expected {expected} numbers, got {got}")]
    Columns {
        /// The field.
        field: &'static str,
        /// The length received.
        got: usize,
        /// The length of that list.
        expected: usize,
    },
    /// Deltas that add up to more than 64 bits.
    #[error("count_deltas: the counts of id {0} exceed 64 bits")]
    Overflow(u32),
    /// A bin above the last one, of latencies or of the rates of names.
    #[error("bin_gaps: bin {0} does not exist")]
    Bin(u32),
    /// Bucket directives from a parent that never received any from a controller.
    #[error("buckets: a message without an epoch must not carry any")]
    ValuesWithoutEpoch,
    /// Parts of one message that contradict each other.
    #[error("the parts of one message differ in {0}")]
    Parts(&'static str),
}
