//! Guards: bursts are cut, steady traffic passes, tokens outlive directives.

mod headroom;

use super::*;
use proptest::prelude::*;

pub(super) const TICK: Duration = Duration::from_millis(10);

/// A zone's guard, with a ratio of zero.
pub(super) fn guard(guard: f64, offered: f64) -> Values {
    Values {
        guard: Some(rate(guard)),
        offered: Some(rate(offered)),
        ..ratio(0.0)
    }
}

/// The values of a key at its tenant limit.
pub(super) fn stopped(values: Values) -> Values {
    Values {
        at_tenant_limit: Some(true),
        ..values
    }
}

pub(super) fn shared_by(clients: u32, mode: Mode) -> Terms {
    Terms {
        clients: Some(clients),
        ..limited(mode)
    }
}

impl TestClient {
    /// Directs only the default class, with a guard that `clients` share.
    pub(super) fn guard_class(&mut self, clients: u32, values: Values) {
        self.direct(shared_by(clients, Mode::Enforce), &[("default", values)]);
    }

    /// Lets `ticks` of 10 ms pass, a report every tenth, with `per_tick` requests of a tenant before each.
    /// Returns the number of admitted requests.
    pub(super) fn run(&mut self, tenant: &str, ticks: u32, per_tick: impl Fn(u32) -> u32) -> u32 {
        let mut admitted = 0;
        for tick in 1..=ticks {
            admitted += (0..per_tick(tick))
                .filter(|_| self.admit(tenant).is_admit())
                .count() as u32;
            self.now = self.now + TICK;
            if tick.is_multiple_of(10) {
                self.subscription.report(self.now);
            }
            self.subscription.on_tick(self.now);
        }
        admitted
    }

    /// Returns the number of requests that are admitted at once.
    pub(super) fn drain(&mut self, tenant: &str) -> u32 {
        let admitted = (0..1_000_000).position(|_| !self.admit(tenant).is_admit());
        admitted.unwrap() as u32
    }
}

/// The depth of a guard of `g` requests/s, in tokens.
pub(super) fn depth(g: f64) -> f64 {
    0.05 * g + 2.0 * (0.2 * g).sqrt() + 3.0
}

#[test]
fn surge_is_cut_to_burst_and_refills() {
    let mut client = TestClient::new();
    client.run("acme", 100, |_| 2);
    client.guard_class(4, guard(1_000.0, 800.0));
    // A quarter of the zone's traffic: g = 1,000 * (0.9 / 4 + 0.1 / 4).
    assert_eq!(
        client.run("acme", 400, |_| 2),
        800,
        "steady traffic below the rate of the guard is not refused"
    );
    let passed = f64::from(client.run("acme", 9, |_| 20));
    assert!(
        passed <= depth(250.0) + 250.0 * 0.09 + 1.0,
        "{passed} of a surge"
    );
    assert!(passed >= depth(250.0), "{passed} of a surge");
    let counts = client.counts();
    assert_eq!(
        (counts.dropped, counts.admitted()),
        (0, 1_000 + passed as u64)
    );
    assert_eq!(counts.guard_dropped, 180 - passed as u64);
}

#[test]
fn first_measurement_replaces_the_even_part() {
    let mut client = TestClient::new();
    client.guard_class(10, guard(1_000.0, 100.0));
    // g = 1,000 * 0.1 / 10.
    assert_eq!(f64::from(client.drain("acme")), depth(10.0).floor());
    // All the zone's traffic arrives here: with the next directive g grows to 1,000 * (0.9 + 0.01).
    client.run("acme", 40, |_| 100);
    client.guard_class(10, guard(1_000.0, 99.0));
    let passed = client.run("acme", 100, |_| 100);
    assert!(
        (800..=910 + 80).contains(&passed),
        "{passed} in a second at 910 requests/s"
    );
}

