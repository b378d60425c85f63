//! Each problem with its sentence, and the verdict over them.

mod sentences;

use plimsoll_admin::kill_api::{KillState, KillStatus, Tier};
use plimsoll_admin::security::CertificateStatus;
use plimsoll_core::decision::ShownMode;
use serde_json::Value;

use self::sentences::CASES;
use super::*;
use crate::admin::status::{AggregatorStatus, Refusals};
use crate::members::{Member, MemberStatus, MembersStatus};

/// What the problems are a function of.
struct World {
    status: Status,
    policies: Policies,
    kills: KillStatus,
}

fn bucket(name: &str) -> Bucket {
    Bucket::new(name).unwrap()
}

fn healthy() -> World {
    let aggregator = |zone: &str| AggregatorStatus {
        zone: zone.to_owned(),
        name: "agg-1".to_owned(),
        connected: true,
        ..AggregatorStatus::default()
    };
    let mut checkout = BucketStatus {
        mode: ShownMode::Enforce,
        ..BucketStatus::default()
    };
    checkout.admissions.refused_ratio = Some(0.0);
    let status = Status {
        leading: true,
        clients: 214,
        instance: "8a".to_owned(),
        aggregators: vec![aggregator("zone-a"), aggregator("zone-b")],
        buckets: [(bucket("checkout"), checkout)].into(),
        ..Status::default()
    };
    let policies = Policies {
        in_force: "a".to_owned(),
        held: None,
        refused: None,
        refused_since_s: None,
    };
    let kills = KillStatus {
        tier: Tier::Controller,
        fleet: KillState::default(),
        buckets: BTreeMap::new(),
        in_shadow: Vec::new(),
        away: Vec::new(),
        killed_locally: 0,
        claims: Vec::new(),
        saved: true,
    };
    World {
        status,
        policies,
        kills,
    }
}

impl World {
    fn checkout(&mut self) -> &mut BucketStatus {
        self.status.buckets.get_mut(&bucket("checkout")).unwrap()
    }

    /// The second aggregator, without a stream.
    fn lost(&mut self, s: f64) -> &mut AggregatorStatus {
        let lost = &mut self.status.aggregators[1];
        (lost.connected, lost.last_report_s, lost.silent_s) = (false, s, s);
        lost
    }

    fn members(&mut self) -> &mut MembersStatus {
        let member = |number: u16| MemberStatus {
            leads: number == 1,
            member: Member {
                address: format!("http://c{number}:7400"),
                admin: format!("http://c{number}:7401"),
                version: "1".to_owned(),
                since_s: 0,
                files: Some("a".to_owned()),
                sought: false,
            },
        };
        self.status.members.insert(MembersStatus {
            leading: true,
            confirmed: Some(true),
            members: vec![member(1), member(2)],
            store: Vec::new(),
        })
    }

    fn certificate(&mut self) -> &mut CertificateStatus {
        self.status.security.certificate.insert(CertificateStatus {
            identity: "spiffe://p/controller".to_owned(),
            expires_in_s: 1e6,
            not_after_s: 2_592_000,
            ..CertificateStatus::default()
        })
    }

    fn problems(&self) -> Vec<Problem> {
        list(&self.status, &self.policies, &self.kills)
    }
}

#[test]
fn every_problem_has_its_sentence() {
    assert_eq!(healthy().problems(), []);
    for (damage, expected) in CASES {
        let mut world = healthy();
        damage(&mut world);
        let problems = world.problems();
        let texts = problems.iter().map(|it| (it.severity.as_str(), &it.text));
        let texts: Vec<_> = texts.map(|(how, text)| format!("{how}: {text}")).collect();
        assert_eq!(texts, [*expected]);
        assert!(!problems[0].remedy.is_empty() && !problems[0].subject.is_empty());
    }
}

