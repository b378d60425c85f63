//! Bounded statistics over unbounded streams: a mergeable histogram, a sketch of frequent names, and
//! the decisions of a bucket's last seconds. Also the tables from which tiers export metrics.

mod admission_check;
mod frequency;
mod histogram;
pub mod metrics;

pub use admission_check::{ADMISSIONS, AdmissionCheck, AdmissionFigures, BucketFigures};
pub use frequency::FrequencySketch;
pub use histogram::{BINS, Bin, Histogram, LogLinear, LogLinearBin, Quantile};

/// Merges two sequences with ascending keys into one. The values of a key in both are joined.
pub(crate) fn merge_ascending<K: Ord, V>(
    ours: impl Iterator<Item = (K, V)>,
    theirs: impl Iterator<Item = (K, V)>,
    join: impl Fn(V, V) -> V,
) -> impl Iterator<Item = (K, V)> {
    let (mut ours, mut theirs) = (ours.peekable(), theirs.peekable());
    std::iter::from_fn(move || match (ours.peek(), theirs.peek()) {
        (Some((our, _)), Some((their, _))) if our == their => {
            ours.next().zip(theirs.next()).map(|((key, a), (_, b))| (key, join(a, b)))
        }
        (Some((our, _)), Some((their, _))) if our > their => theirs.next(),
        (Some(_), _) => ours.next(),
        (None, _) => theirs.next(),
    })
}