#[test]
fn tokens_outlive_directives_within_the_depth() {
    let mut client = TestClient::new();
    let zone = |g: f64| [("default", guard(g * 10.0, 1e9))]; // one client, nothing offered: a tenth
    client.direct(shared_by(1, Mode::Enforce), &zone(1_000.0));
    client.drain("acme");
    client.direct(shared_by(1, Mode::Enforce), &zone(2_000.0));
    assert_eq!(client.drain("acme"), 0, "a directive adds no tokens");
    client.run("acme", 200, |_| 0);
    client.direct(shared_by(1, Mode::Enforce), &zone(10.0));
    assert_eq!(
        f64::from(client.drain("acme")),
        depth(10.0).floor(),
        "a smaller depth cuts the tokens"
    );
    // A guard that was removed and set again starts full.
    client.enforce(&[("default", ratio(0.0))]);
    client.check(&[("acme", 0.0)]);
    client.direct(shared_by(1, Mode::Enforce), &zone(10.0));
    assert_eq!(f64::from(client.drain("acme")), depth(10.0).floor());
}

#[test]
fn late_refill_lets_the_backlog_pass() {
    // The time between two refills, and the time that is made up for.
    for (between_ms, late_s) in [(10, 0.0), (110, 0.1), (510, 0.5), (9_000, 1.0)] {
        let between = Duration::from_millis(between_ms);
        let paused = || {
            let mut client = TestClient::new();
            client.guard_class(1, guard(3_000.0, 1e12));
            client.subscription.on_tick(client.now);
            client.now = client.now + between;
            client.subscription.on_tick(client.now);
            client
        };
        let (mut client, g) = (paused(), 300.0);
        let passed = f64::from(client.drain("acme"));
        assert!(
            (passed - depth(g) - g * late_s).abs() <= 1.0,
            "{passed} after {between_ms} ms"
        );
        // Each credit is given once, and lapses.
        client.run("acme", 1, |_| 0);
        assert!(client.drain("acme") <= 4);
        let mut client = paused();
        client.run("acme", 101, |_| 0);
        assert_eq!(
            f64::from(client.drain("acme")),
            depth(g).floor(),
            "{between_ms} ms"
        );
    }
}

#[test]
fn tenant_without_directive_takes_class_tokens() {
    let mut client = TestClient::new();
    let zone = |g: f64| guard(g * 10.0, 1e9);
    client.direct(
        shared_by(1, Mode::Enforce),
        &[
            ("acme", zone(10.0)),
            ("default", zone(10.0)),
            ("free", ratio(0.0)),
        ],
    );
    assert_eq!(f64::from(client.drain("one")), depth(10.0).floor());
    assert_eq!(client.drain("another"), 0, "shared");
    assert_eq!(
        f64::from(client.drain("acme")),
        depth(10.0).floor(),
        "its own"
    );
    client.check(&[("free", 0.0)]);
}

#[test]
fn coin_refusal_takes_no_guard_token() {
    let mut client = TestClient::new();
    let both = |share: f64| Values {
        ratio: ratio(share).ratio,
        ..guard(100.0, 1e9)
    };
    client.guard_class(1, both(1.0));
    client.check(&[("acme", 1.0)]);
    client.guard_class(1, both(0.0));
    assert_eq!(f64::from(client.drain("acme")), depth(10.0).floor());
}

#[test]
fn guard_needs_the_number_of_clients() {
    let mut client = TestClient::new();
    client.enforce(&[("default", guard(10.0, 10.0))]);
    client.check(&[("acme", 0.0)]);
}