#[test]
fn short_certificate_is_no_problem() {
    let mut world = healthy();
    for (expires_in_s, problems) in [(80_000.0, 0), (18_000.0, 0), (17_000.0, 1)] {
        let certificate = world.certificate();
        (certificate.expires_in_s, certificate.not_after_s) = (expires_in_s, 86_400);
        assert_eq!(world.problems().len(), problems, "{expires_in_s}");
    }
}

#[test]
fn clients_killed_locally_are_one_problem() {
    let mut world = healthy();
    world.status.killed_locally = 30;
    world.checkout().clients_unapplied = 30;
    let problems = world.problems();
    assert_eq!(problems.len(), 1);
    assert_eq!(
        verdict(&problems, ""),
        format!("1 problem: {}", problems[0].text)
    );
}

#[test]
fn worst_problem_is_first_and_few_are_shown() {
    let mut world = healthy();
    world.status.unprotected.push(bucket("x"));
    let lost = world.lost(4.0).clone();
    world
        .status
        .aggregators
        .extend((2..=20).map(|number| AggregatorStatus {
            name: format!("agg-{number}"),
            ..lost.clone()
        }));
    let problems = world.problems();
    let subjects: Vec<&str> = problems.iter().map(|it| it.subject.as_str()).collect();
    assert_eq!(subjects.len(), EACH_MAX + 2);
    assert_eq!(subjects[0], "zone-b/agg-1");
    assert_eq!(
        subjects[EACH_MAX..],
        ["12 more like zone-b/agg-9", "buckets"]
    );
    assert_eq!(
        verdict(&problems, ""),
        "10 problems: zone-b/agg-1, zone-b/agg-2, zone-b/agg-3, zone-b/agg-4, zone-b/agg-5 and 5 more"
    );
}

#[test]
fn summary_names_the_bucket_that_refuses_most() {
    let mut world = healthy();
    let mut said = |guard: u64, would: u64| {
        let refusals = Refusals {
            asked: 100,
            burst_guard: guard,
            would_refuse: would,
            ..Refusals::default()
        };
        world.checkout().refusals_10_s = refusals;
        verdict(&[], &summary(&world.status))
    };
    let fleet = "no problems: 1 bucket in enforce, 2 zones, 214 clients";
    assert_eq!(said(0, 0), format!("{fleet}; nothing refused in 10 s"));
    assert_eq!(
        said(38, 5),
        format!("{fleet}; checkout refuses 38.0 % in 10 s")
    );
    assert_eq!(
        said(0, 5),
        format!("{fleet}; nothing refused, checkout would refuse 5.0 % in 10 s")
    );
    let more = BucketStatus {
        refusals_10_s: Refusals {
            asked: 10,
            cluster_overload: 9,
            ..Refusals::default()
        },
        ..BucketStatus::default()
    };
    world.checkout().refusals_10_s.burst_guard = 38;
    world.status.buckets.insert(bucket("search"), more);
    assert_eq!(
        summary(&world.status),
        "1 bucket in enforce, 1 in unknown, 2 zones, 214 clients; 2 buckets refuse, search most, 90.0 % in 10 s"
    );
}

/// Scripts and pages read them.
#[test]
fn fields_of_the_status_are_stable() {
    let Value::Object(fields) = serde_json::to_value(healthy().status).unwrap() else {
        panic!("the status is no object");
    };
    let fields: Vec<&str> = fields.keys().map(String::as_str).collect();
    let mut expected = [
        "verdict",
        "summary",
        "problems",
        "version",
        "role",
        "epoch",
        "instance",
        "lost_lead",
        "members",
        "other_controllers",
        "refused_children",
        "security",
        "policy_hash",
        "catalogue",
        "kill_generation",
        "killed",
        "killed_locally",
        "quota_store_down",
        "kill_claims",
        "unprotected",
        "unlisted",
        "leading",
        "state_lost",
        "clients",
        "state_unsaved",
        "audit_failing",
        "buckets",
        "aggregators",
    ];
    expected.sort_unstable();
    let mut fields = fields;
    fields.sort_unstable();
    assert_eq!(fields, expected);
}
