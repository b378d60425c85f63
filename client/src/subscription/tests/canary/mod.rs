//! A canary that is divided by key: which keys refuse, through every change of directives, and the sides of evidence.

mod evidence;

use super::*;
use crate::hot::thread_counters::QuotaOutcome;
use crate::responses::Ending;
use plimsoll_core::report::{CohortKey, Outcomes, Side};
use proptest::prelude::*;

const TENANTS: [&str; 12] = [
    "acme", "globex", "jo", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "default",
];

fn cohort(percent: f64, salt: u64) -> Cohort {
    Cohort {
        percent: Percent::new(percent).unwrap(),
        salt,
    }
}

fn canary(percent: f64) -> Terms {
    Terms {
        cohort: cohort(percent, 1),
        ..limited(Mode::Canary)
    }
}

fn by_key(name: &str) -> TestClient {
    let mut client = TestClient::named(name);
    client.subscription.divide_canary(CanaryBy::Key);
    client
}

impl TestClient {
    fn send(&mut self, tenant: &str, requests: u64) {
        (0..requests).for_each(|_| {
            let _ = self.admit(tenant);
        });
    }

    fn enforces(&mut self, tenant: &str) -> bool {
        let place = self.table.declare("api").unwrap().unwrap();
        self.table.peek(self.table.target(place, tenant)).enforced
    }

    fn tick(&mut self) {
        self.now = self.now + Duration::from_millis(10);
        self.subscription.on_tick(self.now);
    }

    fn enforced(&mut self) -> Vec<&'static str> {
        TENANTS.iter().for_each(|tenant| self.send(tenant, 1));
        self.tick();
        TENANTS
            .into_iter()
            .filter(|tenant| self.enforces(tenant))
            .collect()
    }
}

fn members(cohort: Cohort, name: &str) -> Vec<&'static str> {
    let name = Name::new(name).unwrap();
    TENANTS
        .into_iter()
        .filter(|tenant| cohort.contains_key(&name, tenant))
        .collect()
}

#[test]
fn restarted_instance_refuses_the_same_keys() {
    for name in ["edge-1", "edge-1", "edge-2"] {
        let mut client = by_key(name);
        client.direct(canary(50.0), &[("default", ratio(1.0))]);
        let expected = members(cohort(50.0, 1), name);
        assert!((2..=10).contains(&expected.len()), "{expected:?}");
        assert_eq!(client.enforced(), expected, "{name}");
        for tenant in TENANTS {
            assert_eq!(
                !client.admit(tenant).is_admit(),
                expected.contains(&tenant),
                "{tenant} on {name}"
            );
        }
    }
    assert_ne!(
        members(cohort(50.0, 1), "edge-1"),
        members(cohort(50.0, 1), "edge-2")
    );
}

/// Keys without their own directive share the guard of their class, and a mark does not give them
/// another.
#[test]
fn both_sides_take_tokens_of_one_guard() {
    let mut client = by_key("edge-1");
    let guard = Values {
        guard: Some(rate(0.001)),
        ..ratio(0.0)
    };
    client.direct(
        Terms {
            clients: Some(1),
            ..canary(50.0)
        },
        &[("default", guard)],
    );
    let members = client.enforced();
    for tenant in TENANTS {
        assert_eq!(
            !client.admit(tenant).is_admit(),
            members.contains(&tenant),
            "{tenant}"
        );
    }
}

#[test]
fn new_name_has_its_side_next_tick() {
    let mut client = by_key("edge-1");
    client.direct(canary(50.0), &[("default", ratio(1.0))]);
    let name = Name::new("edge-1").unwrap();
    for tenant in (0..20).map(|number| format!("new-{number}")) {
        client.send(&tenant, 1);
        client.tick();
        assert_eq!(
            client.enforces(&tenant),
            cohort(50.0, 1).contains_key(&name, &tenant),
            "{tenant}"
        );
    }
}

#[derive(Clone, Debug)]
struct Step {
    mode: Mode,
    percent: u8,
    salt: u64,
    /// The tenants with their own directive, as bits; the first is one without values.
    own: u16,
    kill: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let mode =
        prop_oneof![1 => Just(Mode::Shadow), 3 => Just(Mode::Canary), 1 => Just(Mode::Enforce)];
    let percent = prop_oneof![Just(0_u8), Just(30), Just(60), Just(100)];
    (
        mode,
        percent,
        0..2_u64,
        any::<u16>(),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(mode, percent, salt, own, kill)| Step {
            mode,
            percent,
            salt,
            own,
            kill,
        })
}

proptest! {
    #[test]
    fn every_key_is_enforced_by_its_side(
        steps in prop::collection::vec(step(), 1..20), asked in any::<u16>(),
    ) {
        let mut client = by_key("edge-1");
        let is_in = |bits: u16, at: usize| bits >> at & 1 == 1;
        // Some keys enter before the first directive, and the others after it.
        TENANTS.iter().enumerate().filter(|(at, _)| is_in(asked, *at)).for_each(|(_, tenant)| client.send(tenant, 1));
        for Step { mode, percent, salt, own, kill } in steps {
            let cohort = cohort(f64::from(percent), salt);
            let own = TENANTS.iter().enumerate().filter(|(at, tenant)| is_in(own, *at) && **tenant != "default");
            let own = own.map(|(at, tenant)| (*tenant, ratio((at > 0).then_some(0.5))));
            let keys: Vec<_> = own.chain([("default", ratio(1.0))]).collect();
            client.direct(Terms { cohort, ..limited(mode) }, &keys);
            client.subscription.observe(kill);
            let expected = match mode {
                _ if kill => Vec::new(),
                Mode::Shadow => Vec::new(),
                Mode::Canary => members(cohort, "edge-1"),
                Mode::Enforce => TENANTS.to_vec(),
            };
            prop_assert_eq!(client.enforced(), expected, "{:?} at {} %, salt {}, killed: {}", mode, percent, salt, kill);
        }
    }
}

