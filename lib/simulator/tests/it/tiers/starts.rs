//! Starts: the first burst of a client that has just connected passes, as long as it fits the
//! limit, and a crowd of such clients is cut.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_aggregator::zone::Bounds;
use plimsoll_client::Limiter;
use plimsoll_client::internals::{KeyHandle, Shard, Subscription};
use plimsoll_core::exchange::{Child, Parent, StreamId};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::Role;
use plimsoll_policy::ONE_CLASS_TENANTS;

use super::pair::{Pair, identity};

/// Time between two refills of a client.
const STEP_MS: u64 = 10;
/// Requests that arrive together.
const BURST: usize = 20;

struct Client {
    stream: StreamId,
    subscription: Subscription,
    shard: Shard,
    key: KeyHandle,
    /// Time of its first report.
    started: u64,
}

impl Client {
    fn new(number: u64, now: u64) -> Self {
        let identity = identity(Role::Client, 1_000 + u128::from(number));
        let (limiter, mut subscription) = Limiter::without_transport(identity, 100, 0, number);
        let key = limiter.bucket("api").unwrap().key("default");
        subscription.on_open(at(now));
        Self {
            stream: StreamId(number),
            subscription,
            shard: limiter.shard(number),
            key,
            started: now,
        }
    }

    /// Returns the refusals among simultaneous `requests`.
    fn refused(&mut self, requests: usize) -> usize {
        (0..requests)
            .filter(|_| !self.shard.check(&self.key.request()).verdict.is_admit())
            .count()
    }
}

/// A fleet in one zone. A step is 10 ms; clients report every 100 ms from their start on.
struct World {
    pair: Pair,
    clients: BTreeMap<u64, Client>,
    now: u64,
}

fn at(ms: u64) -> MonoTime {
    MonoTime::from_elapsed(Duration::from_millis(ms))
}

impl World {
    fn new(limit: u32) -> Self {
        let policy = format!(
            "buckets: {{ api: {{ limit: {limit}, mode: enforce }} }}\n\
                              rollout: {{ require_gates: false }}\n"
        );
        let pair = Pair::new(&policy, ONE_CLASS_TENANTS, Bounds::default());
        let mut world = Self {
            pair,
            clients: BTreeMap::new(),
            now: 0,
        };
        world.pair.roll_up(MonoTime::ZERO);
        world.run(10_000);
        world
    }

    /// Starts a client, which gets its first directives immediately. Returns its number.
    fn start(&mut self) -> u64 {
        let number = self.clients.len() as u64 + 1;
        self.clients.insert(number, Client::new(number, self.now));
        self.exchange(number);
        number
    }

    fn exchange(&mut self, number: u64) {
        let now = at(self.now);
        let client = self.clients.get_mut(&number).unwrap();
        let report = client.subscription.report(now);
        self.pair
            .zone
            .on_report(now, client.stream, report)
            .unwrap();
        if let Some(message) = self.pair.zone.directives(now, client.stream) {
            client.subscription.on_directives(now, message).unwrap();
        }
    }

    fn step(&mut self) {
        self.now += STEP_MS;
        let now = at(self.now);
        let due: Vec<u64> = self
            .clients
            .iter()
            .filter(|(_, client)| (self.now - client.started).is_multiple_of(100))
            .map(|(number, _)| *number)
            .collect();
        due.into_iter().for_each(|number| self.exchange(number));
        if self.now.is_multiple_of(100) {
            self.pair.zone.on_tick(now);
        }
        if self.now.is_multiple_of(500) {
            self.pair.roll_up(now);
        }
        self.clients
            .values_mut()
            .for_each(|client| client.subscription.on_tick(now));
    }

    fn run(&mut self, ms: u64) {
        (0..ms / STEP_MS).for_each(|_| self.step());
    }

    /// Runs with `rps` requests/s for each of the clients `1..=of`, evenly. Returns the requests
    /// refused.
    fn run_with_load(&mut self, ms: u64, of: u64, rps: u64) -> usize {
        let mut refused = 0;
        for _ in 0..ms / STEP_MS {
            self.step();
            for (number, client) in self.clients.iter_mut().filter(|(number, _)| **number <= of) {
                let sent = |ms: u64| (ms + 7 * number) * rps / 1_000;
                refused += client.refused((sent(self.now) - sent(self.now - STEP_MS)) as usize);
            }
        }
        refused
    }
}

/// Times of a burst after the first directives, in milliseconds.
const TIMES: [u64; 7] = [0, 20, 50, 200, 500, 1_000, 3_000];

#[test]
fn first_burst_of_the_only_client_passes() {
    let mut faults = Vec::new();
    for (limit, wait) in [100, 240, 1_000]
        .into_iter()
        .flat_map(|limit| TIMES.map(|wait| (limit, wait)))
    {
        let mut world = World::new(limit);
        let client = world.start();
        world.run(wait);
        let at_once = world.clients.get_mut(&client).unwrap().refused(BURST);
        let after = world.run_with_load(1_000, client, u64::from(limit) / 5);
        if at_once + after > 0 {
            faults.push(format!(
                "limit {limit}, {wait} ms: {at_once} at once, {after} in the next second"
            ));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn first_burst_of_a_joining_client_passes() {
    let mut faults = Vec::new();
    for (limit, fleet) in [(100, 4), (1_000, 4), (1_000, 19), (10_000, 99)] {
        for wait in TIMES {
            let mut world = World::new(limit);
            for _ in 0..fleet {
                world.start();
                world.run(1_000);
            }
            // A quarter of the limit.
            let rps = u64::from(limit) / 4 / fleet;
            world.run_with_load(20_000, fleet, rps);
            let client = world.start();
            let before = world.run_with_load(wait, fleet, rps);
            let at_once = world.clients.get_mut(&client).unwrap().refused(BURST);
            let after = world.run_with_load(1_000, fleet, rps);
            if before + at_once + after > 0 {
                faults.push(format!(
                    "limit {limit}, {fleet} + 1, {wait} ms: {before}, {at_once}, {after}"
                ));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn small_fleet_first_bursts_pass() {
    // (limit, clients that start at the same time, time between their bursts)
    for (limit, clients, every) in [
        (100, 2, 500),
        (100, 4, 500),
        (1_000, 8, 100),
        (1_000, 10, 600),
    ] {
        let mut world = World::new(limit);
        (0..clients).for_each(|_| {
            world.start();
        });
        world.run(500);
        for client in 1..=clients {
            let refused = world.clients.get_mut(&client).unwrap().refused(BURST);
            assert_eq!(refused, 0, "limit {limit}, client {client} of {clients}");
            world.run(every);
        }
    }
}

#[test]
fn bursts_of_a_starting_crowd_are_cut() {
    // A limit of 100, and 50 clients that start together. After a time each gets a burst of 20
    // requests, and 20 more over the next second. (time in ms, maximum passed of the burst, maximum
    // passed of both)
    for (wait, at_once_max, both_max) in [
        (0, 400, 500),
        (100, 270, 300),
        (1_000, 300, 400),
        (3_000, 350, 450),
        (9_000, 380, 480),
        (15_000, 250, 320),
    ] {
        let mut world = World::new(100);
        for _ in 0..50 {
            world.start();
        }
        world.run(wait);
        let refused: usize = world
            .clients
            .values_mut()
            .map(|client| client.refused(BURST))
            .sum();
        let at_once = 50 * BURST - refused;
        let both = at_once + 50 * BURST - world.run_with_load(1_000, 50, BURST as u64);
        assert!(
            at_once <= at_once_max && both <= both_max,
            "{wait} ms: {at_once} at once, {both} of both"
        );
    }
}
