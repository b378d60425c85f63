//! Encoding of reports into parts that stay within the size of a message.

use plimsoll_core::directive::{CATALOGUED_MAX, LIMITED_MAX};
use plimsoll_core::names::Name;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{CALLERS_MAX, Counts, Identity, Report, ReportedLead, Role};
use prost::Message;

use super::decode::{ESTABLISHED_MAX, EVIDENCE_BINS_MAX};
use super::delta::{self, SentCounts};
use super::evidence::encode_evidence;
use crate::convert::directives::encode_mode;
use crate::convert::kill::{encode_claim, encode_kill, encode_order, encode_spread};
use crate::convert::scalars::{
    encode_controller, encode_instance, encode_leader, encode_millis, encode_rate,
};
use crate::convert::tail::{TAILS_MAX, encode_name_rate, encode_tail};
use crate::{KEYS_PER_PART_MAX, MESSAGE_BYTES_MAX, wire};

/// Maximum number of bytes that frame an entry of a list.
const FRAME_BYTES_MAX: usize = 2 + 4;
/// Maximum size of the lists of a part; the rest of a message is for its head.
const PART_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 8 * 1024;

/// Encodes the reports of one stream.
#[derive(Debug, Default)]
pub struct ReportEncoder {
    sent: SentCounts,
}

impl ReportEncoder {
    /// Encodes the next report of the stream as one or more parts, each within the bounds of a message.
    pub fn encode(&mut self, report: &Report) -> Vec<wire::Report> {
        let mut parts = Parts {
            report,
            full: Vec::new(),
            last: encode_head(report),
            bytes_left: PART_BYTES_MAX,
        };
        for bucket in &report.subscriptions.added {
            parts.push(|part| &mut part.subscriptions, bucket.to_string());
        }
        for bucket in &report.subscriptions.ended {
            parts.push(|part| &mut part.unsubscriptions, bucket.to_string());
        }
        for (bucket, hold) in &report.greeting.holds {
            let hold = wire::Hold {
                bucket: bucket.to_string(),
                milli_rps: encode_rate(*hold),
            };
            parts.push(|part| &mut part.holds, hold);
        }
        for (bucket, mode) in &report.modes {
            let mode = wire::BucketMode {
                bucket: bucket.to_string(),
                directed: mode.directed.map_or(wire::Mode::Unspecified, encode_mode) as i32,
                unapplied: mode.unapplied,
            };
            parts.push(|part| &mut part.modes, mode);
        }
        for key in report.greeting.established.iter().take(ESTABLISHED_MAX) {
            let name = wire::TenantName {
                bucket: key.bucket.to_string(),
                tenant: key.tenant.to_string(),
            };
            parts.push(|part| &mut part.established, name);
        }
        for (bucket, tail) in report.names.tails.iter().take(TAILS_MAX) {
            parts.push(|part| &mut part.tails, encode_tail(bucket, tail));
        }
        for name in report.names.limited.iter().take(LIMITED_MAX) {
            parts.push(|part| &mut part.limited, encode_name_rate(name));
        }
        for name in report.names.callers.iter().take(CALLERS_MAX) {
            parts.push(|part| &mut part.callers, encode_name_rate(name));
        }
        for tenant in report.names.asked.iter().take(CATALOGUED_MAX) {
            parts.push(|part| &mut part.asked, tenant.to_string());
        }
        let mut bins = 0;
        let is_cut = report.evidence.bins() > EVIDENCE_BINS_MAX;
        for (cohort, outcomes) in report.evidence.iter() {
            bins += outcomes.latency.iter().len();
            let has_room = bins <= EVIDENCE_BINS_MAX;
            let mut encoded = encode_evidence(cohort, outcomes, has_room);
            if is_cut {
                // Latencies that were left out must not look as if none had been observed.
                encoded.unobserved = 0;
            }
            parts.push(|part| &mut part.evidence, encoded);
        }
        for (bucket, generation) in &report.kills.buckets {
            parts.push(|part| &mut part.kills, encode_kill(bucket, *generation));
        }
        for (id, order) in &report.kills.orders {
            parts.push(|part| &mut part.kill_orders, encode_order(id, order));
        }
        for (scope, claim) in &report.kills_below.claims {
            parts.push(|part| &mut part.kill_claims, encode_claim(scope, claim));
        }
        for (zone, spread) in &report.kills_below.spreads {
            parts.push(
                |part| &mut part.drill_latencies,
                encode_spread(zone, spread),
            );
        }
        self.encode_definitions(report, &mut parts);
        self.encode_counts(report, &mut parts);
        parts.finish()
    }

    fn encode_definitions(&mut self, report: &Report, parts: &mut Parts<'_>) {
        for (id, definition) in &report.definitions {
            let is_dense = self.sent.define(*id);
            debug_assert!(is_dense, "{id:?} is above the next id of the stream");
            let definition = wire::KeyDefinition {
                id: id.0,
                bucket: definition.key.bucket.to_string(),
                tenant: definition.key.tenant.to_string(),
                acknowledged: encode_counts(definition.base),
                last_sent: encode_counts(definition.sent),
                resumes: definition.continues,
            };
            parts.push(|part| &mut part.definitions, definition);
        }
    }

    fn encode_counts(&mut self, report: &Report, parts: &mut Parts<'_>) {
        let mut next = 0;
        for (id, tally) in report.tallies.iter() {
            let delta = self.sent.advance(id, tally);
            // Each part is decoded on its own, so its first gap starts at id 0. No gap of this id is longer.
            let bytes = delta::bytes_max(id.0, delta);
            let part = parts.with_room(bytes, |last| last.id_gaps.len());
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
    bytes_left: usize,
}

impl Parts<'_> {
    fn push<T: Message>(&mut self, list: fn(&mut wire::Report) -> &mut Vec<T>, entry: T) {
        let part = self.with_room(entry.encoded_len() + FRAME_BYTES_MAX, |part| {
            list(part).len()
        });
        list(part).push(entry);
    }

    /// Reserves `bytes` for one more entry of a list and returns its part, a new one if the last is full.
    /// `entries` counts the entries that the list has in a part.
    fn with_room(
        &mut self,
        bytes: usize,
        entries: impl Fn(&mut wire::Report) -> usize,
    ) -> &mut wire::Report {
        debug_assert!(
            bytes <= PART_BYTES_MAX,
            "an entry of {bytes} bytes fits into no part"
        );
        if bytes > self.bytes_left || entries(&mut self.last) >= KEYS_PER_PART_MAX {
            let next = wire::Report {
                identity: None,
                path: Vec::new(),
                ..encode_head(self.report)
            };
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

/// Encodes the fields that every part repeats, and `identity` and `path`, which are in the first part only.
fn encode_head(report: &Report) -> wire::Report {
    let ReportedLead { leader, age, other } = report.lead;
    let (epoch, controller) = encode_leader(leader);
    wire::Report {
        seq: report.seq,
        identity: report.greeting.identity.as_ref().map(encode_identity),
        version: report
            .greeting
            .version
            .as_ref()
            .map_or_else(String::new, Name::to_string),
        time_us: report.time.map(MonoTime::as_micros),
        epoch,
        controller,
        controller_age_ms: age.map(encode_millis),
        other_controller: other.map(encode_controller),
        kill_generation: report.kills.fleet.0,
        drill: report.kills.drill.0,
        claimed_drill: report.kills_below.drill.0,
        killed_locally: report.clients.killed_locally,
        quota_store_down: report.clients.quota_store_down,
        leaving: report.leaving,
        children: report.children,
        clients: report.clients.connected,
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
        retried: counts.retried,
    })
}
