//! Why a message is refused before anything of it reaches a state machine.

use plimsoll_core::bucket::InvalidName;
use plimsoll_core::policy::InvalidWeight;
use plimsoll_core::presence::InvalidPresences;
use plimsoll_core::rate::InvalidRate;
use plimsoll_core::ratio::InvalidRatio;

/// A message that is out of range. It is refused and counted; what was held stays.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Invalid {
    /// A name breaks the rule of names.
    #[error("{field}: {source}")]
    Name {
        /// Which field.
        field: &'static str,
        /// What is wrong with it.
        source: InvalidName,
    },
    /// A drop ratio above 1.
    #[error("ratio: {0}")]
    Ratio(#[from] InvalidRatio),
    /// A number that is no rate.
    #[error("rate: {0}")]
    Rate(#[from] InvalidRate),
    /// A number that is no weight.
    #[error("weight: {0}")]
    Weight(#[from] InvalidWeight),
    /// Fewer presences than one.
    #[error("presences: {0}")]
    Presences(#[from] InvalidPresences),
    /// A share of instances above all of them.
    #[error("canary_milli_percent: {0} is more than 100000")]
    Percent(u32),
    /// A report is missing on a stream that keeps order.
    #[error("report {got} came where {expected} was due")]
    Gap {
        /// The number due.
        expected: u64,
        /// The number that came.
        got: u64,
    },
    /// An instance id that is not 16 bytes.
    #[error("instance: 16 bytes are due, {0} came")]
    Instance(usize),
    /// A coin's key that is not 16 bytes.
    #[error("coherence.key: 16 bytes are due, {0} came")]
    CoinKey(usize),
    /// An enumeration holds a number that stands for nothing.
    #[error("{field}: {value} stands for nothing here")]
    Enumeration {
        /// Which field.
        field: &'static str,
        /// The number.
        value: i32,
    },
    /// Epochs and sequence numbers begin at 1.
    #[error("{0}: zero is not a number in use")]
    Zero(&'static str),
    /// More of something than a message may hold.
    #[error("{field}: {got} are more than the {most} a message may hold")]
    TooMany {
        /// Which field.
        field: &'static str,
        /// How many came.
        got: usize,
        /// How many may.
        most: usize,
    },
    /// Ids of one report ascend.
    #[error("counts: the ids of a report ascend, {0} does not")]
    Unsorted(u32),
    /// Ids of a stream are dense, and a report defines one once.
    #[error("definitions: id {0} is out of turn")]
    Definition(u32),
    /// Counts for an id that was not given out.
    #[error("counts: id {0} has no definition")]
    Undefined(u32),
    /// A column that is not as long as the ids.
    #[error("{field}: a column of {got} numbers came for {due} keys")]
    Columns {
        /// Which field.
        field: &'static str,
        /// How many numbers came.
        got: usize,
        /// How many keys there are.
        due: usize,
    },
    /// Differences that add up to more than a count holds.
    #[error("counts: the differences of id {0} add up to more than 64 bits")]
    Overflow(u32),
    /// A histogram has so many bins and no more.
    #[error("evidence.latency_gaps: there is no bin {0}")]
    Bin(u32),
    /// Values from a parent that has heard no controller.
    #[error("a message without an epoch must not carry values")]
    ValuesWithoutEpoch,
    /// The parts of one message must agree.
    #[error("the parts of one message differ in {0}")]
    Parts(&'static str),
}
