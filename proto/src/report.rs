//! Reports between core and wire: counts as differences to what the stream has told before, in parts that keep the
//! bound of a message, put together again before anyone sees them.

use std::collections::BTreeMap;

use plimsoll_core::bucket::{Bucket, InvalidName, Key, KeyId, Name, Tenant, Zone};
use plimsoll_core::directive::Epoch;
use plimsoll_core::drill::{Drill, SPREAD_ZONES_MAX};
use plimsoll_core::kill::{KILLED_BUCKETS_MAX, KillGeneration, Scope};
use plimsoll_core::report::{Counts, Identity, InstanceId, KeyDefinition, Path, Report, Role};
use plimsoll_core::time::MonoTime;

use self::evidence::{evidence_of, wire_evidence};
use self::told::Told;
use crate::kill::{SPREAD_BYTES_MAX, kill_of, kills_of, scopes_of, spread, spreads_of};
use crate::rates::{milli, rate};
use crate::{Invalid, KEYS_PER_MESSAGE_MAX, KEYS_PER_PART_MAX, wire};

mod evidence;
mod told;

/// What a definition may take on the wire at most: two names of 128 bytes, two times five counts, an id, a flag, and
/// framing.
const DEFINITION_BYTES_MAX: usize = 2 * (128 + 3) + 2 * (5 * 11 + 2) + 6 + 2 + 4;
/// What a name asked for may take at most: 128 bytes and framing.
const ASKED_BYTES_MAX: usize = 128 + 3;
/// What a bucket's kill generation may take at most: a name of 128 bytes, a number, and framing.
const KILL_BYTES_MAX: usize = HOLD_BYTES_MAX;
/// What a hold may take at most: a name of 128 bytes, a rate, and framing.
const HOLD_BYTES_MAX: usize = (128 + 3) + 11 + 3;
/// The most ids of a path that are read at all.
const PATH_IDS_MAX: usize = 4 * Path::IDS_MAX;
/// What a part's names and counts may take together, with room left for its head.
const PART_BYTES_MAX: usize = crate::MESSAGE_BYTES_MAX - 8 * 1024;

/// Writes the reports of one stream.
#[derive(Debug, Default)]
pub struct ReportEncoder {
    told: Told,
}

/// The parts of the first report of a stream, see [`ReportEncoder::encode`].
#[must_use]
pub fn encode_report(report: &Report) -> Vec<wire::Report> {
    ReportEncoder::default().encode(report)
}

