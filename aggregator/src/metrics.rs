//! What an aggregator exports, in the words of the whole house.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_core::time::MonoTime;
use plimsoll_proto::page::{Page, flag, plain};
use plimsoll_proto::refusals::Refusals;

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
        plain(zone.roster().connected().count() as f64),
    );
    page.gauge("plimsoll_keys", "Keys told apart.", &[], plain(zone.counts().count() as f64));
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
        plain(zone.kill().0 as f64),
    );
    let distrusted = zone.roster().iter().filter(|child| child.books.clock_distrusted()).count();
    page.gauge(
        "plimsoll_clocks_distrusted",
        "Children whose clock was found unfit, so that arrival times are used.",
        &[],
        plain(distrusted as f64),
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
