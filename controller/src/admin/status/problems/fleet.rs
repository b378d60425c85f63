//! Problems of aggregators, clients and buckets.

use plimsoll_admin::kill_api::{KillOrder, KillState, KillStatus};
use plimsoll_core::decision::ShownMode;
use plimsoll_core::law::presence;
use plimsoll_core::names::Bucket;
use plimsoll_policy::UnixSeconds;

use super::super::why::on_store_error;
use super::super::{AggregatorStatus, BucketStatus, Status};
use super::{Problem, named, since, span};

/// Requests/s below which nothing is expected to be counted in 10 s.
const OFFERED_MIN: f64 = 0.5;

pub(super) fn aggregators(status: &Status) -> Vec<Problem> {
    if status.aggregators.is_empty() {
        return vec![Problem::warning(
            "aggregators",
            "no aggregator is known: this controller limits nothing",
            "start one whose --controller is this controller",
        )];
    }
    let others_report = status.aggregators.iter().any(|it| it.connected);
    let of_one = |it: &AggregatorStatus| {
        let name = format!("{}/{}", it.zone, it.name);
        let twice = it.name_conflict.then(|| {
            let text = format!(
                "two processes call themselves {name} and replace each other: meanwhile the zone lives on its hold"
            );
            Problem::critical(&name, text, "give each its own --name")
        });
        [silent(it, &name, others_report), twice]
    };
    let mut problems: Vec<Problem> = status
        .aggregators
        .iter()
        .flat_map(of_one)
        .flatten()
        .collect();
    if !status.leading && status.lost_lead.is_none() {
        problems.push(Problem::warning(
            "controller",
            "this controller sends no rates yet: its takeover is not complete, and zones live on their holds",
            "wait a few seconds; if it lasts, look for aggregators that are missing",
        ));
    }
    problems
}

fn silent(it: &AggregatorStatus, name: &str, others_report: bool) -> Option<Problem> {
    let ago = span(it.last_report_s);
    let held_s = presence::HELD.as_secs();
    let (text, remedy) = if it.expired {
        (
            format!(
                "{name} expired, its last report was {ago} ago: its share is released to the others, and its clients may \
                 admit as much beyond the limit"
            ),
            format!("start it again; if it is lost for good, run `plimsoll forget {name}`"),
        )
    } else if !it.connected {
        let share = match (it.released * 100.0).round() {
            share if share > 0.0 => format!(
                "{share:.0} % of its share is released to the others, all of it at second {}",
                presence::GONE.as_secs()
            ),
            _ if others_report && it.silent_s < held_s as f64 => {
                format!("its share is released from second {held_s} on")
            }
            _ => "its share is held".to_owned(),
        };
        (
            format!(
                "{name} disconnected for {ago}: {share}, and its clients go on by their last directives"
            ),
            "start it again, or look at the network between it and this controller".to_owned(),
        )
    } else if it.stale {
        (
            format!(
                "{name} is connected and sent no report for {ago}: its requests are not counted"
            ),
            "look at its log and at its load".to_owned(),
        )
    } else {
        return None;
    };
    Some(Problem::critical(name, text, remedy))
}

pub(super) fn killed(status: &Status, kills: &KillStatus) -> Vec<Problem> {
    let fleet = kills.fleet.killed.then(|| {
        let remedy = match kills.fleet.by_file {
            true => "set kill_switch: false in the policy file and save".to_owned(),
            false => revive(""),
        };
        Problem::warning("fleet", kill_text("the whole fleet", &kills.fleet), remedy)
    });
    let buckets = kills.buckets.iter().filter(|(_, switch)| switch.killed);
    let buckets = buckets.map(|(bucket, switch)| {
        let subject = format!("bucket {bucket}");
        let remedy = revive(&format!(" --bucket {bucket}"));
        Problem::warning(&subject, kill_text(&subject, switch), remedy)
    });
    let local = (status.killed_locally > 0).then(|| {
        let text = format!(
            "{} of {} clients are killed by a kill file: they refuse nothing",
            status.killed_locally, status.clients
        );
        let remedy = "`/status` of their aggregator lists them: remove the kill file";
        Problem::warning("clients", text, remedy)
    });
    fleet.into_iter().chain(buckets).chain(local).collect()
}

