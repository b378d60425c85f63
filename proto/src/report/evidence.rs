//! Evidence between core and wire: each histogram as the bins that have any.

use plimsoll_core::bucket::Bucket;
use plimsoll_core::latency::{BINS, Bin, Histogram};
use plimsoll_core::report::{Batches, Evidence, Outcomes, Side, Stand};

use super::{bound, name};
use crate::directives::{mode, mode_of};
use crate::{Invalid, wire};

/// Places in one report at most: ten thousand buckets do not all change modes at a time, and what is beyond is left out by
/// whoever sends.
pub(super) const STANDS_MAX: usize = plimsoll_core::report::STANDS_MAX;

/// What one place may take on the wire at most: a name, a mode, a side, four counts, and framing; and for each bin its gap
/// and its count.
pub(super) fn bytes(outcomes: &Outcomes) -> usize {
    const BIN_BYTES_MAX: usize = 2 + 10;
    (128 + 3) + 2 + 2 + 4 * 11 + 2 * 4 + 5 + outcomes.latency.iter().len() * BIN_BYTES_MAX
}

pub(super) fn wire_evidence(stand: &Stand, outcomes: &Outcomes) -> wire::Evidence {
    let mut due = 0;
    let gap = |(bin, _): (Bin, u64)| {
        let gap = u32::from(bin.number()) - due;
        due = u32::from(bin.number()) + 1;
        gap
    };
    wire::Evidence {
        bucket: stand.bucket.to_string(),
        mode: mode(stand.mode) as i32,
        canary: stand.side == Side::Canary,
        offered: outcomes.offered,
        refused: outcomes.refused,
        would_dropped: outcomes.would_dropped,
        failed: outcomes.failed,
        latency_gaps: outcomes.latency.iter().map(gap).collect(),
        latency_counts: outcomes.latency.iter().map(|(_, count)| count).collect(),
    }
}

pub(super) fn evidence_of(seq: u64, all: Vec<wire::Evidence>) -> Result<Batches, Invalid> {
    let mut evidence = Evidence::default();
    for told in all {
        let stand = Stand {
            bucket: name("evidence", &told.bucket, Bucket::new)?,
            mode: mode_of(told.mode)?,
            side: if told.canary { Side::Canary } else { Side::Control },
        };
        let latency = histogram(&told)?;
        let wire::Evidence { offered, refused, would_dropped, failed, .. } = told;
        evidence.put(stand, Outcomes { offered, refused, would_dropped, failed, latency });
    }
    Ok(Batches::one(seq, evidence))
}

fn histogram(told: &wire::Evidence) -> Result<Histogram, Invalid> {
    let (gaps, counts) = (&told.latency_gaps, &told.latency_counts);
    bound("evidence.latency_gaps", gaps.len(), BINS)?;
    if gaps.len() != counts.len() {
        return Err(Invalid::Columns {
            field: "evidence.latency_counts",
            got: counts.len(),
            due: gaps.len(),
        });
    }
    let mut histogram = Histogram::default();
    let mut due = 0_u32;
    for (gap, count) in gaps.iter().zip(counts) {
        let number = due.saturating_add(*gap);
        let bin = u16::try_from(number).ok().and_then(Bin::new).ok_or(Invalid::Bin(number))?;
        histogram.add(bin, *count);
        due = number.saturating_add(1);
    }
    Ok(histogram)
}
