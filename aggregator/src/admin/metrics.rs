//! The metrics of an aggregator.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_admin::ports::{self, Ports};
use plimsoll_admin::rejected_streams::{self, RejectedStreams};
use plimsoll_admin::security::{ACCESS, CERTIFICATES};
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::stats::metrics::{self, About, Family, Metric, families, one, rows};
use plimsoll_core::stats::{ADMISSIONS, BucketFigures};

use crate::admin::status::{self, BucketStatus};
use crate::zone::Zone;

/// What the drivers of streams and the servers have seen. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events {
    uplink: Arc<Mutex<Uplink>>,
    /// Streams of children that were not admitted, or closed for a cause.
    pub(crate) rejected_streams: RejectedStreams,
    pub(crate) ports: Ports,
}

#[derive(Debug, Default)]
struct Uplink {
    /// Host and port of the parent; `None` without a stream to it.
    parent: Option<String>,
    lost: u64,
    invalid_messages: u64,
}

impl Events {
    pub(crate) fn new(ports: Ports) -> Self {
        Self {
            ports,
            ..Self::default()
        }
    }

    fn with<R>(&self, f: impl FnOnce(&mut Uplink) -> R) -> R {
        f(&mut self.uplink.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn on_uplink_connected(&self, parent: &str) {
        self.with(|uplink| uplink.parent = Some(parent.to_owned()));
    }

    pub(crate) fn parent(&self) -> Option<String> {
        self.with(|uplink| uplink.parent.clone())
    }

    /// Counts the end of a stream to the parent, or an attempt to open one. `is_invalid` is true if a message of the
    /// parent was out of range.
    pub(crate) fn on_uplink_broken(&self, was_connected: bool, is_invalid: bool) {
        self.with(|uplink| {
            uplink.parent = None;
            uplink.lost += u64::from(was_connected);
            uplink.invalid_messages += u64::from(is_invalid);
        });
    }
}

struct Source<'a> {
    zone: &'a Zone,
    now: MonoTime,
    buckets: BTreeMap<Bucket, BucketStatus>,
    uplink: &'a Uplink,
}

pub(crate) fn page(zone: &Zone, now: MonoTime, events: &Events) -> Vec<Family> {
    let buckets = status::limited(zone, now);
    let admissions: BucketFigures = buckets
        .iter()
        .map(|(name, bucket)| (name.to_string(), bucket.admissions))
        .collect();
    let own = events.with(|uplink| {
        families(
            &table(),
            &Source {
                zone,
                now,
                buckets,
                uplink,
            },
        )
    });
    [
        own,
        families(&ADMISSIONS, &admissions),
        families(&rejected_streams::METRICS, &events.rejected_streams),
        families(&ports::METRICS, &events.ports.named()),
    ]
    .concat()
}

/// Returns the descriptions of all metrics of the admin port. Not part of the API.
pub fn described() -> Vec<About> {
    [
        metrics::described(&table()),
        metrics::described(&ADMISSIONS),
        metrics::described(&rejected_streams::METRICS),
        metrics::described(&ports::METRICS),
        metrics::described(&CERTIFICATES),
        metrics::described(&ACCESS),
    ]
    .concat()
}

fn table<'a>() -> Vec<Metric<Source<'a>>> {
    type M<'a> = Metric<Source<'a>>;
    vec![
        M::gauge("plimsoll_uplink_connected", &[], "1 while there is a stream to the parent.", |s| {
            one(s.uplink.parent.is_some())
        }),
        M::gauge(
            "plimsoll_directive_last_update_timestamp_seconds",
            &["zone"],
            "Unix time, by this machine's clock, at which the controller last covered a roll-up of this zone; 0 if it never \
             did.",
            |s| {
                let updated = s.zone.upstream.freshness.age(s.now).and_then(|age| SystemTime::now().checked_sub(age));
                let updated = updated.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
                rows([([s.zone.identity.zone.as_str()], updated.unwrap_or_default())])
            },
        )
        .first(),
        M::gauge("plimsoll_children", &[], "Children (clients and aggregators) with a stream.", |s| {
            one(s.zone.sessions().connected_count())
        }),
        M::gauge(
            "plimsoll_clients_in_other_zones",
            &[],
            "Clients with a stream that name another zone than this aggregator.",
            |s| one(s.zone.foreign_clients()),
        ),
        M::gauge(
            "plimsoll_report_interval_seconds",
            &[],
            "Interval at which children are asked to report and are sent directives: 0.1, and 0.25, 0.5 or 1 while the \
             aggregator is overloaded.",
            |s| one(s.zone.schedule.report_interval),
        ),
        M::gauge(
            "plimsoll_busy_ratio",
            &[],
            "Share of the last second in which the threads of the aggregator were busy, 0 to 1; it decides the report interval.",
            |s| one(s.zone.schedule.load.busy),
        ),
        M::gauge("plimsoll_tick_late_seconds", &[], "Longest delay of a tick in the last second.", |s| {
            one(s.zone.schedule.load.late)
        }),
        M::gauge("plimsoll_keys", &[], "Keys that are counted separately.", |s| one(s.zone.keys())),
        M::gauge(
            "plimsoll_warming_up",
            &[],
            "1 while the aggregator waits for its children after a restart.",
            |s| one(s.zone.warmup.withholds()),
        ),
        M::gauge("plimsoll_epoch", &[], "Highest controller epoch applied; 0 before the first.", |s| {
            one(s.zone.upstream.epoch().map_or(0, |epoch| epoch.0))
        }),
        M::gauge(
            "plimsoll_controller_conflict",
            &[],
            "1 while children or the parent name a second controller at the epoch of the one in force.",
            |s| one(s.zone.upstream.leaders.others.has_rival(s.now)),
        ),
        M::gauge(
            "plimsoll_epoch_claims",
            &[],
            "Children that claim a later epoch than the one in force, without effect.",
            |s| one(s.zone.upstream.leaders.others.iter(s.now).filter(|(_, seen)| !seen.is_rival).count()),
        ),
        M::gauge(
            "plimsoll_kill_generation",
            &[],
            "Kill generation of the fleet; odd means killed.",
            |s| one(s.zone.kills().fleet().0),
        ),
        M::gauge(
            "plimsoll_kill_claims",
            &[],
            "Scopes of which a child holds a higher kill generation without an order; it stays in shadow.",
            |s| one(s.zone.kills.claims().iter().count()),
        ),
        M::counter(
            "plimsoll_kill_claims_total",
            &[],
            "Kill generations that no order explained and that were higher than those before.",
            |s| one(s.zone.kills.claims().ignored),
        ),
        M::gauge(
            "plimsoll_clients_killed_locally",
            &[],
            "Connected clients that a kill file stops from refusing, also those of aggregators below.",
            |s| one(s.zone.downstream.clients_below().killed_locally),
        ),
        M::gauge(
            "plimsoll_clocks_distrusted",
            &[],
            "Children with an unreliable clock, for which arrival times are used.",
            |s| one(s.zone.sessions().iter().filter(|child| child.books.clock_distrusted()).count()),
        ),
        M::gauge(
            "plimsoll_zone_on_hold",
            &["bucket"],
            "1 while the zone lives on its hold, because no controller leads or it has sent no rates; absent without a limit.",
            |s| rows(s.buckets.iter().map(|(name, bucket)| ([name.as_str()], bucket.on_hold))),
        )
        .first(),
        M::gauge(
            "plimsoll_zone_hold",
            &["bucket"],
            "Hold in requests/s: this zone's part of the limit while no controller leads; absent while it has none.",
            |s| rows(s.buckets.iter().filter_map(|(name, bucket)| Some(([name.as_str()], bucket.hold_rps?)))),
        ),
        M::gauge(
            "plimsoll_buckets_unprotected",
            &[],
            "Buckets without room, which are unprotected whatever the policy says; 64 of them are told apart.",
            |s| one(s.zone.room.refused.iter().count()),
        ),
        M::counter(
            "plimsoll_directives_rejected_total",
            &[],
            "Messages of the parent that were invalid, or older than the directives in force.",
            |s| one(s.zone.counters().stale + s.uplink.invalid_messages),
        ),
        M::counter("plimsoll_uplink_lost_total", &[], "Streams to the parent that ended.", |s| {
            one(s.uplink.lost)
        }),
        M::counter(
            "plimsoll_counts_late_total",
            &[],
            "Requests that were reported too late to show anything about the present rate.",
            |s| one(s.zone.counters().late),
        ),
        M::counter(
            "plimsoll_counts_unconfirmed_total",
            &[],
            "Requests that were not counted, because an earlier parent may have counted them.",
            |s| one(s.zone.counters().unconfirmed),
        ),
        M::counter(
            "plimsoll_counts_cut_total",
            &[],
            "Requests that were not counted, because those who reported them cannot have decided so many.",
            |s| one(s.zone.counters().cut),
        ),
        M::counter(
            "plimsoll_evidence_left_out_total",
            &[],
            "Requests in reports that are no evidence for a gate: late, of a bucket or mode that the child does not have, \
             above its weight, or without room.",
            |s| one(s.zone.upstream.evidence.left_out()),
        ),
        M::counter(
            "plimsoll_keys_rejected_total",
            &["reason"],
            "Keys and buckets that were not counted separately: `capacity` if there was no room.",
            |s| rows([(["capacity"], s.zone.counters().rejected)]),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zone::Bounds;
    use plimsoll_core::directive::{BucketDirective, Directives, Epoch, Terms};
    use plimsoll_core::exchange::Child;
    use plimsoll_core::law::Parameters;
    use plimsoll_core::names::{Bucket, Name, Zone as ZoneName};
    use plimsoll_core::quantity::{Limit, Rate};
    use plimsoll_core::report::{Identity, InstanceId, Role};

    #[test]
    fn holds_are_exported_for_limited_buckets() {
        let identity = Identity {
            instance: InstanceId(1),
            name: Name::new("host:1").unwrap(),
            service: Name::new("aggregator").unwrap(),
            zone: ZoneName::new("a").unwrap(),
            role: Role::Aggregator,
        };
        let mut zone = Zone::new(identity, Bounds::default(), Parameters::default());
        let limited = |rate: f64| Limit::PerSecond(Rate::new(rate).unwrap());
        let directive = |name: &str, limit: Limit, hold: Option<f64>| BucketDirective {
            bucket: Bucket::new(name).unwrap(),
            whole: true,
            terms: Terms {
                named: true,
                limit,
                hold: hold.map(|hold| Rate::new(hold).unwrap()),
                ..Terms::default()
            },
            keys: Vec::new(),
        };
        let buckets = vec![
            directive("held", limited(900.0), Some(300.0)),
            directive("new", limited(900.0), None),
            directive("free", Limit::Unlimited, None),
        ];
        let message = Directives {
            lead: Epoch(1).into(),
            seq: 1,
            buckets,
            ..Directives::default()
        };
        zone.on_directives(MonoTime::ZERO, message).unwrap();
        let text = metrics::text(&page(&zone, MonoTime::ZERO, &Events::default()));
        let rows: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("plimsoll_zone_"))
            .collect();
        assert_eq!(
            rows,
            [
                "plimsoll_zone_on_hold{bucket=\"held\"} 1",
                "plimsoll_zone_on_hold{bucket=\"new\"} 1",
                "plimsoll_zone_hold{bucket=\"held\"} 300",
            ]
        );
    }
}
