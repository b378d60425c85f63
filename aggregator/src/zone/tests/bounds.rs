//! More tenants than there is room for: no request is lost or counted twice, regardless of which
//! tenants share a key, and the most frequent tenants have their own keys.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::scripted::CONTROLLER;
use super::*;
use plimsoll_core::names::KeyId;
use plimsoll_core::report::{Books, Counts};

struct Crowded {
    zone: Zone,
    clients: Vec<Client>,
    books: Books,
    now: u64,
    seq: u64,
    counted: BTreeMap<Key, u64>,
    sum: Counts,
    /// Requests that were not counted because a stream ended before the controller acknowledged the first
    /// counts of a key with a reused id: it might remember an earlier key of that name.
    unconfirmed: u64,
    reconnects: u32,
    ids: Vec<Key>,
    received: u64,
}

impl Crowded {
    fn new(per_bucket: usize, keys: usize, clients: u128) -> Self {
        let bounds = Bounds {
            keys_max: keys,
            tenants_per_bucket_max: per_bucket,
            ..Bounds::default()
        };
        let mut zone = Zone::new(
            identity(Role::Aggregator, 100),
            bounds,
            Parameters::default(),
        );
        zone.on_open(at(0));
        let books = Books::new(CONTROLLER, 1_000_000);
        let mut crowded = Self {
            zone,
            clients: (1..=clients).map(Client::new).collect(),
            books,
            now: 0,
            seq: 0,
            counted: BTreeMap::new(),
            sum: Counts::ZERO,
            unconfirmed: 0,
            reconnects: 0,
            ids: Vec::new(),
            received: 0,
        };
        crowded.roll_up();
        crowded.confirm();
        crowded
    }

    fn offer(&mut self, client: usize, name: &str, requests: u64) {
        self.clients[client].counts(name).offered += requests;
    }

    fn exhaust(&mut self, client: usize, name: &str, requests: u64) {
        let counts = self.clients[client].counts(name);
        counts.offered += requests;
        counts.quota_dropped += requests / 2;
        counts.would_quota_dropped += requests / 3;
        counts.quota_repeated += 2 * requests;
    }

    fn pass(&mut self) {
        self.now += 100;
        let now = at(self.now);
        for client in &mut self.clients {
            client.send_report(&mut self.zone, now);
        }
        self.zone.on_tick(now);
    }

    fn roll_up(&mut self) {
        let report = self.zone.report(at(self.now));
        self.received = report.seq;
        let (ids, counted) = (&mut self.ids, &mut self.counted);
        let own = |key: &Key| {
            ids.push(key.clone());
            Some(KeyId(ids.len() as u32 - 1))
        };
        let entered = self.books.enter(at(self.now), &report, own).unwrap();
        assert_eq!(entered.rejected_keys, 0);
        self.unconfirmed += entered.unconfirmed;
        for entry in entered.entries {
            let counts = entry.delta.counts;
            *counted
                .entry(ids[entry.own.unwrap().index()].clone())
                .or_default() += counts.asked();
            self.sum = self.sum.plus(counts);
        }
    }

    fn confirm(&mut self) {
        self.seq += 1;
        let message = Script::nothing().message(self.seq, self.received);
        self.zone.on_directives(at(self.now), message).unwrap();
    }

    fn seconds(&mut self, seconds: u64, mut offer: impl FnMut(&mut Self)) {
        for tenth in 0..seconds * 10 {
            offer(self);
            self.pass();
            if tenth % 5 == 4 {
                self.roll_up();
                self.confirm();
            }
        }
    }

    fn reconnect(&mut self) {
        self.reconnects += 1;
        self.zone.on_open(at(self.now));
        self.books.open();
        self.seq = 0;
        self.roll_up();
        self.confirm();
    }

    fn has(&self, name: &str) -> bool {
        self.zone
            .keys
            .get(&Key {
                bucket: bucket(),
                tenant: tenant(name),
            })
            .is_some()
    }

    fn check_balanced(&self) {
        let all = self
            .clients
            .iter()
            .flat_map(|client| client.counts.values());
        let all = all.fold(Counts::ZERO, |all, counts| all.plus(*counts));
        assert!(all.covers(self.sum), "{:?} of {all:?}", self.sum);
        assert!(
            self.unconfirmed > 0 || self.sum == all,
            "{:?} of {all:?}",
            self.sum
        );
        let (decided, counted) = (all.asked(), self.counted.values().sum::<u64>());
        assert!(
            counted <= decided && decided <= counted + self.unconfirmed,
            "{counted} of {decided}"
        );
        assert!(
            self.unconfirmed == 0 || self.reconnects > 0,
            "{} given up",
            self.unconfirmed
        );
    }
}

