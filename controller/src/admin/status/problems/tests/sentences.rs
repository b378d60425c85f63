//! Each problem with its severity and its sentence.

use plimsoll_admin::kill_api::{Claimed, KillOrder, KillState};
use plimsoll_admin::other_controllers::OtherController;
use plimsoll_admin::rejected_streams::RefusedChild;
use plimsoll_admin::security::TokensStatus;
use plimsoll_core::decision::{Mode, ShownMode};
use plimsoll_core::kill::KillGeneration;
use plimsoll_core::names::Text;
use plimsoll_core::quota::{OnStoreError, QuotaKey};

use super::{World, bucket};
use crate::admin::status::QuotaStatus;
use crate::admin::status::{CatalogueStatus, HeldStatus, UnlistedStatus};
use crate::members::EndpointState;

fn order() -> KillOrder {
    KillOrder {
        reason: Some(Text::new("it refuses paying callers").unwrap()),
        by: Some(Text::new("ann").unwrap()),
        since_s: Some(1_796_083_200),
        until_s: None,
    }
}

fn killed(command: Option<KillOrder>, by_file: bool) -> KillState {
    KillState {
        killed: true,
        by_file,
        command,
        ..KillState::default()
    }
}

fn quota() -> QuotaStatus {
    QuotaStatus {
        name: "exports".to_owned(),
        max: 10,
        refill: 10,
        every: "1h".to_owned(),
        key: QuotaKey::default(),
        on_store_error: OnStoreError::default(),
        lease: 1,
    }
}

fn other(same_epoch: bool) -> OtherController {
    OtherController {
        epoch: 7,
        instance: Some("c4".to_owned()),
        through: "aggregator zone-b/agg-1".to_owned(),
        same_epoch,
    }
}

pub(super) type Case = (&'static str, fn(&mut World), &'static str);

