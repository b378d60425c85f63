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

pub(super) type Case = (fn(&mut World), &'static str);

/// What is wrong, and its severity with the sentence.
pub(super) const CASES: &[Case] = &[
    (
        |it| it.status.aggregators.clear(),
        "warning: no aggregator is known: this controller limits nothing",
    ),
    (
        |it| it.lost(4.0).stale = true,
        "critical: zone-b/agg-1 disconnected for 4 s: its share is released from second 30 on, and its clients go on by their last directives",
    ),
    (
        |it| it.lost(48.0).released = 0.6,
        "critical: zone-b/agg-1 disconnected for 48 s: 60 % of its share is released to the others, all of it at second 60, and its clients go on by their last directives",
    ),
    (
        |it| it.lost(300.0).silent_s = 200.0,
        "critical: zone-b/agg-1 disconnected for 5 min: its share is held, and its clients go on by their last directives",
    ),
    (
        |it| it.lost(9_000.0).expired = true,
        "critical: zone-b/agg-1 expired, its last report was 2 h ago: its share is released to the others, and its clients may admit as much beyond the limit",
    ),
    (
        |it| {
            let it = &mut it.status.aggregators[1];
            (it.stale, it.last_report_s) = (true, 20.0);
        },
        "critical: zone-b/agg-1 is connected and sent no report for 20 s: its requests are not counted",
    ),
    (
        |it| it.status.aggregators[1].name_conflict = true,
        "critical: two processes call themselves zone-b/agg-1 and replace each other: meanwhile the zone lives on its hold",
    ),
    (
        |it| it.status.leading = false,
        "warning: this controller sends no rates yet: its takeover is not complete, and zones live on their holds",
    ),
    (
        |it| it.status.lost_lead = Some(other(false)),
        "critical: this controller does not lead and sends no values: another one leads, c4 at epoch 7, as aggregator zone-b/agg-1 reports",
    ),
    (
        |it| it.status.other_controllers.push(other(true)),
        "critical: a second controller runs: c4 at epoch 7, as aggregator zone-b/agg-1 reports",
    ),
    (
        |it| it.status.other_controllers.push(other(false)),
        "warning: an epoch is claimed without effect, c4 at epoch 7, as aggregator zone-b/agg-1 reports: it follows no directive until the epoch is above that",
    ),
    (
        |it| it.kills.fleet = killed(Some(order()), false),
        "warning: the whole fleet is killed since 2026-12-01T00:00:00Z, by ann, because `it refuses paying callers`: nothing is refused",
    ),
    (
        |it| it.kills.fleet = killed(None, true),
        "warning: the whole fleet is killed by the policy file: nothing is refused",
    ),
    (
        |it| {
            let switch = killed(None, false);
            it.kills.buckets.insert(bucket("checkout"), switch);
        },
        "warning: bucket checkout is killed: nothing is refused",
    ),
    (
        |it| {
            it.status.kill_claims.push(Claimed {
                bucket: None,
                generation: KillGeneration(7),
                zone: "a".to_owned(),
                service: "shop".to_owned(),
                name: "h".to_owned(),
            })
        },
        "warning: shop a/h holds kill generation 7 of the whole fleet, without an order: it stays in shadow, and nothing else is killed",
    ),
    (
        |it| it.status.killed_locally = 4,
        "warning: 4 of 214 clients are killed by a kill file: they refuse nothing",
    ),
    (
        |it| {
            it.checkout().quotas = vec![quota()];
            it.status.quota_store_down = 4;
        },
        "warning: 4 of 214 clients get no answer from their store of exact quotas, for checkout: `on_store_error` decides: exports admits a few, then refuses",
    ),
    (
        |it| it.checkout().clients_unapplied = 3,
        "warning: 3 of 214 clients do not carry out the mode of checkout: they refuse less than it asks for",
    ),
    (
        |it| it.checkout().clients_unapplied = 30,
        "critical: 30 of 214 clients do not carry out the mode of checkout: they refuse less than it asks for",
    ),
    (
        |it| {
            (it.checkout().mode, it.checkout().file_mode) = (ShownMode::Shadow, Some(Mode::Enforce))
        },
        "warning: since an abort or a kill the mode of checkout is below that in the policy file: less is refused",
    ),
    (
        |it| {
            let it = &mut it.checkout().admissions;
            (it.underadmitting, it.underadmitted_ratio) = (Some(true), Some(0.988));
        },
        "critical: bucket checkout is underadmitting: 98.8 % of what limit and load allow did not pass in 5 s",
    ),
    (
        |it| {
            it.checkout().admissions.refused_ratio = None;
            it.checkout().traffic.offered_rps = 100.0;
        },
        "warning: no counts of checkout arrived in 10 s: what is admitted now is unknown",
    ),
    (
        |it| it.status.state_lost = Some("no state was found".to_owned()),
        "critical: state lost: no state was found",
    ),
    (
        |it| it.status.state_unsaved = Some("No space left".to_owned()),
        "warning: state not saved: No space left; epoch, kills and stages would be lost with a restart",
    ),
    (
        |it| it.status.audit_failing = true,
        "critical: the audit log cannot be written: kills work, and whatever adds refusals is refused",
    ),
    (
        |it| {
            it.policies.refused = Some("policy.yaml:3: no\n  3 | x".to_owned());
            it.policies.refused_since_s = Some(1_796_083_200);
        },
        "warning: the policy files are refused since 2026-12-01T00:00:00Z, and the last good policy stays in force: policy.yaml:3: no",
    ),
    (
        |it| {
            it.policies.held = Some(HeldStatus {
                hash: "0d69".to_owned(),
                since_s: Some(1_796_083_200),
                reasons: vec!["api would refuse 50 %".to_owned()],
                differences: vec![],
            })
        },
        "warning: policy 0d69 is held back since 2026-12-01T00:00:00Z, and the one before stays in force: api would refuse 50 %",
    ),
    (
        |it| it.members().confirmed = Some(false),
        "critical: the store does not confirm that this controller leads: it sends values as before, and whatever may add refusals waits",
    ),
    (
        |it| it.members().members.truncate(1),
        "warning: no other controller is registered: nothing takes over if this one is lost",
    ),
    (
        |it| it.members().members[1].member.files = Some("b".to_owned()),
        "warning: the policy files of member http://c2:7401 differ from those of the leader: after a takeover they would be held back",
    ),
    (
        |it| it.members().members[1].member.files = None,
        "warning: the policy files of member http://c2:7401 cannot be read: after a takeover they would be held back",
    ),
    (
        |it| {
            it.members().store.push(EndpointState {
                endpoint: "h:2379".to_owned(),
                version: None,
                leads: false,
                bytes: 0,
                problems: vec!["refused".to_owned()],
            })
        },
        "warning: store h:2379: refused",
    ),
    (
        |it| it.certificate().expires_in_s = 200_000.0,
        "warning: the certificate of spiffe://p/controller expires in 2 days: its process loses its streams then",
    ),
    (
        |it| it.certificate().expires_in_s = -600.0,
        "critical: the certificate of spiffe://p/controller expired 10 min ago: peers refuse it",
    ),
    (
        |it| it.certificate().untrusted = true,
        "critical: no authority of ca.crt signs the certificate of spiffe://p/controller: peers refuse it",
    ),
    (
        |it| it.certificate().refused = Some("no key".to_owned()),
        "warning: the certificate files are refused, the earlier ones are in use: no key",
    ),
    (
        |it| {
            it.status.security.tokens = Some(TokensStatus {
                accepted: 1,
                refused: Some("line 2".to_owned()),
            })
        },
        "warning: the tokens file is refused, the earlier tokens are accepted: line 2",
    ),
    (
        |it| {
            it.status.refused_children.push(RefusedChild {
                child: "client a/shop/h".to_owned(),
                times: 3,
                cause: "counts decreased".to_owned(),
            })
        },
        "warning: client a/shop/h was refused 3 times in a row: counts decreased; its requests are not counted",
    ),
    (
        |it| it.status.unprotected.push(bucket("x")),
        "warning: there is no room for x: nothing limits them",
    ),
    (
        |it| {
            it.status.unlisted.push(UnlistedStatus {
                bucket: bucket("chekout"),
                nearest: Some("checkout".to_owned()),
                times: 1,
                age_s: 0.0,
            })
        },
        "warning: no policy names bucket chekout: nothing limits it",
    ),
    (
        |it| {
            it.status.catalogue = Some(CatalogueStatus {
                rows: 9,
                listed: 5,
                no_room: 1,
                full: true,
            })
        },
        "warning: the catalogue has no room for more tenants with terms of their own: 5 are listed, and others have the terms of their plan",
    ),
];
