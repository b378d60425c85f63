//! Seeded random generators, one for each purpose, so that a change in one does not shift the others.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// Phases, clocks, instance ids and reconnection times of processes.
    Processes,
    Network,
    Traffic,
    Sources,
    Retries,
    Coins,
    Names,
}

pub(crate) fn generator(seed: u64, purpose: Purpose) -> SmallRng {
    SmallRng::seed_from_u64(derive(seed, purpose as u64))
}

/// Derives a seed from a seed with the finaliser of SplitMix64 (Steele, Lea and Flood, 2014), which
/// is a bijection.
pub(crate) const fn derive(seed: u64, label: u64) -> u64 {
    let mut x = seed ^ label.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Draws a number uniform over `0..1`.
pub(crate) fn unit(generator: &mut SmallRng) -> f64 {
    generator.random()
}

/// Draws a number of microseconds uniform over `0..=span`.
pub(crate) fn span(generator: &mut SmallRng, span: u64) -> u64 {
    if span == 0 {
        0
    } else {
        generator.random_range(0..=span)
    }
}
