//! Bounded statistics over unbounded streams: a mergeable histogram, a sketch of frequent names,
//! and the decisions of a bucket's last seconds. Also the tables of the metrics that tiers export.

mod admission_check;
mod frequency;
mod histogram;
pub mod metrics;

pub use admission_check::{ADMISSIONS, AdmissionCheck, AdmissionFigures, BucketFigures};
pub use frequency::FrequencySketch;
pub use histogram::{BINS, Bin, Histogram, LogLinear, LogLinearBin, Quantile};