/// The severity, what is wrong, and the sentence.
pub(super) const CASES: &[Case] = &[
    (
        "warning",
        |it| it.status.aggregators.clear(),
        "no aggregator is known: this controller limits nothing",
    ),
    (
        "critical",
        |it| it.lost(4.0).stale = true,
        "zone-b/agg-1 disconnected for 4 s: its share is released from second 30 on, and its clients go on by their last directives",
    ),
    (
        "critical",
        |it| it.lost(48.0).released = 0.6,
        "zone-b/agg-1 disconnected for 48 s: 60 % of its share is released to the others, and its clients go on by their last directives",
    ),
    (
        "critical",
        |it| it.lost(300.0).silent_s = 200.0,
        "zone-b/agg-1 disconnected for 5 min: its share is held, and its clients go on by their last directives",
    ),
    (
        "critical",
        |it| it.lost(9_000.0).expired = true,
        "zone-b/agg-1 expired, its last report was 2 h ago: its share is released to the others, and its clients may admit as much beyond the limit",
    ),
    (
        "critical",
        |it| {
            (
                it.status.aggregators[1].stale,
                it.status.aggregators[1].last_report_s,
            ) = (true, 20.0)
        },
        "zone-b/agg-1 is connected and sent no report for 20 s: its requests are not counted",
    ),
    (
        "critical",
        |it| it.status.aggregators[1].name_conflict = true,
        "two processes call themselves zone-b/agg-1 and replace each other: meanwhile the zone lives on its hold",
    ),
    (
        "warning",
        |it| it.status.leading = false,
        "this controller sends no rates yet: its takeover is not complete, and zones live on their holds",
    ),
    (
        "critical",
        |it| it.status.lost_lead = Some(other(false)),
        "this controller does not lead and sends no values: another one leads, c4 at epoch 7, as aggregator zone-b/agg-1 reports",
    ),
    (
        "critical",
        |it| it.status.other_controllers.push(other(true)),
        "a second controller runs: c4 at epoch 7, as aggregator zone-b/agg-1 reports",
    ),
    (
        "warning",
        |it| it.status.other_controllers.push(other(false)),
        "an epoch is claimed without effect, c4 at epoch 7, as aggregator zone-b/agg-1 reports: it follows no directive until the epoch is above that",
    ),
    (
        "warning",
        |it| it.kills.fleet = killed(Some(order()), false),
        "the whole fleet is killed since 2026-12-01T00:00:00Z, by ann, because `it refuses paying callers`: nothing is refused",
    ),
    (
        "warning",
        |it| it.kills.fleet = killed(None, true),
        "the whole fleet is killed by the policy file: nothing is refused",
    ),
    (
        "warning",
        |it| {
            drop(
                it.kills
                    .buckets
                    .insert(bucket("checkout"), killed(None, false)),
            )
        },
        "bucket checkout is killed: nothing is refused",
    ),
    (
        "warning",
        |it| {
            it.status.kill_claims.push(Claimed {
                bucket: None,
                generation: KillGeneration(7),
                zone: "a".to_owned(),
                service: "shop".to_owned(),
                name: "h".to_owned(),
            })
        },
        "shop a/h holds kill generation 7 of the whole fleet, without an order: it stays in shadow, and nothing else is killed",
    ),
    (
        "warning",
        |it| it.status.killed_locally = 4,
        "4 of 214 clients are killed by a kill file or their environment: they refuse nothing",
    ),
    (
        "warning",
        |it| {
            it.checkout().quotas = vec![quota()];
            it.status.quota_store_down = 4;
        },
        "4 of 214 clients get no answer from their store of exact quotas: the `on_store_error` of each quota decides in checkout",
    ),
    (
        "warning",
        |it| it.checkout().clients_unapplied = 3,
        "3 of 214 clients do not carry out the mode of checkout: they refuse less than it asks for",
    ),
    (
        "critical",
        |it| it.checkout().clients_unapplied = 30,
        "30 of 214 clients do not carry out the mode of checkout: they refuse less than it asks for",
    ),
    (
        "warning",
        |it| {
            (it.checkout().mode, it.checkout().file_mode) = (ShownMode::Shadow, Some(Mode::Enforce))
        },
        "since an abort or a kill the mode of checkout is below that in the policy file: less is refused",
    ),
    (
        "critical",
        |it| {
            (
                it.checkout().admissions.underadmitting,
                it.checkout().admissions.underadmitted_ratio,
            ) = (Some(true), Some(0.988))
        },
        "bucket checkout is underadmitting: 98.8 % of what limit and load allow did not pass in 5 s",
    ),
    (
        "warning",
        |it| {
            (
                it.checkout().admissions.refused_ratio,
                it.checkout().traffic.offered_rps,
            ) = (None, 100.0)
        },
        "no counts of checkout arrived in 10 s: what is admitted now is unknown",
    ),
    (
        "critical",
        |it| it.status.state_lost = Some("no state was found".to_owned()),
        "state lost: no state was found",
    ),
    (
        "warning",
        |it| it.status.state_unsaved = Some("No space left".to_owned()),
        "state not saved: No space left; epoch, kills and stages would be lost with a restart",
    ),
    (
        "critical",
        |it| it.status.audit_failing = true,
        "the audit log cannot be written: kills work, and whatever adds refusals is refused",
    ),
    (
        "warning",
        |it| {
            (it.policies.refused, it.policies.refused_since_s) = (
                Some("policy.yaml:3: no\n  3 | x".to_owned()),
                Some(1_796_083_200),
            )
        },
        "the policy files are refused since 2026-12-01T00:00:00Z, and the last good policy stays in force: policy.yaml:3: no",
    ),
    (
        "warning",
        |it| {
            it.policies.held = Some(HeldStatus {
                hash: "0d69".to_owned(),
                since_s: Some(1_796_083_200),
                reasons: vec!["api would refuse 50 %".to_owned()],
                differences: vec![],
            })
        },
        "policy 0d69 is held back since 2026-12-01T00:00:00Z, and the one before stays in force: api would refuse 50 %",
    ),
    (
        "critical",
        |it| it.members().confirmed = Some(false),
        "the store does not confirm that this controller leads: it sends values as before, and whatever may add refusals waits",
    ),
    (
        "warning",
        |it| it.members().members.truncate(1),
        "no other controller is registered: nothing takes over if this one is lost",
    ),
    (
        "warning",
        |it| it.members().members[1].member.files = Some("b".to_owned()),
        "the policy files of member http://c2:7401 differ from those of the leader: after a takeover they would be held back",
    ),
    (
        "warning",
        |it| it.members().members[1].member.files = None,
        "the policy files of member http://c2:7401 cannot be read: after a takeover they would be held back",
    ),
    (
        "warning",
        |it| {
            it.members().store.push(EndpointState {
                endpoint: "h:2379".to_owned(),
                version: None,
                leads: false,
                bytes: 0,
                problems: vec!["refused".to_owned()],
            })
        },
        "store h:2379: refused",
    ),
    (
        "warning",
        |it| it.certificate().expires_in_s = 200_000.0,
        "the certificate of spiffe://p/controller expires in 2 days: its process loses its streams then",
    ),
    (
        "critical",
        |it| it.certificate().expires_in_s = -600.0,
        "the certificate of spiffe://p/controller expired 10 min ago: peers refuse it",
    ),
    (
        "critical",
        |it| it.certificate().untrusted = true,
        "no authority of ca.crt signs the certificate of spiffe://p/controller: peers refuse it",
    ),
    (
        "warning",
        |it| it.certificate().refused = Some("no key".to_owned()),
        "the certificate files are refused, the earlier ones are in use: no key",
    ),
    (
        "warning",
        |it| {
            it.status.security.tokens = Some(TokensStatus {
                accepted: 1,
                refused: Some("line 2".to_owned()),
            })
        },
        "the tokens file is refused, the earlier tokens are accepted: line 2",
    ),
    (
        "warning",
        |it| {
            it.status.refused_children.push(RefusedChild {
                child: "client a/shop/h".to_owned(),
                times: 3,
                cause: "counts decreased".to_owned(),
            })
        },
        "client a/shop/h was refused 3 times in a row: counts decreased; its requests are not counted",
    ),
    (
        "warning",
        |it| it.status.unprotected.push(bucket("x")),
        "there is no room for x: nothing limits them",
    ),
    (
        "warning",
        |it| {
            it.status.unlisted.push(UnlistedStatus {
                bucket: bucket("chekout"),
                nearest: Some("checkout".to_owned()),
                times: 1,
                age_s: 0.0,
            })
        },
        "no policy names bucket chekout: nothing limits it",
    ),
    (
        "warning",
        |it| {
            it.status.catalogue = Some(CatalogueStatus {
                rows: 9,
                listed: 5,
                no_room: 1,
                full: true,
            })
        },
        "the catalogue has no room for more tenants with terms of their own: 5 are listed, and others have the terms of their plan",
    ),
];
