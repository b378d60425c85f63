//! The measurement of single cold decisions: before each, a walk over a buffer evicts earlier data
//! from the caches of the core.

use std::hint::black_box;
use std::time::Instant;

use crate::rounds::{Candidate, median, spin};

const WALK: usize = 4 << 20;
const SINGLES: usize = 48;

/// Nanoseconds of one decision, by candidate: the median over `rounds` rounds, for the keys of
/// `order`.
///
/// Each decision is timed separately, between two readings of the clock. A second candidate that
/// decides nothing is measured in the same way and subtracted, so the clock and the loop are not in
/// the figures. The tenant's name is read before, because a request's was.
pub(crate) fn measure(
    candidates: &[Candidate<'_>],
    tenants: &[String],
    order: &[u32],
    rounds: usize,
) -> Vec<f64> {
    let nothing = Candidate {
        name: "nothing",
        spin: spin(|_| true),
    };
    let mut buffer = vec![0_u64; WALK / size_of::<u64>()];
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); candidates.len() + 1];
    let mut keys = order.iter().copied().cycle();
    for _ in 0..rounds {
        for (samples, candidate) in samples.iter_mut().zip(candidates.iter().chain([&nothing])) {
            for key in keys.by_ref().take(SINGLES) {
                samples.push(single(candidate, tenants, key, &mut buffer));
            }
        }
    }
    let mut medians: Vec<f64> = samples.into_iter().map(median).collect();
    let nothing = medians.pop().unwrap_or_default();
    medians.into_iter().map(|ns| ns - nothing).collect()
}

/// Includes the readings of the clock.
fn single(candidate: &Candidate<'_>, tenants: &[String], key: u32, buffer: &mut [u64]) -> f64 {
    walk(buffer);
    black_box(tenants[key as usize].bytes().fold(0, u8::wrapping_add));
    // The first reading brings the clock's own code and data into the caches.
    black_box(Instant::now());
    let from = Instant::now();
    black_box((candidate.spin)(&[key], 1));
    from.elapsed().as_nanos() as f64
}

fn walk(buffer: &mut [u64]) {
    for word in buffer.iter_mut().step_by(64 / size_of::<u64>()) {
        *word = word.wrapping_add(1);
    }
    black_box(buffer);
}
