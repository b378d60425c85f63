//! Decoding of reports: validates each part and assembles the parts of a report.

use std::collections::BTreeMap;

use plimsoll_core::exchange::Path;
use plimsoll_core::kill::drill::{Drill, SPREAD_ZONES_MAX};
use plimsoll_core::kill::{KILL_ORDERS_MAX, KILLED_BUCKETS_MAX, KillGeneration};
use plimsoll_core::names::{Bucket, Key, KeyId, Name, Tenant, Zone};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{COHORTS_MAX, Counts, Identity, InstanceId, KeyDefinition, Report, Role};

use super::delta::SentCounts;
use super::evidence::decode_evidence;
use crate::convert::DecodeError;
use crate::convert::kill::{decode_kills, decode_orders, decode_spreads};
use crate::convert::scalars::{check_len, decode_epoch, decode_instance, decode_name, decode_rate};
use crate::{KEYS_PER_MESSAGE_MAX, KEYS_PER_PART_MAX, wire};

/// The most ids of a path that are decoded.
const PATH_IDS_MAX: usize = 4 * Path::IDS_MAX;

/// Assembles the reports of one stream from their parts and validates them.
#[derive(Debug, Default)]
pub struct ReportDecoder {
    sent: SentCounts,
    /// Sequence number of the last complete report.
    seq: u64,
    parts: Option<Report>,
}

impl ReportDecoder {
    /// Decodes one message. Returns the report with its last part, `None` before.
    ///
    /// # Errors
    /// When a value is out of range. The stream must end then: later deltas build on the rejected message.
    pub fn decode(&mut self, part: wire::Report) -> Result<Option<Report>, DecodeError> {
        let more = part.more;
        let part = self.decode_part(part)?;
        let report = match self.parts.take() {
            None => part,
            Some(parts) => join(parts, part)?,
        };
        check_lens(&report)?;
        // Deltas build on the report before, so none may be missing.
        if report.seq != self.seq + 1 {
            return Err(DecodeError::Gap { expected: self.seq + 1, got: report.seq });
        }
        if more {
            self.parts = Some(report);
            return Ok(None);
        }
        self.seq = report.seq;
        Ok(Some(report))
    }

    fn decode_part(&mut self, part: wire::Report) -> Result<Report, DecodeError> {
        if part.seq == 0 {
            return Err(DecodeError::Zero("seq"));
        }
        check_len("subscriptions", part.subscriptions.len(), KEYS_PER_PART_MAX)?;
        check_len("holds", part.holds.len(), KEYS_PER_PART_MAX)?;
        check_len("definitions", part.definitions.len(), KEYS_PER_PART_MAX)?;
        check_len("id_gaps", part.id_gaps.len(), KEYS_PER_PART_MAX)?;
        check_len("evidence", part.evidence.len(), KEYS_PER_PART_MAX)?;
        let definitions = self.decode_definitions(&part.definitions)?;
        let tallies = self.sent.apply(&part)?;
        Ok(Report {
            seq: part.seq,
            identity: part.identity.map(decode_identity).transpose()?,
            time: part.time_us.map(MonoTime::from_micros),
            epoch: decode_epoch(part.epoch)?,
            kill: KillGeneration(part.kill_generation),
            kills: decode_kills(&part.kills)?,
            orders: decode_orders(part.kill_orders)?,
            drill: Drill(part.drill),
            spreads: decode_spreads(&part.drill_latencies)?,
            children: part.children,
            killed_locally: part.killed_locally,
            path: decode_path(&part.path)?,
            subscriptions: part
                .subscriptions
                .iter()
                .map(|bucket| decode_name("subscriptions", bucket, Bucket::new))
                .collect::<Result<_, _>>()?,
            holds: part
                .holds
                .iter()
                .map(|hold| {
                    Ok((decode_name("holds", &hold.bucket, Bucket::new)?, decode_rate(hold.milli_rps)?))
                })
                .collect::<Result<_, DecodeError>>()?,
            definitions,
            tallies,
            evidence: decode_evidence(part.seq, part.evidence)?,
            leaving: part.leaving,
        })
    }