#[derive(Clone, Debug)]
enum Step {
    Offer {
        client: usize,
        tenant: usize,
        requests: u64,
    },
    Exhaust {
        client: usize,
        tenant: usize,
        requests: u64,
    },
    Pass,
    /// A little more than a minute without traffic.
    Idle,
    RollUp,
    Confirm,
    Reconnect,
    Return(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..3usize, 0..24usize, prop_oneof![1..4u64, 10..40u64])
            .prop_map(|(client, tenant, requests)| Step::Offer { client, tenant, requests }),
        4 => (0..3usize, 0..24usize, 1..40u64)
            .prop_map(|(client, tenant, requests)| Step::Exhaust { client, tenant, requests }),
        6 => Just(Step::Pass),
        1 => Just(Step::Idle),
        3 => Just(Step::RollUp),
        3 => Just(Step::Confirm),
        1 => Just(Step::Reconnect),
        1 => (0..3usize).prop_map(Step::Return),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn evicted_and_returning_keys_count_once(steps in vec(step(), 1..150)) {
        let mut crowded = Crowded::new(5, 12, 3);
        let mut streams = 10;
        for step in steps {
            match step {
                Step::Offer { client, tenant, requests } => {
                    crowded.offer(client, &format!("t{tenant}"), requests);
                }
                Step::Exhaust { client, tenant, requests } => {
                    crowded.exhaust(client, &format!("t{tenant}"), requests);
                }
                Step::Pass => crowded.pass(),
                Step::Idle => {
                    crowded.now += 61_000;
                    crowded.pass();
                    (0..10).for_each(|_| { crowded.zone.on_tick(at(crowded.now)); });
                }
                Step::RollUp => crowded.roll_up(),
                Step::Confirm => crowded.confirm(),
                Step::Reconnect => crowded.reconnect(),
                Step::Return(client) => {
                    streams += 1;
                    let stream = crowded.clients[client].stream;
                    crowded.zone.on_close(at(crowded.now), stream);
                    crowded.clients[client].reconnect(streams);
                }
            }
            prop_assert!(crowded.zone.keys() <= 12);
        }
        crowded.pass();
        crowded.roll_up();
        crowded.check_balanced();
    }
}

#[test]
fn idle_keys_free_their_ids() {
    let mut crowded = Crowded::new(10, 100, 1);
    for tenant in ["a", "b", "c"] {
        crowded.offer(0, tenant, 5);
    }
    crowded.seconds(2, |_| ());
    assert!(crowded.has("a"));
    crowded.exhaust(0, "a", 6);
    // In the first minute of a class every name is established, and is remembered for ten minutes.
    crowded.seconds(612, |crowded| crowded.offer(0, "b", 1));
    assert!(!crowded.has("a") && crowded.has("b") && !crowded.has("c"));
    let before = crowded.zone.keys();
    crowded.offer(0, "a", 3);
    crowded.offer(0, "d", 4);
    crowded.seconds(1, |_| ());
    assert_eq!(crowded.zone.keys(), before + 2);
    crowded.seconds(72, |crowded| crowded.offer(0, "a", 1));
    assert!(
        crowded.has("a") && !crowded.has("d"),
        "a new name is forgotten after a minute"
    );
    crowded.check_balanced();
}

#[test]
fn tenant_refused_from_memory_stays_active() {
    let mut crowded = Crowded::new(10, 100, 1);
    crowded.offer(0, "a", 5);
    crowded.seconds(700, |crowded| {
        crowded.clients[0].counts("a").quota_repeated += 1
    });
    assert!(crowded.has("a"));
    crowded.check_balanced();
}

#[test]
fn flood_evicts_no_frequent_tenant() {
    let mut crowded = Crowded::new(40, 1_000, 1);
    let regulars: Vec<String> = (0..20).map(|number| format!("regular{number}")).collect();
    let mut invented = 0;
    let mut flood = |crowded: &mut Crowded| {
        for regular in &regulars {
            crowded.offer(0, regular, 2);
        }
        for _ in 0..30 {
            invented += 1;
            crowded.offer(0, &format!("x{invented}"), 1);
        }
    };
    crowded.seconds(10, &mut flood);
    assert!(regulars.iter().all(|regular| crowded.has(regular)));
    assert!(crowded.zone.keys() <= 40);
    assert!(!crowded.has("late"));
    crowded.seconds(1, |crowded| {
        flood(crowded);
        crowded.offer(0, "late", 5);
    });
    assert!(
        crowded.has("late"),
        "50 requests/s among thousands of names that are used once"
    );
    assert!(regulars.iter().all(|regular| crowded.has(regular)));
    crowded.check_balanced();
}
