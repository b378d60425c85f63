//! Decoding of reports: validates each part and assembles the parts of a report.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::directive::{CATALOGUED_MAX, LIMITED_MAX};
use plimsoll_core::exchange::Path;
use plimsoll_core::kill::drill::{Drill, SPREAD_ZONES_MAX};
use plimsoll_core::kill::{
    CLAIMS_MAX, KILL_ORDERS_MAX, KILLED_BUCKETS_MAX, KillGeneration, KillNews, KillsBelow,
};
use plimsoll_core::names::{Bucket, Key, KeyId, Name, Tenant, Zone};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{
    CALLERS_MAX, COHORTS_MAX, ClientCounts, Counts, Greeting, Identity, InstanceId, KeyDefinition,
    Report, ReportedLead, ReportedMode, ReportedNames, Role, SubscriptionChanges,
};

use super::delta::SentCounts;
use super::evidence::decode_evidence;
use crate::convert::DecodeError;
use crate::convert::directives::decode_mode;
use crate::convert::kill::{decode_claims, decode_kills, decode_orders, decode_spreads};
use crate::convert::scalars::{
    check_len, decode_controller, decode_instance, decode_leader, decode_name, decode_rate,
};
use crate::convert::tail::{TAILS_MAX, decode_name_rates, decode_tail};
use crate::{KEYS_PER_PART_MAX, wire};

/// Maximum number of ids of a path; a longer one is rejected here.
const PATH_IDS_MAX: usize = 4 * Path::IDS_MAX;
/// Maximum number of parts of one report. The largest sound report, a million new keys with the
/// longest names, has fewer than 2,500.
const PARTS_MAX: usize = 4_096;
/// Maximum number of buckets that one report subscribes to, or has holds or modes of.
const BUCKETS_PER_REPORT_MAX: usize = 1 << 15;
/// Maximum number of established tenants in one report. Further ones are left out, and become established again.
pub(super) const ESTABLISHED_MAX: usize = 1 << 16;
/// Maximum number of latency bins in the evidence of one report. The latencies of further cohorts
/// are left out.
pub(super) const EVIDENCE_BINS_MAX: usize = 1 << 18;

/// Assembles the reports of one stream from their parts and validates them.
///
/// Keys are most of a large report, so they are passed on with each part. The rest is held until the last part
/// has arrived, and every bound on it is checked as parts arrive.
#[derive(Debug, Default)]
pub struct ReportDecoder {
    sent: SentCounts,
    /// Sequence number of the last complete report.
    seq: u64,
    unfinished: Option<Unfinished>,
}

#[derive(Debug)]
struct Unfinished {
    /// Everything but the keys of the parts so far.
    rest: Report,
    parts: usize,
    /// Latency bins of the evidence so far.
    bins: usize,
    last_defined: Option<KeyId>,
    last_counted: Option<KeyId>,
}

impl ReportDecoder {
    /// Decodes one message. Returns a report with its last part. Before, returns the keys of a part as a report with
    /// [`more`](Report::more) set, or `None` if the part has none.
    ///
    /// # Errors
    /// If a value is out of range. The stream must end then: later deltas build on the rejected message.
    pub fn decode(&mut self, part: wire::Report) -> Result<Option<Report>, DecodeError> {
        let more = part.more;
        let mut part = self.decode_part(part)?;
        let keys = Report {
            seq: part.seq,
            more,
            time: part.time,
            clients: part.clients,
            definitions: std::mem::take(&mut part.definitions),
            tallies: std::mem::take(&mut part.tallies),
            ..Report::default()
        };
        let has_keys = !keys.definitions.is_empty() || !keys.tallies.is_empty();
        let report = match self.unfinished.take() {
            None => Unfinished::begin(part, &keys),
            Some(unfinished) => unfinished.join(part, &keys)?,
        };
        check_lens(&report)?;
        // Deltas build on the report before, so none may be missing.
        if keys.seq != self.seq + 1 {
            return Err(DecodeError::Gap {
                expected: self.seq + 1,
                got: keys.seq,
            });
        }
        if has_keys && report.rest.greeting.identity.is_some() && (more || report.parts > 1) {
            return Err(DecodeError::GreetingKeys);
        }
        if more {
            self.unfinished = Some(report);
            return Ok(has_keys.then_some(keys));
        }
        self.seq = keys.seq;
        Ok(Some(Report {
            definitions: keys.definitions,
            tallies: keys.tallies,
            ..report.finish()
        }))
    }

    /// Returns true while parts of a report are missing.
    pub const fn is_unfinished(&self) -> bool {
        self.unfinished.is_some()
    }

