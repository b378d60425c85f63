//! Conversions of rollout evidence. A latency histogram travels as its non-empty bins.

use plimsoll_core::names::Bucket;
use plimsoll_core::report::{CohortKey, Evidence, Outcomes, Side};
use plimsoll_core::stats::{BINS, Bin, Histogram};

use crate::convert::DecodeError;
use crate::convert::directives::{decode_mode, encode_mode};
use crate::convert::scalars::{check_column, check_len, decode_name};
use crate::wire;

/// Encodes one cohort: without its latencies if the report has no room for them.
pub(super) fn encode_evidence(
    cohort: &CohortKey,
    outcomes: &Outcomes,
    with_latency: bool,
) -> wire::Evidence {
    let latency = || outcomes.latency.iter().filter(|_| with_latency);
    // A gap is the number of empty bins before a bin.
    let mut next = 0;
    let gap = |(bin, _): (Bin, u64)| {
        let gap = u32::from(bin.number()) - next;
        next = u32::from(bin.number()) + 1;
        gap
    };
    wire::Evidence {
        bucket: cohort.bucket.to_string(),
        mode: encode_mode(cohort.mode) as i32,
        canary: cohort.side == Side::Canary,
        offered: outcomes.offered,
        refused: outcomes.refused,
        would_dropped: outcomes.would_dropped,
        failed: outcomes.failed,
        unobserved: outcomes.unobserved,
        latency_bin_gaps: latency().map(gap).collect(),
        latency_counts: latency().map(|(_, count)| count).collect(),
        instances: outcomes.instances,
    }
}

/// Decodes the cohorts of a part. Of two messages for one cohort, which no sender makes, the last one counts.
pub(super) fn decode_evidence(cohorts: Vec<wire::Evidence>) -> Result<Evidence, DecodeError> {
    let mut evidence = Evidence::default();
    for cohort in cohorts {
        let key = CohortKey {
            bucket: decode_name("evidence", &cohort.bucket, Bucket::new)?,
            mode: decode_mode(cohort.mode)?,
            side: if cohort.canary {
                Side::Canary
            } else {
                Side::Control
            },
        };
        let outcomes = Outcomes {
            offered: cohort.offered,
            refused: cohort.refused,
            would_dropped: cohort.would_dropped,
            failed: cohort.failed,
            unobserved: cohort.unobserved,
            latency: decode_histogram(&cohort)?,
            instances: cohort.instances,
        };
        evidence.put(key, outcomes);
    }
    Ok(evidence)
}

fn decode_histogram(evidence: &wire::Evidence) -> Result<Histogram, DecodeError> {
    let (gaps, counts) = (&evidence.latency_bin_gaps, &evidence.latency_counts);
    check_len("evidence.latency_bin_gaps", gaps.len(), BINS)?;
    check_column("evidence.latency_counts", counts.len(), gaps.len())?;
    let mut histogram = Histogram::default();
    let mut next = 0_u32;
    for (gap, count) in gaps.iter().zip(counts) {
        let number = next.saturating_add(*gap);
        let bin = u16::try_from(number)
            .ok()
            .and_then(Bin::new)
            .ok_or(DecodeError::Bin(number))?;
        histogram.add(bin, *count);
        next = number.saturating_add(1);
    }
    Ok(histogram)
}