impl ReportEncoder {
    /// The parts of the next report of the stream, at least one, each within the bounds of a message.
    #[must_use]
    pub fn encode(&mut self, report: &Report) -> Vec<wire::Report> {
        let mut parts = Parts { report, done: Vec::new(), last: head(report), room: PART_BYTES_MAX };
        for bucket in &report.asked {
            let part = parts.with_room(ASKED_BYTES_MAX, |last| last.asked.len());
            part.asked.push(bucket.to_string());
        }
        for (bucket, hold) in &report.holds {
            let part = parts.with_room(HOLD_BYTES_MAX, |last| last.holds.len());
            part.holds.push(wire::Hold { bucket: bucket.to_string(), milli_rps: milli(*hold) });
        }
        for (stand, outcomes) in report.evidence.after(0) {
            let part = parts.with_room(evidence::bytes(outcomes), |last| last.evidence.len());
            part.evidence.push(wire_evidence(stand, outcomes));
        }
        for (bucket, generation) in &report.kills {
            let part = parts.with_room(KILL_BYTES_MAX, |last| last.kills.len());
            part.kills.push(kill_of(bucket, *generation));
        }
        for bucket in report.ordered.iter().filter_map(Scope::bucket) {
            let part = parts.with_room(ASKED_BYTES_MAX + 1, |last| last.ordered_buckets.len());
            part.ordered_buckets.push(bucket.to_string());
        }
        for bucket in report.ended.iter().filter_map(Scope::bucket) {
            let part = parts.with_room(ASKED_BYTES_MAX + 1, |last| last.ended_buckets.len());
            part.ended_buckets.push(bucket.to_string());
        }
        for (zone, of_zone) in &report.spreads {
            let part = parts.with_room(SPREAD_BYTES_MAX, |last| last.spreads.len());
            part.spreads.push(spread(zone, of_zone));
        }
        for (id, definition) in &report.definitions {
            self.told.define(*id);
            let part = parts.with_room(DEFINITION_BYTES_MAX, |last| last.definitions.len());
            part.definitions.push(wire::KeyDefinition {
                id: id.0,
                bucket: definition.key.bucket.to_string(),
                tenant: definition.key.tenant.to_string(),
                base: counts(definition.base),
                sent: counts(definition.sent),
                continues: definition.continues,
            });
        }
        let mut due = 0;
        for (id, tally) in report.tallies.iter() {
            let new = self.told.advance(id, tally);
            let bytes = told::bytes(id.0.saturating_sub(due), new);
            let part = parts.with_room(bytes.max(told::bytes(id.0, new)), |last| last.gaps.len());
            // Each part stands by itself, so its first gap reaches from the beginning.
            let due_here = if part.gaps.is_empty() { 0 } else { due };
            part.gaps.push(id.0.saturating_sub(due_here));
            due = id.0.saturating_add(1);
            told::put(&mut part.counts, new.counts);
            if report.tallies.has_late() {
                told::put(&mut part.late, new.late);
            }
        }
        parts.finish()
    }
}

/// The parts of a report as they fill up.
struct Parts<'a> {
    report: &'a Report,
    done: Vec<wire::Report>,
    last: wire::Report,
    /// Bytes left in the last one.
    room: usize,
}

impl Parts<'_> {
    /// The part to put so many bytes into: a new one if the last is full.
    fn with_room(&mut self, bytes: usize, entries: fn(&wire::Report) -> usize) -> &mut wire::Report {
        if bytes > self.room || entries(&self.last) >= KEYS_PER_PART_MAX {
            let next = wire::Report { identity: None, path: Vec::new(), ..head(self.report) };
            let full = std::mem::replace(&mut self.last, next);
            self.done.push(wire::Report { more: true, ..full });
            self.room = PART_BYTES_MAX;
        }
        self.room -= bytes;
        &mut self.last
    }

    fn finish(mut self) -> Vec<wire::Report> {
        self.done.push(self.last);
        for part in &mut self.done {
            told::leave_out_zeros(&mut part.counts);
            told::leave_out_zeros(&mut part.late);
        }
        self.done
    }
}

fn head(report: &Report) -> wire::Report {
    wire::Report {
        seq: report.seq,
        identity: report.identity.as_ref().map(identity),
        time_us: report.time.map(MonoTime::as_micros),
        epoch: report.epoch.map(|epoch| epoch.0),
        kill_generation: report.kill.0,
        drill: report.drill.0,
        ordered_fleet: report.ordered.contains(&Scope::Fleet),
        ended_fleet: report.ended.contains(&Scope::Fleet),
        leaving: report.leaving,
        children: report.children,
        path: report.path.ids().iter().copied().map(instance).collect(),
        ..wire::Report::default()
    }
}

pub(crate) fn instance(instance: InstanceId) -> Vec<u8> {
    instance.0.to_be_bytes().to_vec()
}

pub(crate) fn instance_of(bytes: &[u8]) -> Result<InstanceId, Invalid> {
    let instance = bytes.try_into().map_err(|_| Invalid::Instance(bytes.len()))?;
    Ok(InstanceId(u128::from_be_bytes(instance)))
}

/// A little more than a parent takes passes, so that it can say itself why it does not.
fn path_of(path: &[Vec<u8>]) -> Result<Path, Invalid> {
    bound("path", path.len(), PATH_IDS_MAX)?;
    let ids: Result<Vec<InstanceId>, Invalid> = path.iter().map(|id| instance_of(id)).collect();
    ids.map(Path::new)
}