    fn decode_part(&mut self, mut part: wire::Report) -> Result<Report, DecodeError> {
        if part.seq == 0 {
            return Err(DecodeError::Zero("seq"));
        }
        for (list, got) in [
            ("subscriptions", part.subscriptions.len()),
            ("unsubscriptions", part.unsubscriptions.len()),
            ("holds", part.holds.len()),
            ("modes", part.modes.len()),
            ("established", part.established.len()),
            ("definitions", part.definitions.len()),
            ("id_gaps", part.id_gaps.len()),
            ("evidence", part.evidence.len()),
            ("tails", part.tails.len()),
        ] {
            check_len(list, got, KEYS_PER_PART_MAX)?;
        }
        let definitions = self.decode_definitions(&part.definitions)?;
        let tallies = self.sent.apply(&mut part)?;
        Ok(Report {
            seq: part.seq,
            more: false,
            greeting: Greeting {
                identity: part.identity.map(decode_identity).transpose()?,
                version: match part.version.as_str() {
                    "" => None,
                    version => Some(decode_name("version", version, Name::new)?),
                },
                holds: part
                    .holds
                    .iter()
                    .map(|hold| {
                        Ok((
                            decode_name("holds", &hold.bucket, Bucket::new)?,
                            decode_rate(hold.milli_rps)?,
                        ))
                    })
                    .collect::<Result<_, DecodeError>>()?,
                established: part
                    .established
                    .iter()
                    .map(|name| decode_key(&name.bucket, &name.tenant))
                    .collect::<Result<_, DecodeError>>()?,
            },
            time: part.time_us.map(MonoTime::from_micros),
            lead: ReportedLead {
                leader: decode_leader(part.epoch, part.controller)?,
                age: part.controller_age_ms.map(Duration::from_millis),
                other: part.other_controller.map(decode_controller).transpose()?,
            },
            kills: KillNews {
                fleet: KillGeneration(part.kill_generation),
                buckets: decode_kills(&part.kills)?,
                orders: decode_orders(&part.kill_orders)?,
                drill: Drill(part.drill),
            },
            kills_below: KillsBelow {
                claims: decode_claims(&part.kill_claims)?,
                drill: Drill(part.claimed_drill),
                spreads: decode_spreads(&part.drill_latencies)?,
            },
            children: part.children,
            clients: ClientCounts {
                connected: part.clients,
                killed_locally: part.killed_locally,
                quota_store_down: part.quota_store_down,
            },
            path: decode_path(&part.path)?,
            subscriptions: SubscriptionChanges {
                added: decode_buckets("subscriptions", &part.subscriptions)?,
                ended: decode_buckets("unsubscriptions", &part.unsubscriptions)?,
            },
            modes: part
                .modes
                .iter()
                .map(decode_reported_mode)
                .collect::<Result<_, DecodeError>>()?,
            names: ReportedNames {
                tails: part
                    .tails
                    .iter()
                    .map(decode_tail)
                    .collect::<Result<_, _>>()?,
                limited: decode_name_rates("limited", &part.limited, LIMITED_MAX)?,
                callers: decode_name_rates("callers", &part.callers, CALLERS_MAX)?,
                asked: part
                    .asked
                    .iter()
                    .map(|tenant| decode_name("asked", tenant, Tenant::new))
                    .collect::<Result<_, DecodeError>>()?,
            },
            definitions,
            tallies,
            evidence: decode_evidence(part.evidence)?,
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
                key: decode_key(&definition.bucket, &definition.tenant)?,
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

impl Unfinished {
    fn begin(rest: Report, keys: &Report) -> Self {
        let bins = rest.evidence.bins();
        Self {
            rest,
            parts: 0,
            bins,
            last_defined: None,
            last_counted: None,
        }
        .with_keys(keys)
    }

    fn join(mut self, part: Report, keys: &Report) -> Result<Self, DecodeError> {
        for (is_consistent, field) in [
            (self.rest.seq == part.seq, "seq"),
            (self.rest.time == part.time, "time"),
            (part.greeting.identity.is_none(), "identity"),
            (part.path.0.is_empty(), "path"),
            // An id must not be reassigned between the counts of one report.
            (
                keys.definitions.is_empty() || self.last_counted.is_none(),
                "definitions",
            ),
        ] {
            if !is_consistent {
                return Err(DecodeError::Parts(field));
            }
        }
        let first_counted = keys.tallies.iter().next().map(|(id, _)| id);
        if let Some(id) = first_counted.filter(|id| Some(*id) <= self.last_counted) {
            return Err(DecodeError::Unsorted(id.0));
        }
        let first_defined = keys.definitions.keys().next();
        if let Some(id) = first_defined.filter(|id| Some(**id) <= self.last_defined) {
            return Err(DecodeError::Definition(id.0));
        }
        self.bins += part.evidence.bins();
        let rest = &mut self.rest;
        rest.subscriptions.added.extend(part.subscriptions.added);
        rest.subscriptions.ended.extend(part.subscriptions.ended);
        // `append` would rebuild a map with each part, at the cost of the square of its length.
        rest.kills.buckets.extend(part.kills.buckets);
        rest.kills.orders.extend(part.kills.orders);
        rest.kills_below.claims.extend(part.kills_below.claims);
        rest.kills_below.spreads.extend(part.kills_below.spreads);
        rest.greeting.holds.extend(part.greeting.holds);
        rest.modes.extend(part.modes);
        rest.greeting.established.extend(part.greeting.established);
        rest.names.tails.extend(part.names.tails);
        rest.names.limited.extend(part.names.limited);
        rest.names.callers.extend(part.names.callers);
        rest.names.asked.extend(part.names.asked);
        rest.evidence.extend(part.evidence);
        Ok(self.with_keys(keys))
    }

    fn finish(mut self) -> Report {
        let SubscriptionChanges { added, ended } = &mut self.rest.subscriptions;
        for list in [added, ended] {
            list.sort_unstable();
            list.dedup();
        }
        self.rest
    }

    fn with_keys(self, keys: &Report) -> Self {
        Self {
            parts: self.parts + 1,
            last_defined: keys
                .definitions
                .keys()
                .next_back()
                .copied()
                .or(self.last_defined),
            last_counted: keys.tallies.last_id().or(self.last_counted),
            ..self
        }
    }
}

/// Bounds everything that is held of a report until its last part, as its parts arrive.
fn check_lens(report: &Unfinished) -> Result<(), DecodeError> {
    let rest = &report.rest;
    for (list, got, most) in [
        ("parts", report.parts, PARTS_MAX),
        (
            "subscriptions",
            rest.subscriptions.added.len(),
            BUCKETS_PER_REPORT_MAX,
        ),
        (
            "unsubscriptions",
            rest.subscriptions.ended.len(),
            BUCKETS_PER_REPORT_MAX,
        ),
        ("holds", rest.greeting.holds.len(), BUCKETS_PER_REPORT_MAX),
        ("modes", rest.modes.len(), BUCKETS_PER_REPORT_MAX),
        (
            "established",
            rest.greeting.established.len(),
            ESTABLISHED_MAX,
        ),
        ("tails", rest.names.tails.len(), TAILS_MAX),
        ("limited", rest.names.limited.len(), LIMITED_MAX),
        ("callers", rest.names.callers.len(), CALLERS_MAX),
        ("asked", rest.names.asked.len(), CATALOGUED_MAX),
        ("evidence", rest.evidence.iter().len(), COHORTS_MAX),
        ("evidence.latency_bin_gaps", report.bins, EVIDENCE_BINS_MAX),
        ("kills", rest.kills.buckets.len(), KILLED_BUCKETS_MAX),
        ("kill_orders", rest.kills.orders.len(), KILL_ORDERS_MAX),
        ("kill_claims", rest.kills_below.claims.len(), CLAIMS_MAX),
        (
            "drill_latencies",
            rest.kills_below.spreads.len(),
            SPREAD_ZONES_MAX,
        ),
    ] {
        check_len(list, got, most)?;
    }
    Ok(())
}

fn decode_buckets(field: &'static str, names: &[String]) -> Result<Vec<Bucket>, DecodeError> {
    names
        .iter()
        .map(|name| decode_name(field, name, Bucket::new))
        .collect()
}

/// Decodes a path. Lengths somewhat above the parent's own limit pass, so that the parent can reject them
/// with a reason.
fn decode_path(path: &[Vec<u8>]) -> Result<Path, DecodeError> {
    check_len("path", path.len(), PATH_IDS_MAX)?;
    let ids: Result<Vec<InstanceId>, DecodeError> =
        path.iter().map(|id| decode_instance(id)).collect();
    ids.map(Path)
}

fn decode_reported_mode(mode: &wire::BucketMode) -> Result<(Bucket, ReportedMode), DecodeError> {
    let is_directed = mode.directed != wire::Mode::Unspecified as i32;
    let directed = is_directed
        .then(|| decode_mode(mode.directed))
        .transpose()?;
    let bucket = decode_name("modes", &mode.bucket, Bucket::new)?;
    Ok((
        bucket,
        ReportedMode {
            directed,
            unapplied: mode.unapplied,
        },
    ))
}

fn decode_key(bucket: &str, tenant: &str) -> Result<Key, DecodeError> {
    Ok(Key {
        bucket: decode_name("bucket", bucket, Bucket::new)?,
        tenant: decode_name("tenant", tenant, Tenant::new)?,
    })
}

fn decode_counts(counts: Option<wire::Counts>) -> Counts {
    counts.map_or(Counts::ZERO, |counts| Counts {
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
                return Err(DecodeError::Enumeration {
                    field: "role",
                    value: identity.role,
                });
            }
        },
    })
}