fn kill_text(what: &str, switch: &KillState) -> String {
    let cause = match &switch.command {
        Some(KillOrder {
            reason,
            by,
            since_s,
            until_s,
        }) => {
            let by = by.as_ref().map(|by| format!(", by {by}"));
            let reason = reason
                .as_ref()
                .map(|reason| format!(", because `{reason}`"));
            let until = until_s.map(|at| format!(", until {}", UnixSeconds::from_secs(at)));
            let parts = [by, until, reason].into_iter().flatten();
            format!("{}{}", since(*since_s), parts.collect::<String>())
        }
        None if switch.by_file => " by the policy file".to_owned(),
        None => String::new(),
    };
    format!("{what} is killed{cause}: nothing is refused")
}

fn revive(flag: &str) -> String {
    format!(
        "`plimsoll kill off{flag}` ends it and leaves buckets in shadow; `--resume --reason TEXT` brings them back"
    )
}

pub(super) fn quota_store(status: &Status) -> Vec<Problem> {
    if status.quota_store_down == 0 {
        return Vec::new();
    }
    let quotas = status.buckets.values().flat_map(|it| &it.quotas);
    let text = format!(
        "{} of {} clients get no answer from their store of exact quotas, for {}: {}",
        status.quota_store_down,
        status.clients,
        named(&buckets(status, |it| !it.quotas.is_empty())),
        on_store_error(quotas)
    );
    let remedy = "start what their --quota-store names, or mend the network to it; `/readyz` of a quota server says what it \
                  lacks";
    vec![Problem::warning("quotas", text, remedy)]
}

pub(super) fn claims(status: &Status) -> Vec<Problem> {
    let each = status.kill_claims.iter().map(|claim| {
        let flag = claim.bucket.as_ref().map(|it| format!(" --bucket {it}"));
        let of = claim.bucket.as_ref().map(|it| format!("bucket {it}"));
        let holder = format!("{} {}/{}", claim.service, claim.zone, claim.name);
        let text = format!(
            "{holder} holds kill generation {} of {}, without an order: it stays in shadow, and nothing else is killed",
            claim.generation.0,
            of.unwrap_or_else(|| "the whole fleet".to_owned())
        );
        let remedy = format!("run `plimsoll kill off{}`", flag.unwrap_or_default());
        Problem::warning(&holder, text, remedy)
    });
    each.collect()
}

/// Clients that carry out less than their mode, except for those that are killed locally.
pub(super) fn clients(status: &Status) -> Vec<Problem> {
    let is_more = |it: &BucketStatus| it.clients_unapplied > status.killed_locally;
    let buckets = buckets(status, is_more);
    let most = status.buckets.values().map(|it| it.clients_unapplied).max();
    let Some(most) = most.filter(|_| !buckets.is_empty()) else {
        return Vec::new();
    };
    let text = format!(
        "{most} of {} clients do not carry out the mode of {}: they refuse less than it asks for",
        status.clients,
        named(&buckets)
    );
    let remedy = "`plimsoll kill status` names what holds them back";
    let problem = match most.saturating_mul(10) > status.clients {
        true => Problem::critical("clients", text, remedy),
        false => Problem::warning("clients", text, remedy),
    };
    vec![problem]
}

