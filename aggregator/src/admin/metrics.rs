//! The metrics of an aggregator.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_admin::metrics_page::{Page, Row, flag, plain};
use plimsoll_admin::ports::Ports;
use plimsoll_admin::rejected_streams::RejectedStreams;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::stats::AdmissionFigures;

use crate::admin::status::{self, BucketStatus};
use crate::zone::Zone;

/// Counters of the streams, which are outside of the zone's state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events {
    counts: Arc<Mutex<Streams>>,
    /// Streams of children that were closed because the child broke a rule.
    pub(crate) rejected_streams: RejectedStreams,
    /// Connections of the ports.
    pub(crate) ports: Ports,
}

#[derive(Debug, Default)]
struct Streams {
    uplink_connected: bool,
    uplink_lost: u64,
    directives_invalid: u64,
}

impl Events {
    /// The events of a process with these ports.
    pub(crate) fn new(ports: Ports) -> Self {
        Self { ports, ..Self::default() }
    }

    fn with<R>(&self, f: impl FnOnce(&mut Streams) -> R) -> R {
        f(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn on_uplink_connected(&self) {
        self.with(|counts| counts.uplink_connected = true);
    }

    pub(crate) fn on_uplink_broken(&self, was_connected: bool, is_invalid: bool) {
        self.with(|counts| {
            counts.uplink_connected = false;
            counts.uplink_lost += u64::from(was_connected);
            counts.directives_invalid += u64::from(is_invalid);
        });
    }
}

/// Renders the metrics at one moment.
pub(crate) fn page(zone: &Zone, now: MonoTime, events: &Events) -> Page {
    let mut page = Page::default();
    events.rejected_streams.add_to(&mut page);
    events.ports.add_to(&mut page);
    state(&mut page, zone, now);
    holds(&mut page, zone, now);
    events.with(|streams| {
        let connected = plain(flag(streams.uplink_connected));
        page.gauge("plimsoll_uplink_connected", "1 while there is a stream to the parent.", &[], connected);
        losses(&mut page, zone, streams);
    });
    page
}

fn state(page: &mut Page, zone: &Zone, now: MonoTime) {
    let updated = zone.upstream_age(now).and_then(|age| SystemTime::now().checked_sub(age));
    let updated = updated.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or(Duration::ZERO);
    let label = vec![zone.name().to_string()];
    page.gauge(
        "plimsoll_directive_last_update_timestamp_seconds",
        "When the controller last covered a roll-up of this zone; 0 if it never did.",
        &["zone"],
        [(label, updated.as_secs_f64())],
    );
    let distrusted = zone.sessions().iter().filter(|child| child.books.clock_distrusted()).count();
    for (name, help, value) in [
        ("plimsoll_children", "Children with a stream.", zone.sessions().connected_count() as f64),
        (
            "plimsoll_clients_in_other_zones",
            "Clients with a stream that name another zone than this aggregator.",
            zone.foreign_clients() as f64,
        ),
        (
            "plimsoll_report_interval_seconds",
            "Interval at which children are asked to report and are sent directives; longer while the aggregator is overloaded.",
            zone.schedule.report_interval.as_secs_f64(),
        ),
        (
            "plimsoll_busy_ratio",
            "Share of the last second in which the aggregator's threads were busy, 0 to 1.",
            zone.schedule.load.busy,
        ),
        (
            "plimsoll_tick_late_seconds",
            "Longest delay of a tick in the last second.",
            zone.schedule.load.late.as_secs_f64(),
        ),
        ("plimsoll_keys", "Keys that are counted separately.", zone.keys() as f64),
        (
            "plimsoll_warming_up",
            "1 while the aggregator waits for its children after a restart.",
            flag(zone.is_warming_up()),
        ),
        (
            "plimsoll_epoch",
            "Highest controller epoch applied; 0 before the first.",
            zone.epoch().map_or(0, |epoch| epoch.0) as f64,
        ),
        (
            "plimsoll_controller_conflict",
            "1 while children or the parent name a second controller at the epoch of the one in force.",
            flag(zone.other_controllers().has_rival(now)),
        ),
        (
            "plimsoll_epoch_claims",
            "Children that claim a later epoch than the one in force, without effect.",
            zone.other_controllers().iter(now).filter(|(_, seen)| !seen.is_rival).count() as f64,
        ),
        (
            "plimsoll_kill_generation",
            "Kill generation of the fleet; odd means killed.",
            zone.kills().fleet().0 as f64,
        ),
        (
            "plimsoll_kill_claims",
            "Scopes of which a child holds a higher kill generation without an order; the child stays in shadow.",
            zone.kill_claims().iter().count() as f64,
        ),
        (
            "plimsoll_clients_killed_locally",
            "Connected clients that a kill file stops from refusing, also those of aggregators below.",
            f64::from(zone.killed_locally()),
        ),
        (
            "plimsoll_clocks_distrusted",
            "Children with an unreliable clock, for which arrival times are used.",
            distrusted as f64,
        ),
    ] {
        page.gauge(name, help, &[], plain(value));
    }
}

fn holds(page: &mut Page, zone: &Zone, now: MonoTime) {
    let buckets = status::limited(zone, now);
    let each = |value: &dyn Fn(&BucketStatus) -> Option<f64>| -> Vec<Row> {
        let rows = buckets.iter();
        rows.filter_map(|(name, bucket)| Some((vec![name.to_string()], value(bucket)?))).collect()
    };
    page.gauge(
        "plimsoll_zone_on_hold",
        "1 while the zone lives on its own part of the limit because no controller leads.",
        &["bucket"],
        each(&|b| Some(flag(b.on_hold))),
    );
    page.gauge(
        "plimsoll_zone_hold",
        "This zone's part of the limit in requests/s while no controller leads; absent while it has none.",
        &["bucket"],
        each(&|b| b.hold_rps),
    );
    for (name, help, value) in AdmissionFigures::GAUGES {
        page.gauge(name, help, &["bucket"], each(&|b| value(&b.admissions)));
    }
}

fn losses(page: &mut Page, zone: &Zone, streams: &Streams) {
    let help =
        "Buckets without room, which are unprotected whatever the policy says; 64 of them are told apart.";
    page.gauge("plimsoll_buckets_unprotected", help, &[], [(Vec::new(), zone.unprotected().count() as f64)]);
    let (counters, kill_claims) = (zone.counters(), zone.kill_claims().ignored());
    for (name, help, value) in [
        (
            "plimsoll_directives_rejected_total",
            "Messages of the parent that were invalid, or older than the directives in force.",
            counters.stale + streams.directives_invalid,
        ),
        (
            "plimsoll_kill_claims_total",
            "Kill generations of children that no order explained and that were higher than those before.",
            kill_claims,
        ),
        ("plimsoll_uplink_lost_total", "Streams to the parent that ended.", streams.uplink_lost),
        (
            "plimsoll_counts_late_total",
            "Requests that were reported too late to show anything about the present rate.",
            counters.late,
        ),
        (
            "plimsoll_counts_unconfirmed_total",
            "Requests that were not counted, because an earlier parent may have counted them already.",
            counters.unconfirmed,
        ),
        (
            "plimsoll_counts_cut_total",
            "Requests that were not counted, because the child that reported them cannot have decided so many.",
            counters.cut,
        ),
        (
            "plimsoll_evidence_left_out_total",
            "Requests in reports that are no evidence for a gate: late, of a bucket or mode that the child does not have, above \
             its weight, or without room.",
            zone.evidence_left_out(),
        ),
    ] {
        page.counter(name, help, &[], plain(value as f64));
    }
    page.counter(
        "plimsoll_keys_rejected_total",
        "Keys and buckets that were not counted separately, by reason.",
        &["reason"],
        [(vec!["capacity".to_owned()], counters.rejected as f64)],
    );
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
    fn holds_are_exported_for_buckets_with_a_limit() {
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
        let message = Directives { epoch: Some(Epoch(1)), seq: 1, buckets, ..Directives::default() };
        zone.on_directives(MonoTime::ZERO, message).unwrap();
        let text = page(&zone, MonoTime::ZERO, &Events::default()).text();
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("plimsoll_zone_")).collect();
        assert_eq!(
            rows,
            [
                "plimsoll_zone_hold{bucket=\"held\"} 300",
                "plimsoll_zone_on_hold{bucket=\"held\"} 1",
                "plimsoll_zone_on_hold{bucket=\"new\"} 1",
            ]
        );
    }
}
