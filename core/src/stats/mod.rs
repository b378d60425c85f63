//! Bounded statistics over unbounded streams: a mergeable histogram and a sketch of frequent names.

mod frequency;
mod histogram;

pub use frequency::FrequencySketch;
pub use histogram::{BINS, Bin, Histogram, LogLinear, LogLinearBin, Quantile};
