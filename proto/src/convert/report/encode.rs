//! Encoding of reports into parts that stay within the size of a message.

use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Counts, Identity, Report, Role};

use super::decode::{ESTABLISHED_MAX, EVIDENCE_BINS_MAX};
use super::delta::{self, SentCounts};
use super::evidence::{self, encode_evidence};
use crate::convert::directives::encode_mode;
use crate::convert::kill::{
    CLAIM_BYTES_MAX, ORDER_BYTES_MAX, SPREAD_BYTES_MAX, encode_claim, encode_kill, encode_order,
    encode_spread,
};
use crate::convert::scalars::{encode_controller, encode_instance, encode_millis, encode_rate};
use crate::convert::tail::{TAIL_BYTES_MAX, TAILS_MAX, encode_tail};
use crate::{KEYS_PER_PART_MAX, MESSAGE_BYTES_MAX, wire};

/// The most bytes of a key definition on the wire: two names of 128 bytes, two times eight counts, an id, a
/// flag, and framing.
const DEFINITION_BYTES_MAX: usize = 2 * (128 + 3) + 2 * (8 * 11 + 2) + 6 + 2 + 4;
/// The most bytes of a subscription: a name of 128 bytes and framing.
const SUBSCRIPTION_BYTES_MAX: usize = 128 + 3;
/// The most bytes of a bucket's kill generation: a name of 128 bytes, a number, and framing.
const KILL_BYTES_MAX: usize = HOLD_BYTES_MAX;
/// The most bytes of a hold: a name of 128 bytes, a rate, and framing.
const HOLD_BYTES_MAX: usize = (128 + 3) + 11 + 3;
/// The most bytes of a mode: a name of 128 bytes, an enumeration, a number, and framing.
const MODE_BYTES_MAX: usize = (128 + 3) + 2 + 6 + 3;
/// The most bytes of the name of a tenant in a bucket: two names of 128 bytes, and framing.
const TENANT_BYTES_MAX: usize = 2 * (128 + 3) + 4;
/// The most bytes of the lists of a part; the rest of a message is for its head.
const PART_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 8 * 1024;

/// Encodes the reports of one stream.
#[derive(Debug, Default)]
pub struct ReportEncoder {
    sent: SentCounts,
}

impl ReportEncoder {
    /// Encodes the next report of the stream as one or more parts, each within the bounds of a message.
    #[must_use]
    pub fn encode(&mut self, report: &Report) -> Vec<wire::Report> {
        let mut parts =
            Parts { report, full: Vec::new(), last: encode_head(report), bytes_left: PART_BYTES_MAX };
        for bucket in &report.subscriptions {
            let part = parts.with_room(SUBSCRIPTION_BYTES_MAX, |last| last.subscriptions.len());
            part.subscriptions.push(bucket.to_string());
        }
        for bucket in &report.unsubscriptions {
            let part = parts.with_room(SUBSCRIPTION_BYTES_MAX, |last| last.unsubscriptions.len());
            part.unsubscriptions.push(bucket.to_string());
        }
        for (bucket, hold) in &report.holds {
            let part = parts.with_room(HOLD_BYTES_MAX, |last| last.holds.len());
            part.holds.push(wire::Hold { bucket: bucket.to_string(), milli_rps: encode_rate(*hold) });
        }
        for (bucket, mode) in &report.modes {
            let part = parts.with_room(MODE_BYTES_MAX, |last| last.modes.len());
            part.modes.push(wire::BucketMode {
                bucket: bucket.to_string(),
                directed: mode.directed.map_or(wire::Mode::Unspecified, encode_mode) as i32,
                unapplied: mode.unapplied,
            });
        }
        for key in report.established.iter().take(ESTABLISHED_MAX) {
            let part = parts.with_room(TENANT_BYTES_MAX, |last| last.established.len());
            part.established
                .push(wire::TenantName { bucket: key.bucket.to_string(), tenant: key.tenant.to_string() });
        }
        for (bucket, tail) in report.tails.iter().take(TAILS_MAX) {
            let part = parts.with_room(TAIL_BYTES_MAX, |last| last.tails.len());
            part.tails.push(encode_tail(bucket, tail));
        }
        let mut bins = 0;
        let is_cut = report.evidence.bins() > EVIDENCE_BINS_MAX;
        for (cohort, outcomes) in report.evidence.after(0) {
            bins += outcomes.latency.iter().len();
            let part = parts.with_room(evidence::bytes_max(outcomes), |last| last.evidence.len());
            let mut encoded = encode_evidence(cohort, outcomes, bins <= EVIDENCE_BINS_MAX);
            if is_cut {
                // Latencies that were left out must not look as if none had been observed.
                encoded.unobserved = 0;
            }
            part.evidence.push(encoded);
        }
        for (bucket, generation) in &report.kills {
            let part = parts.with_room(KILL_BYTES_MAX, |last| last.kills.len());
            part.kills.push(encode_kill(bucket, *generation));
        }
        for (id, order) in &report.orders {
            let part = parts.with_room(ORDER_BYTES_MAX, |last| last.kill_orders.len());
            part.kill_orders.push(encode_order(id, order));
        }
        for (scope, claim) in &report.claims {
            let part = parts.with_room(CLAIM_BYTES_MAX, |last| last.kill_claims.len());
            part.kill_claims.push(encode_claim(scope, claim));
        }
        for (zone, spread) in &report.spreads {
            let part = parts.with_room(SPREAD_BYTES_MAX, |last| last.drill_latencies.len());
            part.drill_latencies.push(encode_spread(zone, spread));
        }
        self.encode_definitions(report, &mut parts);
        self.encode_counts(report, &mut parts);
        parts.finish()
    }

