//! Why a report is refused: what no sound child sends.

use crate::names::Key;

/// A report that cannot have come from a sound peer; its stream is closed and nothing of it counts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReport {
    /// A report came again, or after a later one.
    #[error("report {got} came after report {held}")]
    Late {
        /// The last number entered.
        held: u64,
        /// The number that came.
        got: u64,
    },
    /// Key ids are given out densely.
    #[error("key id {0} is defined out of turn: ids of a stream are dense")]
    Definition(u32),
    /// Counts for an id without a definition.
    #[error("key id {0} has counts but no definition")]
    Undefined(u32),
    /// More was refused than offered.
    #[error("the counts of {0:?} do not add up: more refused than offered, or more late than counted")]
    Inconsistent(Key),
    /// A cumulative count became smaller.
    #[error("the cumulative counts of {0:?} went back")]
    WentBack(Key),
    /// More keys than a child may have here.
    #[error("a child may define {0} keys here, and not one more")]
    TooManyKeys(usize),
    /// Counts without a time say nothing.
    #[error("a report without a time must not carry counts")]
    Timeless,
}
