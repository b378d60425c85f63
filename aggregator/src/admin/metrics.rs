//! What an aggregator exports, in the words of the whole house.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_core::quantity::MonoTime;
use plimsoll_proto::page::{Page, Row, flag, plain};
use plimsoll_proto::refusals::Refusals;

use crate::admin::status::{self, BucketStatus};
use crate::zone::Zone;

/// What happened outside the zone's state since the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events {
    counts: Arc<Mutex<Counts>>,
    /// Streams of children that were refused.
    pub(crate) refusals: Refusals,
}

#[derive(Debug, Default)]
struct Counts {
    uplink_connected: bool,
    uplink_lost: u64,
    directives_invalid: u64,
}

impl Events {
    fn with<R>(&self, f: impl FnOnce(&mut Counts) -> R) -> R {
        f(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn on_uplink_connected(&self) {
        self.with(|counts| counts.uplink_connected = true);
    }

    pub(crate) fn on_uplink_broken(&self, was_connected: bool, by_an_invalid_message: bool) {
        self.with(|counts| {
            counts.uplink_connected = false;
            counts.uplink_lost += u64::from(was_connected);
            counts.directives_invalid += u64::from(by_an_invalid_message);
        });
    }
}

/// The page of this moment.
pub(crate) fn page(zone: &Zone, now: MonoTime, events: &Events) -> Page {
    let mut page = Page::default();
    events.refusals.add_to(&mut page);
    state(&mut page, zone, now);
    holds(&mut page, zone, now);
    losses(&mut page, zone);
    let stale = zone.figures().stale;
    events.with(|counts| {
        let refused = (stale + counts.directives_invalid) as f64;
        let help = "Messages of the controller that were out of range, or older than what is held.";
        page.counter("plimsoll_directives_refused_total", help, &[], plain(refused));
        page.gauge(
            "plimsoll_uplink_connected",
            "1 while there is a stream to the controller.",
            &[],
            plain(flag(counts.uplink_connected)),
        );
        page.counter(
            "plimsoll_uplink_lost_total",
            "Streams to the controller that ended.",
            &[],
            plain(counts.uplink_lost as f64),
        );
    });
    page
}

fn state(page: &mut Page, zone: &Zone, now: MonoTime) {
    let heard = zone.upstream_age(now).and_then(|age| SystemTime::now().checked_sub(age));
    let heard = heard.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or(Duration::ZERO);
    let label = vec![zone.name().to_string()];
    page.gauge(
        "plimsoll_directive_last_update_timestamp_seconds",
        "When the controller last covered a roll-up of this zone; 0 if it never did.",
        &["zone"],
        [(label, heard.as_secs_f64())],
    );
    page.gauge(
        "plimsoll_children",
        "Clients with a stream.",
        &[],
        plain(zone.roster().connected_count() as f64),
    );
    page.gauge(
        "plimsoll_report_interval_seconds",
        "How often clients are asked to report, and are pushed to; longer while the aggregator is busy.",
        &[],
        plain(zone.interval_of_clients().as_secs_f64()),
    );
    page.gauge(
        "plimsoll_busy_ratio",
        "The share of the last second that the aggregator's threads were busy.",
        &[],
        plain(zone.load().busy),
    );
    page.gauge(
        "plimsoll_tick_late_seconds",
        "By how much the latest tick of the last second was late.",
        &[],
        plain(zone.load().late.as_secs_f64()),
    );
    page.gauge("plimsoll_keys", "Keys told apart.", &[], plain(zone.keys() as f64));
    page.gauge("plimsoll_quiet", "1 while a restart is waited out.", &[], plain(flag(zone.is_quiet())));
    page.gauge(
        "plimsoll_epoch",
        "The highest controller epoch applied; 0 before the first.",
        &[],
        plain(zone.epoch().map_or(0, |epoch| epoch.0) as f64),
    );
    page.gauge(
        "plimsoll_kill_generation",
        "The kill generation held; odd means killed.",
        &[],
        plain(zone.kills().fleet().0 as f64),
    );
    let distrusted = zone.roster().iter().filter(|child| child.books.clock_distrusted()).count();
    page.gauge(
        "plimsoll_clocks_distrusted",
        "Children whose clock was found unfit, so that arrival times are used.",
        &[],
        plain(distrusted as f64),
    );
}

fn holds(page: &mut Page, zone: &Zone, now: MonoTime) {
    let buckets = status::buckets(zone, now);
    let each = |value: &dyn Fn(&BucketStatus) -> Option<f64>| -> Vec<Row> {
        let rows = buckets.iter();
        rows.filter_map(|(name, bucket)| Some((vec![name.to_string()], value(bucket)?))).collect()
    };
    page.gauge(
        "plimsoll_zone_on_hold",
        "1 while the zone lives on its own part of the limit, because no controller leads.",
        &["bucket"],
        each(&|b| Some(flag(b.on_hold))),
    );
    page.gauge(
        "plimsoll_zone_hold",
        "Requests/s that are this zone's part of the limit while no controller leads; absent while it has none.",
        &["bucket"],
        each(&|b| b.hold_rps),
    );
}

fn losses(page: &mut Page, zone: &Zone) {
    let figures = zone.figures();
    for (name, help, value) in [
        (
            "plimsoll_counts_late_total",
            "Requests that came too late to say anything about the present rate.",
            figures.late,
        ),
        (
            "plimsoll_counts_unconfirmed_total",
            "Requests given up because nobody can tell whether they were counted before.",
            figures.unconfirmed,
        ),
        ("plimsoll_keys_homeless_total", "Keys and buckets for which there was no room.", figures.homeless),
    ] {
        page.counter(name, help, &[], plain(value as f64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zone::Bounds;
    use plimsoll_core::names::{Bucket, Name, Zone as ZoneName};
    use plimsoll_core::directive::{BucketDirective, Directives, Epoch, Terms};
    use plimsoll_core::exchange::Child;
    use plimsoll_core::law::Parameters;
    use plimsoll_core::quantity::{Limit, Rate};
    use plimsoll_core::report::{Identity, InstanceId, Role};

    #[test]
    fn holds_are_told_of_buckets_with_a_limit() {
        let identity = Identity {
            instance: InstanceId(1),
            name: Name::new("host:1").unwrap(),
            service: Name::new("aggregator").unwrap(),
            zone: ZoneName::new("a").unwrap(),
            role: Role::Aggregator,
        };
        let mut zone = Zone::new(identity, Bounds::default(), Parameters::default());
        let limited = |rate: f64| Limit::PerSecond(Rate::new(rate).unwrap());
        let said = |name: &str, limit: Limit, hold: Option<f64>| BucketDirective {
            bucket: Bucket::new(name).unwrap(),
            whole: true,
            terms: Terms { limit, hold: hold.map(|hold| Rate::new(hold).unwrap()), ..Terms::default() },
            keys: Vec::new(),
        };
        let buckets = vec![
            said("held", limited(900.0), Some(300.0)),
            said("new", limited(900.0), None),
            said("free", Limit::Unlimited, None),
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