    fn encode_definitions(&mut self, report: &Report, parts: &mut Parts<'_>) {
        for (id, definition) in &report.definitions {
            let is_dense = self.sent.define(*id);
            debug_assert!(is_dense, "{id:?} is above the next id of the stream");
            let part = parts.with_room(DEFINITION_BYTES_MAX, |last| last.definitions.len());
            part.definitions.push(wire::KeyDefinition {
                id: id.0,
                bucket: definition.key.bucket.to_string(),
                tenant: definition.key.tenant.to_string(),
                acknowledged: encode_counts(definition.base),
                last_sent: encode_counts(definition.sent),
                resumes: definition.continues,
            });
        }
    }

    fn encode_counts(&mut self, report: &Report, parts: &mut Parts<'_>) {
        let mut next = 0;
        for (id, tally) in report.tallies.iter() {
            let delta = self.sent.advance(id, tally);
            let bytes = delta::bytes_max(id.0.saturating_sub(next), delta);
            let part = parts.with_room(bytes.max(delta::bytes_max(id.0, delta)), |last| last.id_gaps.len());
            // Each part is decoded on its own, so its first gap starts at id 0.
            let start = if part.id_gaps.is_empty() { 0 } else { next };
            part.id_gaps.push(id.0.saturating_sub(start));
            next = id.0.saturating_add(1);
            delta::push(&mut part.count_deltas, delta.counts);
            if report.tallies.has_late() {
                delta::push(&mut part.late_deltas, delta.late);
            }
        }
    }
}

/// The parts of one report while they are filled.
struct Parts<'a> {
    report: &'a Report,
    full: Vec<wire::Report>,
    last: wire::Report,
    /// Bytes left in `last`.
    bytes_left: usize,
}

impl Parts<'_> {
    /// Reserves `bytes` for one more entry of a list and returns its part, a new one if the last is full.
    /// `entries` counts the entries that the list has in a part.
    fn with_room(&mut self, bytes: usize, entries: fn(&wire::Report) -> usize) -> &mut wire::Report {
        debug_assert!(bytes <= PART_BYTES_MAX, "an entry of {bytes} bytes fits into no part");
        if bytes > self.bytes_left || entries(&self.last) >= KEYS_PER_PART_MAX {
            let next = wire::Report { identity: None, path: Vec::new(), ..encode_head(self.report) };
            let full = std::mem::replace(&mut self.last, next);
            self.full.push(wire::Report { more: true, ..full });
            self.bytes_left = PART_BYTES_MAX;
        }
        self.bytes_left -= bytes;
        &mut self.last
    }

    fn finish(mut self) -> Vec<wire::Report> {
        self.full.push(self.last);
        for part in &mut self.full {
            delta::trim_zeros(&mut part.count_deltas);
            delta::trim_zeros(&mut part.late_deltas);
        }
        self.full
    }
}

/// Encodes everything but the lists, which every part repeats.
fn encode_head(report: &Report) -> wire::Report {
    wire::Report {
        seq: report.seq,
        identity: report.identity.as_ref().map(encode_identity),
        time_us: report.time.map(MonoTime::as_micros),
        epoch: report.epoch.map(|epoch| epoch.0),
        controller: report.controller.map(encode_instance),
        controller_age_ms: report.controller_age.map(encode_millis),
        other_controller: report.other_controller.map(encode_controller),
        kill_generation: report.kill.0,
        drill: report.drill.0,
        claimed_drill: report.claimed_drill.0,
        killed_locally: report.killed_locally,
        leaving: report.leaving,
        children: report.children,
        clients: report.clients,
        path: report.path.0.iter().copied().map(encode_instance).collect(),
        ..wire::Report::default()
    }
}

fn encode_identity(identity: &Identity) -> wire::Identity {
    wire::Identity {
        instance: encode_instance(identity.instance),
        name: identity.name.to_string(),
        service: identity.service.to_string(),
        zone: identity.zone.to_string(),
        role: match identity.role {
            Role::Client => wire::Role::Client,
            Role::Aggregator => wire::Role::Aggregator,
        } as i32,
    }
}

fn encode_counts(counts: Counts) -> Option<wire::Counts> {
    (counts != Counts::ZERO).then_some(wire::Counts {
        offered: counts.offered,
        dropped: counts.dropped,
        would_dropped: counts.would_dropped,
        guard_dropped: counts.guard_dropped,
        would_guard_dropped: counts.would_guard_dropped,
        quota_dropped: counts.quota_dropped,
        would_quota_dropped: counts.would_quota_dropped,
        quota_repeated: counts.quota_repeated,
    })
}
