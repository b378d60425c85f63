//! Decisions before the first directive: by the rate of the service, or by restored directives.

use super::*;

fn cold(rps: f64) -> TestClient {
    let mut client = TestClient::new();
    client.subscription.set_cold_rate(api(), rate(rps));
    client
}

/// Runs `ticks` with `per_tick` requests before each. Returns how many were admitted.
fn pass(client: &mut TestClient, ticks: u32, per_tick: u32) -> u32 {
    let mut admitted = 0;
    for _ in 0..ticks {
        admitted += (0..per_tick)
            .filter(|_| client.admit("acme").is_admit())
            .count() as u32;
        client.now = client.now + Duration::from_millis(10);
        client.subscription.on_tick(client.now);
    }
    admitted
}

#[test]
fn bucket_without_directive_passes_service_rate() {
    let mut client = cold(100.0);
    // 10 s at 1,000 requests/s, with and without reports: 100/s and the burst of 17.
    let admitted = pass(&mut client, 500, 10);
    client.subscription.report(client.now);
    let admitted = admitted + pass(&mut client, 500, 10);
    assert!((1_000..=1_020).contains(&admitted), "{admitted}");
    let counts = client.counts();
    assert_eq!(
        counts,
        Counts {
            offered: 10_000,
            guard_dropped: 10_000 - u64::from(admitted),
            ..Counts::ZERO
        }
    );
    assert_eq!(client.subscription.mode_of(&api()), Some(Mode::Enforce));
}

#[test]
fn tenants_share_the_rate_of_one_bucket() {
    let mut client = cold(0.0);
    let admitted = (0..1_000)
        .filter(|n| client.admit(&format!("tenant-{n}")).is_admit())
        .count();
    assert_eq!(admitted, 0);
    assert_eq!(
        (0..1_000)
            .filter(|_| client.admit_in("other", "acme").is_admit())
            .count(),
        1_000
    );
}

#[test]
fn first_directive_ends_the_service_rate() {
    for (terms, values) in [
        (limited(Mode::Enforce), ratio(0.0)),
        (limited(Mode::Shadow), ratio(1.0)),
        (enforced_with(Limit::Unlimited), ratio(None)),
        (enforced_with(Limit::Unknown), ratio(None)),
    ] {
        let mut client = cold(1.0);
        assert!(pass(&mut client, 10, 10) < 10);
        client.direct(terms.clone(), &[("default", values)]);
        assert_eq!(pass(&mut client, 10, 10), 100, "{terms:?}");
    }
}

#[test]
fn directive_without_ratios_keeps_service_rate() {
    let mut client = cold(0.0);
    client.enforce(&[("acme", ratio(None)), ("default", ratio(None))]);
    assert_eq!(pass(&mut client, 10, 10), 0);
    client.direct(limited(Mode::Shadow), &[("default", ratio(None))]);
    assert_eq!(pass(&mut client, 10, 10), 100);
    assert_eq!(client.counts().would_guard_dropped, 100);
}

#[test]
fn kill_stops_refusals_before_a_policy() {
    for mut client in [cold(0.0), TestClient::before_policy(BeforePolicy::Deny)] {
        let kill = Directives {
            kills: KillGeneration(1).into(),
            seq: 1,
            ..Directives::default()
        };
        client.receive(kill).unwrap();
        assert_eq!(pass(&mut client, 10, 10), 100);
    }
}

#[test]
fn unknown_policy_is_decided_as_set() {
    for (decision, expected) in [(BeforePolicy::Allow, 100), (BeforePolicy::Deny, 0)] {
        let mut client = TestClient::before_policy(decision);
        let refused = |client: &mut TestClient| match client.admit("acme") {
            Verdict::Admit => None,
            Verdict::Refuse(refusal) => Some(refusal.reason()),
        };
        let reason = (decision == BeforePolicy::Deny).then_some(Reason::ColdStart);
        assert_eq!(refused(&mut client), reason, "before the first tick");
        assert_eq!(pass(&mut client, 10, 10), expected);
        assert!(!client.subscription.are_policies_known());
        assert_eq!(client.subscription.decided_before_policy(), 101);
        client.enforce(&[("default", ratio(None))]);
        assert!(client.subscription.are_policies_known());
        assert_eq!(pass(&mut client, 10, 10), 100, "{decision:?}");
        assert_eq!(client.subscription.decided_before_policy(), 101);
        assert_eq!(refused(&mut client), None);
        assert_eq!(
            client.admit_in("later", "acme").is_admit(),
            decision == BeforePolicy::Allow
        );
        assert!(!client.subscription.are_policies_known());
        assert_eq!(client.subscription.decided_before_policy(), 102);
    }
}