/// Buckets that an abort or a kill has put below the mode of the policy file.
pub(super) fn lowered(status: &Status) -> Vec<Problem> {
    let is_lowered = |it: &BucketStatus| {
        let file = ShownMode::from(it.file_mode);
        it.mode != ShownMode::Unknown && it.mode < file && it.pending_mode.is_none() && !it.killed
    };
    let buckets = buckets(status, is_lowered);
    if buckets.is_empty() {
        return Vec::new();
    }
    let text = format!(
        "since an abort or a kill the mode of {} is below that in the policy file: less is refused",
        named(&buckets)
    );
    let remedy = "`plimsoll rollout status` shows why; `plimsoll rollout resume --all --reason TEXT` brings back what a kill lowered, `promote` the others";
    vec![Problem::warning("modes", text, remedy)]
}

pub(super) fn underadmitting(status: &Status) -> Vec<Problem> {
    let short = status
        .buckets
        .iter()
        .filter(|(_, it)| it.admissions.underadmitting == Some(true));
    let each = short.map(|(name, it)| {
        let missing = it.admissions.underadmitted_ratio.unwrap_or_default() * 100.0;
        let text = format!(
            "bucket {name} is underadmitting: {missing:.1} % of what limit and load allow did not pass in 5 s"
        );
        let remedy = format!(
            "the runbook has the causes; `plimsoll kill on --bucket {name} --reason TEXT` ends it"
        );
        Problem::critical(format_args!("bucket {name}"), text, remedy)
    });
    each.collect()
}

pub(super) fn uncounted(status: &Status) -> Vec<Problem> {
    let is_uncounted = |it: &BucketStatus| {
        it.admissions.refused_ratio.is_none() && it.traffic.offered_rps >= OFFERED_MIN
    };
    let buckets = buckets(status, is_uncounted);
    if buckets.is_empty() {
        return Vec::new();
    }
    let text = format!(
        "no counts of {} arrived in 10 s: what is admitted now is unknown",
        named(&buckets)
    );
    vec![Problem::warning(
        "counts",
        text,
        "look at the aggregators of their zones",
    )]
}

pub(super) fn refused_children(status: &Status) -> Vec<Problem> {
    let each = status.refused_children.iter().map(|refused| {
        let text = format!(
            "{} was refused {} times in a row: {}; its requests are not counted",
            refused.child, refused.times, refused.cause
        );
        Problem::warning(
            &refused.child,
            text,
            "correct at that process what the cause names",
        )
    });
    each.collect()
}

/// Buckets that nothing limits.
pub(super) fn unlimited(status: &Status) -> Vec<Problem> {
    let full = (!status.unprotected.is_empty()).then(|| {
        let text = format!(
            "there is no room for {}: nothing limits them",
            named(&status.unprotected)
        );
        let remedy = "look for a service that takes bucket names from its callers";
        Problem::warning("buckets", text, remedy)
    });
    let unlisted = status.unlisted.iter().map(|unlisted| {
        let bucket = &unlisted.bucket;
        let remedy = match &unlisted.nearest {
            Some(nearest) => {
                format!(
                    "did the service mean `{nearest}`? Correct it, or add `{bucket}` to the policy"
                )
            }
            None => format!("add `{bucket}` to the policy, in shadow at first"),
        };
        let text = format!("no policy names bucket {bucket}: nothing limits it");
        Problem::warning(format_args!("bucket {bucket}"), text, remedy)
    });
    let catalogue = status
        .catalogue
        .as_ref()
        .filter(|it| it.full && it.no_room > 0);
    let catalogue = catalogue.map(|it| {
        let text = format!(
            "the catalogue has no room for more tenants with terms of their own: {} are listed, and others have the terms \
             of their plan",
            it.listed
        );
        let remedy = "give fewer rows of the catalogue a weight, floor or limit of their own";
        Problem::warning("catalogue", text, remedy)
    });
    full.into_iter().chain(unlisted).chain(catalogue).collect()
}

fn buckets(status: &Status, is_one: impl Fn(&BucketStatus) -> bool) -> Vec<&Bucket> {
    let some = status.buckets.iter().filter(|(_, it)| is_one(it));
    some.map(|(name, _)| name).collect()
}