fn identity(identity: &Identity) -> wire::Identity {
    wire::Identity {
        instance: instance(identity.instance),
        name: identity.name.to_string(),
        service: identity.service.to_string(),
        zone: identity.zone.to_string(),
        role: match identity.role {
            Role::Client => wire::Role::Client,
            Role::Aggregator => wire::Role::Aggregator,
        } as i32,
    }
}

fn counts(counts: Counts) -> Option<wire::Counts> {
    (counts != Counts::ZERO).then_some(wire::Counts {
        offered: counts.offered,
        dropped: counts.dropped,
        would_dropped: counts.would_dropped,
        guard_dropped: counts.guard_dropped,
        would_guard_dropped: counts.would_guard_dropped,
    })
}

/// Puts the parts of one stream's reports together and validates them.
#[derive(Debug, Default)]
pub struct ReportDecoder {
    told: Told,
    /// The last report that is complete.
    seq: u64,
    parts: Option<Report>,
}

impl ReportDecoder {
    /// Takes one message; returns the report when its last part has come.
    ///
    /// # Errors
    /// When a value is out of range. The stream cannot go on then, since what later messages build on is missing.
    pub fn decode(&mut self, part: wire::Report) -> Result<Option<Report>, Invalid> {
        let more = part.more;
        let part = self.part(part)?;
        let report = match self.parts.take() {
            None => part,
            Some(parts) => {
                for (same, field) in [
                    (parts.seq == part.seq, "seq"),
                    (parts.time == part.time, "time"),
                    (part.identity.is_none(), "identity"),
                    (part.path.is_empty(), "path"),
                    // What an id stands for must not change between the counts of one report.
                    (part.definitions.is_empty() || parts.tallies.is_empty(), "definitions"),
                ] {
                    if !same {
                        return Err(Invalid::Parts(field));
                    }
                }
                if let Some((id, _)) =
                    part.tallies.iter().next().filter(|(id, _)| Some(*id) <= parts.tallies.last_id())
                {
                    return Err(Invalid::Unsorted(id.0));
                }
                if let Some(id) = part.definitions.keys().find(|id| parts.definitions.contains_key(id)) {
                    return Err(Invalid::Definition(id.0));
                }
                parts.merge(part)
            }
        };
        bound("counts", report.tallies.len(), KEYS_PER_MESSAGE_MAX)?;
        bound("definitions", report.definitions.len(), KEYS_PER_MESSAGE_MAX)?;
        bound("asked", report.asked.len(), KEYS_PER_MESSAGE_MAX)?;
        bound("holds", report.holds.len(), KEYS_PER_MESSAGE_MAX)?;
        bound("evidence", report.evidence.len(), evidence::STANDS_MAX)?;
        bound("kills", report.kills.len(), KILLED_BUCKETS_MAX)?;
        bound("ordered_buckets", report.ordered.len(), KILLED_BUCKETS_MAX + 1)?;
        bound("ended_buckets", report.ended.len(), KILLED_BUCKETS_MAX + 1)?;
        bound("spreads", report.spreads.len(), SPREAD_ZONES_MAX)?;
        // What a report leaves out is what its predecessor said, so none may be missing.
        if report.seq != self.seq + 1 {
            return Err(Invalid::Gap { expected: self.seq + 1, got: report.seq });
        }
        if more {
            self.parts = Some(report);
            return Ok(None);
        }
        self.seq = report.seq;
        Ok(Some(report))
    }