#[test]
fn later_process_starts_from_saved_directives() {
    let mut client = TestClient::new();
    assert_eq!(client.subscription.unsaved(), None);
    let guard = Values {
        guard: Some(rate(100.0)),
        offered: Some(rate(1e9)),
        ..ratio(0.0)
    };
    let terms = Terms {
        clients: Some(1),
        ..limited(Mode::Enforce)
    };
    client.direct(terms.clone(), &[("acme", ratio(1.0)), ("default", guard)]);
    let (version, saved) = client.subscription.unsaved().unwrap();
    client.subscription.directives.saved = version;
    assert_eq!(client.subscription.unsaved(), None, "the state is saved");

    let mut later = TestClient::new();
    later.subscription.restore(saved);
    later.subscription.set_cold_rate(api(), rate(0.0));
    // They apply to names as well that are used for the first time.
    let admitted = pass(&mut later, 1, 100);
    assert_eq!(admitted, 0, "acme");
    let passed = (0..1_000)
        .filter(|_| later.admit("stranger").is_admit())
        .count();
    assert!(
        (3..30).contains(&passed),
        "{passed}: the guard of the class, not the rate of the service"
    );
    assert!(later.subscription.directives.is_restored);
    assert_eq!(later.subscription.unsaved(), None, "it is saved already");
    let report = later.subscription.report(later.now);
    assert_eq!(
        report.lead.leader,
        Some(Epoch(5).into()),
        "the aggregator has to know the epoch of the restored directives"
    );

    // A directive without ratios changes nothing, and one of an older epoch is stale.
    later.direct(
        terms.clone(),
        &[("acme", ratio(None)), ("default", ratio(None))],
    );
    assert_eq!(pass(&mut later, 10, 10), 0);
    let message = Directives {
        lead: Epoch(4).into(),
        ..later.message(terms.clone(), &[("acme", ratio(0.0))])
    };
    later.receive(message).unwrap_err();
    later.direct(terms, &[("acme", ratio(0.0)), ("default", ratio(0.0))]);
    assert_eq!(pass(&mut later, 10, 10), 100);
    assert!(!later.subscription.directives.is_restored);
    assert_eq!(later.subscription.directives.saved.epoch, Some(Epoch(5)));
}

#[test]
fn restored_directives_await_later_names() {
    let mut client = TestClient::new();
    client.enforce(&[("default", ratio(1.0))]);
    let saved = client.subscription.unsaved().unwrap().1;
    let table = Arc::new(Table::new(100, 0, 7));
    let mut later = Subscription::new(client.subscription.identity.clone(), Arc::clone(&table));
    later.restore(saved);
    table.declare("api").unwrap();
    later.on_tick(now());
    client.table = table;
    assert!(!client.admit("acme").is_admit());
}

#[test]
fn restored_kill_holds_and_is_reported() {
    let mut client = TestClient::new();
    client.enforce(&[("default", ratio(1.0))]);
    let kill = Directives {
        kills: KillGeneration(3).into(),
        ..Directives::default()
    };
    let _ = client.receive(kill);
    let saved = client.subscription.unsaved().unwrap().1;
    let mut later = TestClient::new();
    later.subscription.restore(saved);
    later.check(&[("acme", 0.0)]);
    assert_eq!(
        later.subscription.report(later.now).kills.fleet,
        KillGeneration(3)
    );
    later.enforce(&[("default", ratio(1.0))]);
    later.check(&[("acme", 0.0)]);
}

#[test]
fn overdue_answer_tells_what_applies_meanwhile() {
    fn saved() -> Directives {
        Directives {
            lead: Epoch(1).into(),
            ..Directives::default()
        }
    }
    for (prepare, expected) in [
        (
            (|_| ()) as fn(&mut TestClient),
            Some("everything is admitted"),
        ),
        (
            |client| {
                let bucket = api();
                client.subscription.set_cold_rate(bucket, rate(100.0));
            },
            Some("cold_rps limits its buckets, and everything else is admitted"),
        ),
        (
            |client| client.subscription.restore(saved()),
            Some("the cached directives of an earlier process apply"),
        ),
        (
            |client| {
                let directives = Directives { seq: 1, ..saved() };
                let _ = client.receive(directives);
            },
            None,
        ),
    ] {
        let mut client = TestClient::new();
        client.subscription.expect_answer("a:7410".to_owned());
        prepare(&mut client);
        let table = Arc::clone(&client.subscription.table);
        for (seconds, is_due) in [(3, false), (7, false), (8, true)] {
            client
                .subscription
                .on_tick(MonoTime::ZERO + Duration::from_secs(seconds));
            let problem = SetupProblem::NeverConnected {
                addresses: "a:7410".to_owned(),
                meanwhile: expected.unwrap_or_default().to_owned(),
            };
            let problems: Vec<_> = (is_due && expected.is_some())
                .then_some(problem)
                .into_iter()
                .collect();
            assert_eq!(table.problems.list(), problems, "{expected:?} {seconds}");
        }
        client.subscription.on_answer();
        assert_eq!(table.problems.list(), []);
    }
}