#[test]
fn guard_counts_would_drops_without_refusing() {
    for mode in [Mode::Enforce, Mode::Shadow, Mode::Canary] {
        let mut client = TestClient::new();
        client.direct(shared_by(1, mode), &[("default", guard(100.0, 1e9))]);
        let kill = Directives {
            kills: KillGeneration(1).into(),
            ..client.message(shared_by(1, mode), &[])
        };
        let kill = Directives {
            buckets: Vec::new(),
            ..kill
        };
        client.receive(kill).unwrap();
        client.check(&[("acme", 0.0)]);
        let burst = depth(10.0).floor() as u64;
        let counts = client.counts();
        assert_eq!((counts.passed(), counts.admitted()), (burst, 10_000));
        assert_eq!(
            (counts.would_guard_dropped, counts.would_dropped),
            (10_000 - burst, 10_000 - burst)
        );
    }
}

#[test]
fn offered_rate_is_measured_without_reports() {
    let mut client = TestClient::new();
    client.guard_class(1, guard(1_000.0, 1_000.0));
    client.run("acme", 20, |_| 0);
    // Only ticks from now on: 3 s at 1,000 requests/s. A tenth passes at first.
    let mut last = 0;
    for tick in 0..300 {
        let admitted = (0..10).filter(|_| client.admit("acme").is_admit()).count();
        last += if tick >= 200 { admitted } else { 0 };
        client.now = client.now + TICK;
        client.subscription.on_tick(client.now);
    }
    assert!(last >= 900, "{last} of 1,000 in the last second");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn steady_traffic_below_the_guard_passes(per_tick in 1..50u32, clients in 1..50u32, room in 1.05..3.0f64) {
        let mut client = TestClient::new();
        let own = f64::from(per_tick) * 100.0;
        let zone = guard(own * room * f64::from(clients), own * f64::from(clients));
        // The first measurement precedes the directive.
        client.run("acme", 20, |_| per_tick);
        client.guard_class(clients, zone);
        client.run("acme", 300, |_| per_tick);
        prop_assert_eq!(client.counts().guard_dropped, 0);
    }

    #[test]
    fn burst_and_refills_bound_what_passes(
        g in 0.0..5_000.0f64,
        // Requests before each tick, which may be late.
        offered in prop::collection::vec((0..300u32, prop_oneof![4 => Just(1), 1 => 1..150u32]), 1..100),
    ) {
        let mut client = TestClient::new();
        // One client with hardly any of the zone's traffic gets a tenth.
        client.guard_class(1, guard(g * 10.0, 1e12));
        client.subscription.on_tick(client.now);
        let (mut passed, mut elapsed) = (0, Duration::ZERO);
        for (requests, ticks) in offered {
            passed += (0..requests).filter(|_| client.admit("acme").is_admit()).count();
            client.now = client.now + TICK * ticks;
            elapsed += TICK * ticks;
            client.subscription.on_tick(client.now);
        }
        prop_assert!(passed as f64 <= depth(g) + g * elapsed.as_secs_f64() + 0.01);
    }
}

#[test]
fn guard_refusing_without_a_ratio_is_named() {
    for (refusing, expected) in [
        (guard(10.0, 10.0), Some(true)),
        (guard(1_000.0, 10.0), Some(false)),
        (ratio(0.5), None),
    ] {
        let mut client = TestClient::new();
        client.guard_class(1, refusing);
        client.run("acme", 1_200, |_| 1);
        let (_, figures) = client.subscription.admission_figures().next().unwrap();
        assert_eq!(figures.underadmitting, expected, "{figures:?}");
    }
}

#[test]
fn tokens_returned_after_a_refill_are_no_debt() {
    let mut client = TestClient::new();
    client.guard_class(1, guard(100.0, 1e9));
    client.run("acme", 100, |_| 0);
    let depth = client.drain("acme");
    client.run("acme", 100, |_| 0);
    let class = client.table.target_by_names("api", "acme").unwrap();
    // A request takes a token, a refill pays it, and the request gives it back.
    assert!(client.admit("acme").is_admit());
    client.run("acme", 1, |_| 0);
    let counters = client.table.counters.current_thread();
    client.table.give_back(class.source(), 1, counters);
    client.run("acme", 100, |_| 0);
    assert_eq!(client.drain("acme"), depth);
}