// === Evidence ===

fn collected(client: &mut TestClient) -> Vec<(CohortKey, Outcomes)> {
    client.now = client.now + Duration::from_millis(500);
    let report = client.subscription.report(client.now);
    report
        .evidence
        .iter()
        .map(|(cohort, outcomes)| (cohort.clone(), outcomes.clone()))
        .collect()
}

fn send_each(client: &mut TestClient, requests: u64) {
    for tenant in TENANTS {
        client.send(tenant, requests);
    }
}

#[test]
fn evidence_separates_the_keys_of_both_sides() {
    for mode in [Mode::Shadow, Mode::Canary, Mode::Enforce] {
        let mut client = by_key("edge-1");
        client.direct(
            Terms {
                mode,
                ..canary(50.0)
            },
            &[("default", ratio(1.0))],
        );
        let in_canary = members(cohort(50.0, 1), "edge-1").len() as u64;
        client.enforced();
        collected(&mut client);
        send_each(&mut client, 10);
        let all = collected(&mut client);
        let [(control, of_control), (canary, of_canary)] = &all[..] else {
            panic!("{all:?}")
        };
        assert_eq!(
            (control.side, canary.side, control.mode),
            (Side::Control, Side::Canary, mode)
        );
        let refused = |offered: u64, side| match (mode, side) {
            (Mode::Enforce, _) | (Mode::Canary, Side::Canary) => (offered, offered, 0),
            _ => (offered, 0, offered),
        };
        let sums = |of: &Outcomes| (of.offered, of.refused, of.would_dropped);
        assert_eq!(
            sums(of_canary),
            refused(10 * in_canary, Side::Canary),
            "{mode:?}"
        );
        assert_eq!(
            sums(of_control),
            refused(10 * (TENANTS.len() as u64 - in_canary), Side::Control),
            "{mode:?}"
        );
    }
}

#[test]
fn response_takes_the_side_of_its_key() {
    let mut client = by_key("edge-1");
    client.direct(canary(50.0), &[("default", ratio(0.0))]);
    client.enforced();
    collected(&mut client);
    let place = client.table.declare("api").unwrap().unwrap();
    for tenant in TENANTS {
        let key = client.table.known_target(place, tenant, "").key;
        let recorder = client.table.responses.recorder_of_key(place.bucket, key);
        recorder.ended(Duration::from_millis(3), Some(Ending::Status(500)));
    }
    let in_canary = members(cohort(50.0, 1), "edge-1").len() as u64;
    let all = collected(&mut client);
    let failed: Vec<_> = all
        .iter()
        .map(|(of, outcomes)| (of.side, outcomes.failed, outcomes.latency.samples()))
        .collect();
    let outside = TENANTS.len() as u64 - in_canary;
    assert_eq!(
        failed,
        [
            (Side::Control, outside, outside),
            (Side::Canary, in_canary, in_canary)
        ]
    );
}

fn respond(client: &TestClient, responses: usize) {
    let recorder = client.table.responses.recorder(0);
    (0..responses)
        .for_each(|_| recorder.ended(Duration::from_millis(3), Some(Ending::Status(200))));
}

#[test]
fn admitted_requests_without_a_response_are_unobserved() {
    let mut client = TestClient::new();
    client.subscription.count_unobserved();
    client.direct(
        Terms {
            mode: Mode::Enforce,
            ..canary(0.0)
        },
        &[("default", ratio(0.0)), ("acme", ratio(1.0))],
    );
    collected(&mut client);
    for (case, refused, admitted, responses, unobserved) in [
        ("none responds", 5, 100, 0, 100),
        ("some respond", 0, 100, 40, 60),
        ("all respond", 0, 100, 100, 0),
        ("late responses", 0, 10, 30, 0),
        ("those of later requests", 0, 15, 0, 0),
        ("and the rest of them is used up", 0, 15, 0, 10),
    ] {
        client.send("jo", admitted);
        client.send("acme", refused);
        respond(&client, responses);
        let all = collected(&mut client);
        assert_eq!(all[0].1.unobserved, unobserved, "{case}");
        assert_eq!(all[0].1.offered, refused + admitted, "{case}");
    }
    // Nothing is carried over a change of mode.
    respond(&client, 50);
    client.direct(canary(0.0), &[("default", ratio(0.0))]);
    assert_eq!(collected(&mut client), []);
    client.send("jo", 7);
    assert_eq!(collected(&mut client)[0].1.unobserved, 7);
}

#[test]
fn quota_refusals_stay_out_of_evidence() {
    let mut client = TestClient::new();
    client.subscription.count_unobserved();
    client.direct(
        Terms {
            mode: Mode::Enforce,
            ..canary(0.0)
        },
        &[("default", ratio(0.0))],
    );
    collected(&mut client);
    client.send("jo", 100);
    let key = client.table.target_by_names("api", "jo").unwrap().key;
    for (outcome, n) in [(QuotaOutcome::Dropped, 30), (QuotaOutcome::Repeated, 500)] {
        client.table.counters.quotas.add(key, outcome, n);
    }
    let outcomes = collected(&mut client)[0].1.clone();
    assert_eq!(
        (outcomes.offered, outcomes.refused, outcomes.would_dropped),
        (100, 0, 0)
    );
    assert_eq!(outcomes.unobserved, 70);
}

#[test]
fn observed_responses_are_never_missed() {
    let mut client = TestClient::new();
    client.direct(canary(0.0), &[("default", ratio(0.0))]);
    collected(&mut client);
    client.send("jo", 1);
    assert_eq!(collected(&mut client)[0].1.unobserved, 0);
}
