//! The metrics of the controller.

mod buckets;
mod tenants;

use std::sync::PoisonError;

use plimsoll_admin::ports::{self, Ports};
use plimsoll_admin::rejected_streams;
use plimsoll_admin::security::{ACCESS, CERTIFICATES, Opened};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::stats::metrics::{self, About, Family, Metric, families, maybe, one, rows};
use plimsoll_core::stats::{ADMISSIONS, BucketFigures};

use crate::admin::Commands;
use crate::admin::status::Status;
use crate::audit::AuditLog;
use crate::brain::Brain;
use crate::members::{self, Membership};
use crate::tasks::counters::{Counters, Counts};
use buckets::{of_aggregators, of_buckets, of_limits};
use tenants::{NearestTenants, of_tenants};

pub(crate) use tenants::Shown;

struct Source<'a> {
    brain: &'a Brain,
    status: Status,
    tenants: NearestTenants<'a>,
    counters: Counts,
    audit: &'a AuditLog,
    now: MonoTime,
}

pub(crate) fn page(
    commands: &Commands,
    counters: &Counters,
    security: &Opened,
    membership: Option<&Membership>,
) -> Vec<Family> {
    let shown = counters.shown_tenants.lock();
    let mut shown = shown.unwrap_or_else(PoisonError::into_inner);
    let own = commands.brain.with(|brain, now| {
        let status = Status::of(brain, now);
        let figures = status
            .buckets
            .iter()
            .map(|(name, bucket)| (name.to_string(), bucket.admissions));
        let admissions = families(&ADMISSIONS, &figures.collect::<BucketFigures>());
        let source = Source {
            brain,
            status,
            tenants: NearestTenants::update(brain, &mut shown),
            counters: counters.with(|counts| *counts),
            audit: &commands.audit,
            now,
        };
        [families(&table(), &source), admissions].concat()
    });
    [
        own,
        families(&rejected_streams::METRICS, &counters.rejected_streams),
        of_the_ends(&counters.ports, security),
        membership.map(of_member).unwrap_or_default(),
    ]
    .concat()
}

/// The metrics of a controller that stands by.
pub(crate) fn page_of_standby(
    membership: &Membership,
    ports: &Ports,
    security: &Opened,
) -> Vec<Family> {
    [of_member(membership), of_the_ends(ports, security)].concat()
}

fn of_member(membership: &Membership) -> Vec<Family> {
    families(&members::metrics::METRICS, &membership.status())
}

/// The metrics of what leader and standby have in common: ports, certificates and tokens.
fn of_the_ends(ports: &Ports, security: &Opened) -> Vec<Family> {
    [
        families(&ports::METRICS, &ports.named()),
        families(&CERTIFICATES, security),
        families(&ACCESS, security),
    ]
    .concat()
}

pub(crate) fn described() -> Vec<About> {
    [
        metrics::described(&table()),
        metrics::described(&ADMISSIONS),
        metrics::described(&rejected_streams::METRICS),
        metrics::described(&ports::METRICS),
        metrics::described(&CERTIFICATES),
        metrics::described(&ACCESS),
        metrics::described(&members::metrics::METRICS),
    ]
    .concat()
}

type M<'a> = Metric<Source<'a>>;

fn table<'a>() -> Vec<M<'a>> {
    let parts = [
        of_the_process(),
        of_counts_and_disks(),
        of_limits(),
        of_buckets(),
        of_tenants(),
        of_aggregators(),
    ];
    parts.into_iter().flatten().collect()
}