    fn part(&mut self, part: wire::Report) -> Result<Report, Invalid> {
        if part.seq == 0 {
            return Err(Invalid::Zero("seq"));
        }
        bound("asked", part.asked.len(), KEYS_PER_PART_MAX)?;
        bound("holds", part.holds.len(), KEYS_PER_PART_MAX)?;
        bound("definitions", part.definitions.len(), KEYS_PER_PART_MAX)?;
        bound("counts", part.gaps.len(), KEYS_PER_PART_MAX)?;
        bound("evidence", part.evidence.len(), KEYS_PER_PART_MAX)?;
        let mut definitions = BTreeMap::new();
        for definition in &part.definitions {
            let id = KeyId(definition.id);
            let new = KeyDefinition {
                key: Key {
                    bucket: name("bucket", &definition.bucket, Bucket::new)?,
                    tenant: name("tenant", &definition.tenant, Tenant::new)?,
                },
                base: counts_of(definition.base),
                sent: counts_of(definition.sent),
                continues: definition.continues,
            };
            if !self.told.define(id) || definitions.insert(id, new).is_some() {
                return Err(Invalid::Definition(id.0));
            }
        }
        let tallies = self.told.add_up(&part)?;
        let ordered = scopes_of("ordered_buckets", part.ordered_fleet, &part.ordered_buckets)?;
        let ended = scopes_of("ended_buckets", part.ended_fleet, &part.ended_buckets)?;
        Ok(Report {
            seq: part.seq,
            identity: part.identity.map(identity_of).transpose()?,
            time: part.time_us.map(MonoTime::from_micros),
            epoch: epoch_of(part.epoch)?,
            kill: KillGeneration(part.kill_generation),
            kills: kills_of(&part.kills)?,
            ordered,
            ended,
            drill: Drill(part.drill),
            spreads: spreads_of(&part.spreads)?,
            children: part.children,
            path: path_of(&part.path)?,
            asked: part
                .asked
                .iter()
                .map(|bucket| name("asked", bucket, Bucket::new))
                .collect::<Result<_, _>>()?,
            holds: part
                .holds
                .iter()
                .map(|hold| Ok((name("hold", &hold.bucket, Bucket::new)?, rate(hold.milli_rps)?)))
                .collect::<Result<_, Invalid>>()?,
            definitions,
            tallies,
            evidence: evidence_of(part.seq, part.evidence)?,
            leaving: part.leaving,
        })
    }
}

pub(crate) fn bound(field: &'static str, got: usize, most: usize) -> Result<(), Invalid> {
    if got > most { Err(Invalid::TooMany { field, got, most }) } else { Ok(()) }
}

pub(crate) fn name<N>(
    field: &'static str,
    text: &str,
    new: impl FnOnce(&str) -> Result<N, InvalidName>,
) -> Result<N, Invalid> {
    new(text).map_err(|source| Invalid::Name { field, source })
}

pub(crate) fn epoch_of(epoch: Option<u64>) -> Result<Option<Epoch>, Invalid> {
    match epoch {
        Some(0) => Err(Invalid::Zero("epoch")),
        epoch => Ok(epoch.map(Epoch)),
    }
}

fn counts_of(counts: Option<wire::Counts>) -> Counts {
    counts.map_or(Counts::ZERO, |counts| Counts {
        offered: counts.offered,
        dropped: counts.dropped,
        would_dropped: counts.would_dropped,
        guard_dropped: counts.guard_dropped,
        would_guard_dropped: counts.would_guard_dropped,
    })
}

fn identity_of(identity: wire::Identity) -> Result<Identity, Invalid> {
    Ok(Identity {
        instance: instance_of(&identity.instance)?,
        name: name("name", &identity.name, Name::new)?,
        service: name("service", &identity.service, Name::new)?,
        zone: name("zone", &identity.zone, Zone::new)?,
        role: match wire::Role::try_from(identity.role) {
            Ok(wire::Role::Client) => Role::Client,
            Ok(wire::Role::Aggregator) => Role::Aggregator,
            Ok(wire::Role::Unspecified) | Err(_) => {
                return Err(Invalid::Enumeration { field: "role", value: identity.role });
            }
        },
    })
}