    fn decode_definitions(
        &mut self,
        definitions: &[wire::KeyDefinition],
    ) -> Result<BTreeMap<KeyId, KeyDefinition>, DecodeError> {
        let mut decoded = BTreeMap::new();
        for definition in definitions {
            let id = KeyId(definition.id);
            let new = KeyDefinition {
                key: Key {
                    bucket: decode_name("bucket", &definition.bucket, Bucket::new)?,
                    tenant: decode_name("tenant", &definition.tenant, Tenant::new)?,
                },
                base: decode_counts(definition.acknowledged),
                sent: decode_counts(definition.last_sent),
                continues: definition.resumes,
            };
            if !self.sent.define(id) || decoded.insert(id, new).is_some() {
                return Err(DecodeError::Definition(id.0));
            }
        }
        Ok(decoded)
    }
}

/// Adds the next part to the parts before it.
fn join(parts: Report, part: Report) -> Result<Report, DecodeError> {
    for (is_consistent, field) in [
        (parts.seq == part.seq, "seq"),
        (parts.time == part.time, "time"),
        (part.identity.is_none(), "identity"),
        (part.path.0.is_empty(), "path"),
        // An id must not be reassigned between the counts of one report.
        (part.definitions.is_empty() || parts.tallies.is_empty(), "definitions"),
    ] {
        if !is_consistent {
            return Err(DecodeError::Parts(field));
        }
    }
    if let Some((id, _)) = part.tallies.iter().next().filter(|(id, _)| Some(*id) <= parts.tallies.last_id()) {
        return Err(DecodeError::Unsorted(id.0));
    }
    if let Some(id) = part.definitions.keys().find(|id| parts.definitions.contains_key(id)) {
        return Err(DecodeError::Definition(id.0));
    }
    Ok(parts.merge(part))
}

/// Bounds the lists of a report over all its parts, so that a report of endless parts takes bounded memory.
fn check_lens(report: &Report) -> Result<(), DecodeError> {
    check_len("id_gaps", report.tallies.len(), KEYS_PER_MESSAGE_MAX)?;
    check_len("definitions", report.definitions.len(), KEYS_PER_MESSAGE_MAX)?;
    check_len("subscriptions", report.subscriptions.len(), KEYS_PER_MESSAGE_MAX)?;
    check_len("holds", report.holds.len(), KEYS_PER_MESSAGE_MAX)?;
    check_len("evidence", report.evidence.len(), COHORTS_MAX)?;
    check_len("kills", report.kills.len(), KILLED_BUCKETS_MAX)?;
    check_len("kill_orders", report.orders.len(), KILL_ORDERS_MAX)?;
    check_len("drill_latencies", report.spreads.len(), SPREAD_ZONES_MAX)
}

/// Decodes a path. Lengths somewhat above the parent's own limit pass, so that the parent can reject them
/// with a reason.
fn decode_path(path: &[Vec<u8>]) -> Result<Path, DecodeError> {
    check_len("path", path.len(), PATH_IDS_MAX)?;
    let ids: Result<Vec<InstanceId>, DecodeError> = path.iter().map(|id| decode_instance(id)).collect();
    ids.map(Path)
}

fn decode_counts(counts: Option<wire::Counts>) -> Counts {
    counts.map_or(Counts::ZERO, |counts| Counts {
        offered: counts.offered,
        dropped: counts.dropped,
        would_dropped: counts.would_dropped,
        guard_dropped: counts.guard_dropped,
        would_guard_dropped: counts.would_guard_dropped,
    })
}

fn decode_identity(identity: wire::Identity) -> Result<Identity, DecodeError> {
    Ok(Identity {
        instance: decode_instance(&identity.instance)?,
        name: decode_name("name", &identity.name, Name::new)?,
        service: decode_name("service", &identity.service, Name::new)?,
        zone: decode_name("zone", &identity.zone, Zone::new)?,
        role: match wire::Role::try_from(identity.role) {
            Ok(wire::Role::Client) => Role::Client,
            Ok(wire::Role::Aggregator) => Role::Aggregator,
            Ok(wire::Role::Unspecified) | Err(_) => {
                return Err(DecodeError::Enumeration { field: "role", value: identity.role });
            }
        },
    })
}
