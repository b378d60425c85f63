//! The protocol violations that a report is refused for.

use crate::names::Key;

/// A report, or a part of one, that violates the protocol. Its stream is closed and nothing of it is counted;
/// earlier parts of the report stay counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReport {
    /// A report arrived twice, or after a later one.
    #[error("report {got} arrived after report {held}")]
    Late {
        /// The last number entered.
        held: u64,
        /// The number received.
        got: u64,
    },
    /// A key id is not dense.
    #[error("key id {0} is out of sequence: the ids of a stream are dense")]
    Definition(u32),
    /// An id has counts but no definition.
    #[error("key id {0} has counts but no definition")]
    Undefined(u32),
    /// More was refused than offered, or more was late than counted.
    #[error(
        "the counts of {0:?} do not add up: more refused than offered, or more late than counted"
    )]
    Inconsistent(Key),
    /// A cumulative count decreased, or a definition has more confirmed than sent.
    #[error("the cumulative counts of {0:?} decreased")]
    WentBack(Key),
    /// The child defines more keys than the parent allows.
    #[error("a child may define at most {0} keys here")]
    TooManyKeys(usize),
    /// A report has counts but no time.
    #[error("a report without a time must not carry counts")]
    Timeless,
}
