//! Reports between core and wire: in parts that keep the bound of a message, put together again before anyone sees
//! them.

use std::collections::BTreeMap;

use plimsoll_core::bucket::{Bucket, InvalidName, Key, KeyId, Name, Tenant, Zone};
use plimsoll_core::directive::Epoch;
use plimsoll_core::kill::KillGeneration;
use plimsoll_core::report::{Counts, Identity, InstanceId, KeyDefinition, Report, Role, Tally};
use plimsoll_core::time::MonoTime;

use crate::rates::{milli, rate};
use crate::{Invalid, KEYS_PER_MESSAGE_MAX, KEYS_PER_PART_MAX, wire};

/// What a definition may take on the wire at most: two names of 128 bytes, two times five counts, and framing.
const DEFINITION_BYTES_MAX: usize = 2 * (128 + 3) + 2 * (5 * 11 + 2) + 4;
/// What a key's counts may take at most: an id, two times five counts, and framing.
const COUNTS_BYTES_MAX: usize = 6 + 5 * 11 + (5 * 11 + 2) + 4;
/// What a name asked for may take at most: 128 bytes and framing.
const ASKED_BYTES_MAX: usize = 128 + 3;
/// What a hold may take at most: a name of 128 bytes, a rate, and framing.
const HOLD_BYTES_MAX: usize = (128 + 3) + 11 + 3;
/// What a part's names and counts may take together, with room left for its head.
const PART_BYTES_MAX: usize = crate::MESSAGE_BYTES_MAX - 8 * 1024;

/// The parts of a report, at least one, each within the bounds of a message.
#[must_use]
pub fn encode_report(report: &Report) -> Vec<wire::Report> {
    let mut parts = vec![head(report)];
    let mut room = PART_BYTES_MAX;
    let mut part = |bytes: usize, full: fn(&wire::Report) -> bool, put: &mut dyn FnMut(&mut wire::Report)| {
        if bytes > room || parts.last().is_none_or(full) {
            if let Some(last) = parts.last_mut() {
                last.more = true;
            }
            parts.push(wire::Report { identity: None, ..head(report) });
            room = PART_BYTES_MAX;
        }
        room -= bytes;
        if let Some(last) = parts.last_mut() {
            put(last);
        }
    };
    for bucket in &report.asked {
        part(ASKED_BYTES_MAX, |last| last.asked.len() >= KEYS_PER_PART_MAX, &mut |last| {
            last.asked.push(bucket.to_string())
        });
    }
    for (bucket, hold) in &report.holds {
        part(HOLD_BYTES_MAX, |last| last.holds.len() >= KEYS_PER_PART_MAX, &mut |last| {
            last.holds.push(wire::Hold { bucket: bucket.to_string(), milli_rps: milli(*hold) });
        });
    }
    for definition in report.definitions.values() {
        part(DEFINITION_BYTES_MAX, |last| last.definitions.len() >= KEYS_PER_PART_MAX, &mut |last| {
            last.definitions.push(wire::KeyDefinition {
                bucket: definition.key.bucket.to_string(),
                tenant: definition.key.tenant.to_string(),
                base: counts(definition.base),
                sent: counts(definition.sent),
            });
        });
    }
    for (id, tally) in &report.tallies {
        part(COUNTS_BYTES_MAX, |last| last.counts.len() >= KEYS_PER_PART_MAX, &mut |last| {
            last.counts.push(wire::KeyCounts {
                id: id.0,
                offered: tally.counts.offered,
                dropped: tally.counts.dropped,
                would_dropped: tally.counts.would_dropped,
                guard_dropped: tally.counts.guard_dropped,
                would_guard_dropped: tally.counts.would_guard_dropped,
                late: counts(tally.late),
            });
        });
    }
    parts
}

fn head(report: &Report) -> wire::Report {
    wire::Report {
        seq: report.seq,
        identity: report.identity.as_ref().map(identity),
        time_us: report.time.map(MonoTime::as_micros),
        epoch: report.epoch.map(|epoch| epoch.0),
        kill_generation: report.kill.0,
        leaving: report.leaving,
        children: report.children,
        counted_by: report.counted_by.map(instance),
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
    defined: u32,
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
                ] {
                    if !same {
                        return Err(Invalid::Parts(field));
                    }
                }
                parts.merge(part)
            }
        };
        bound("counts", report.tallies.len(), KEYS_PER_MESSAGE_MAX)?;
        bound("definitions", report.definitions.len(), KEYS_PER_MESSAGE_MAX)?;
        bound("asked", report.asked.len(), KEYS_PER_MESSAGE_MAX)?;
        bound("holds", report.holds.len(), KEYS_PER_MESSAGE_MAX)?;
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
        bound("counts", part.counts.len(), KEYS_PER_PART_MAX)?;
        let mut definitions = BTreeMap::new();
        for definition in part.definitions {
            let id = KeyId(self.defined);
            self.defined = self.defined.saturating_add(1);
            definitions.insert(
                id,
                KeyDefinition {
                    key: Key {
                        bucket: name("bucket", &definition.bucket, Bucket::new)?,
                        tenant: name("tenant", &definition.tenant, Tenant::new)?,
                    },
                    base: counts_of(definition.base),
                    sent: counts_of(definition.sent),
                },
            );
        }
        let mut tallies = BTreeMap::new();
        let mut due = 0;
        for counts in part.counts {
            if counts.id < due {
                return Err(Invalid::Unsorted(counts.id));
            }
            due = counts.id.saturating_add(1);
            let tally = Tally {
                counts: Counts {
                    offered: counts.offered,
                    dropped: counts.dropped,
                    would_dropped: counts.would_dropped,
                    guard_dropped: counts.guard_dropped,
                    would_guard_dropped: counts.would_guard_dropped,
                },
                late: counts_of(counts.late),
            };
            tallies.insert(KeyId(counts.id), tally);
        }
        Ok(Report {
            seq: part.seq,
            identity: part.identity.map(identity_of).transpose()?,
            time: part.time_us.map(MonoTime::from_micros),
            epoch: epoch_of(part.epoch)?,
            kill: KillGeneration(part.kill_generation),
            children: part.children,
            counted_by: part.counted_by.map(|bytes| instance_of(&bytes)).transpose()?,
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