fn of_the_process<'a>() -> Vec<M<'a>> {
    vec![
        M::gauge(
            "plimsoll_epoch",
            &[],
            "Epoch of the controller; it grows with every start.",
            |s| one(s.status.epoch),
        ),
        M::gauge(
            "plimsoll_controller_conflict",
            &[],
            "1 while another controller runs at the epoch of this one, and for 60 s after; also while another leads in its \
             place.",
            |s| {
                let has_rival = s
                    .status
                    .other_controllers
                    .iter()
                    .any(|other| other.same_epoch);
                one(has_rival || s.status.lost_lead.is_some())
            },
        ),
        M::gauge(
            "plimsoll_epoch_claims",
            &[],
            "Aggregators that name a later epoch, of themselves or of a client, without effect.",
            |s| {
                one(s
                    .status
                    .other_controllers
                    .iter()
                    .filter(|other| !other.same_epoch)
                    .count())
            },
        ),
        M::gauge(
            "plimsoll_catalogue_rows",
            &[],
            "Rows of the catalogue of tenants; absent without one.",
            |s| maybe(s.status.catalogue.as_ref().map(|it| it.rows)),
        ),
        M::counter(
            "plimsoll_catalogue_rows_without_room_total",
            &[],
            "Questions about rows with terms of their own that found no room, so that their tenants have the terms of their \
             plan.",
            |s| maybe(s.status.catalogue.as_ref().map(|it| it.no_room)),
        ),
        M::gauge(
            "plimsoll_policy_info",
            &["hash"],
            "1, with the hash of the policy in force.",
            |s| rows([([s.status.policy_hash.as_str()], true)]),
        ),
        M::gauge(
            "plimsoll_policy_refused",
            &[],
            "1 while the policy files were refused and an earlier policy is in force.",
            |s| one(s.counters.last_reload_refused),
        ),
        M::gauge(
            "plimsoll_policy_held",
            &[],
            "1 while a drastic change of the policy waits for acknowledgement.",
            |s| one(s.brain.policies.held.is_some()),
        ),
        M::counter(
            "plimsoll_policy_reloads_total",
            &["result"],
            "Changes of the policy files: `accepted`, `refused`.",
            |s| s.counters.reloads.named(["accepted", "refused"]),
        ),
        M::gauge(
            "plimsoll_policy_last_read_timestamp_seconds",
            &[],
            "Unix time at which the policy files were last read, changed or not; at least every 15 s.",
            |s| one(s.counters.policy_read_s as f64),
        ),
        M::gauge(
            "plimsoll_takeover_complete",
            &[],
            "1 while the controller sends its own rates; 0 during a takeover, while zones keep the rates they have, before the \
             first traffic, and once the lead is lost.",
            |s| one(s.status.leading),
        ),
        M::gauge(
            "plimsoll_killed",
            &[],
            "1 while the kill switch of the fleet is on.",
            |s| one(s.status.killed),
        )
        .first(),
        M::gauge(
            "plimsoll_kill_generation",
            &[],
            "Kill generation of the fleet; odd means killed.",
            |s| one(s.status.kill_generation),
        ),
        M::gauge(
            "plimsoll_kill_claims",
            &[],
            "Scopes of which an aggregator or a client holds a higher kill generation without an order; it stays in shadow.",
            |s| one(s.status.kill_claims.len()),
        ),
        M::counter(
            "plimsoll_kill_claims_total",
            &[],
            "Kill generations that no order explained and that were higher than those before.",
            |s| one(s.brain.kill_claims().ignored),
        ),
        M::gauge("plimsoll_fleet_clients", &[], "Connected clients.", |s| {
            one(s.status.clients)
        }),
        M::gauge(
            "plimsoll_state_lost",
            &[],
            "1 after the state was lost, or restored from an older one, until an operator acknowledges it.",
            |s| one(s.status.state_lost.is_some()),
        ),
        M::gauge(
            "plimsoll_state_unsaved",
            &[],
            "1 while the state cannot be saved, so that epoch, kills and stages would be lost with a restart.",
            |s| one(s.status.state_unsaved.is_some()),
        ),
        M::counter(
            "plimsoll_state_save_failures_total",
            &[],
            "Failed saves of the durable state.",
            |s| one(s.brain.pending_saves.failures),
        ),
        M::gauge(
            "plimsoll_audit_failing",
            &[],
            "1 while the audit log cannot be written, so that whatever may add refusals is refused.",
            |s| one(s.audit.is_failing()),
        ),
        M::counter(
            "plimsoll_audit_entries_total",
            &[],
            "Lines written to the audit log.",
            |s| one(s.audit.written()),
        ),
    ]
}

fn of_counts_and_disks<'a>() -> Vec<M<'a>> {
    vec![
        M::gauge(
            "plimsoll_buckets_unprotected",
            &[],
            "Buckets without room, which are unprotected whatever the policy says; 64 of them are told apart.",
            |s| one(s.brain.buckets.no_room.iter().count()),
        ),
        M::counter(
            "plimsoll_counts_unconfirmed_total",
            &[],
            "Requests that were not counted, because an earlier parent may have counted them.",
            |s| one(s.brain.downstream.aggregators.unconfirmed),
        ),
        M::counter(
            "plimsoll_counts_cut_total",
            &[],
            "Requests that were not counted, because those who reported them cannot have decided so many.",
            |s| one(s.brain.downstream.aggregators.cut),
        ),
        M::counter(
            "plimsoll_evidence_left_out_total",
            &[],
            "Requests in reports that are no evidence for a gate: late, of a bucket or mode that the child does not have, \
             above its weight, or without room.",
            |s| one(s.brain.rollouts.weighing.left_out()),
        ),
        M::counter(
            "plimsoll_keys_rejected_total",
            &["reason"],
            "Keys and buckets that were not counted separately: `capacity` if there was no room.",
            |s| {
                let rejected =
                    s.brain.downstream.aggregators.rejected_keys + s.brain.buckets.no_room.count;
                rows([(["capacity"], rejected)])
            },
        ),
        M::counter(
            "plimsoll_events_unsent_total",
            &[],
            "Events that were given up, because a receiver (--events-webhook, --events-grafana) did not take them.",
            |s| one(s.counters.events_unsent),
        ),
        M::gauge(
            "plimsoll_history_failing",
            &[],
            "1 while the history cannot be saved, so that nothing is learned.",
            |s| one(s.brain.limits.history.counters.failing),
        ),
        M::counter(
            "plimsoll_history_minutes_lost_total",
            &[],
            "Minutes that could not be saved, so that nothing was learned from them.",
            |s| one(s.brain.limits.history.counters.minutes_lost),
        ),
        M::counter(
            "plimsoll_history_samples_rejected_total",
            &["reason"],
            "Samples that the history rejected: `capacity` if there was no room for the bucket.",
            |s| rows([(["capacity"], s.brain.limits.history.counters.rejected)]),
        ),
    ]
}
