//! A limiter with several aggregators that crash and return: the ratios in force, and a balance of all
//! counts.

use std::collections::BTreeSet;

use super::*;
use crate::assignment::FAILOVER_DELAY_DEFAULT;
use plimsoll_core::report::Books;
use proptest::prelude::*;

const BUCKETS: [&str; 6] = ["api", "checkout", "search", "login", "orders", "cart"];
const STEP: Duration = Duration::from_millis(100);
/// Reports per roll-up.
const ROLLUP: u64 = 5;

/// An aggregator, and how many of its counts have reached the controller.
struct Place {
    instance: u128,
    /// True while the process runs, even without a network.
    runs: bool,
    connected: bool,
    books: Books,
    seq: u64,
    subscribed: BTreeSet<Bucket>,
    /// Counts entered and not rolled up yet: lost with the process.
    fresh: u64,
    covered: u64,
    confirmed: u64,
    ratio: f64,
    values: bool,
}

/// One client, its aggregators, and the controller's total.
struct Fleet {
    held: Held,
    places: Vec<Place>,
    sent: u64,
    counted: u64,
    unconfirmed: u64,
    /// True while the controller is reachable.
    has_controller: bool,
    epoch: u64,
    steps: u64,
    next: u128,
}

fn books(instance: u128) -> Books {
    Books::new(InstanceId(1), InstanceId(instance), 1_000)
}

impl Fleet {
    fn new(count: usize) -> Self {
        let mut held = Held::fresh("host:1");
        held.subscription.use_several_aggregators(FAILOVER_DELAY_DEFAULT);
        BUCKETS.iter().for_each(|bucket| assert!(held.table.declare(bucket).unwrap().is_some()));
        let names: Vec<Arc<str>> =
            (0..count).map(|at| format!("http://aggregator-{at}:7410").into()).collect();
        held.subscription.list_endpoints(held.now, &names);
        let place = |at: usize| Place {
            instance: 100 + at as u128,
            runs: true,
            connected: false,
            books: books(100 + at as u128),
            seq: 0,
            subscribed: BTreeSet::new(),
            fresh: 0,
            covered: 0,
            confirmed: 0,
            ratio: 0.0,
            values: true,
        };
        let places = (0..count).map(place).collect();
        let mut fleet = Self {
            held,
            places,
            sent: 0,
            counted: 0,
            unconfirmed: 0,
            has_controller: true,
            epoch: 5,
            steps: 0,
            next: 1_000,
        };
        (0..count).for_each(|at| fleet.connect(at));
        fleet.pass(Duration::from_secs(10));
        fleet
    }

    fn connect(&mut self, at: usize) {
        let place = &mut self.places[at];
        if place.runs && !place.connected {
            (place.connected, place.seq, place.covered, place.confirmed) = (true, 0, 0, 0);
            place.subscribed.clear();
            place.books.open();
            self.held.subscription.open_stream(EndpointId(at as u32));
        }
    }

    fn disconnect(&mut self, at: usize) {
        if std::mem::take(&mut self.places[at].connected) {
            self.held.subscription.on_lost(EndpointId(at as u32), self.held.now);
        }
    }

    fn crash(&mut self, at: usize) {
        self.disconnect(at);
        self.next += 1;
        let place = &mut self.places[at];
        (place.runs, place.fresh, place.instance) = (false, 0, self.next);
        place.books = books(self.next);
    }

    fn restart(&mut self, at: usize) {
        self.places[at].runs = true;
        self.connect(at);
    }

    fn send(&mut self, bucket: usize, times: u32) -> u32 {
        self.sent += u64::from(times);
        let held = &mut self.held;
        let admit = |_: &u32| held.admit_in(BUCKETS[bucket], "acme").is_admit();
        (0..times).filter(admit).count() as u32
    }

    fn pass(&mut self, span: Duration) {
        for _ in 0..span.as_millis() / STEP.as_millis() {
            self.step();
        }
    }

    fn step(&mut self) {
        self.steps += 1;
        for _ in 0..10 {
            self.held.now = self.held.now + STEP / 10;
            self.held.subscription.on_tick(self.held.now);
        }
        for at in 0..self.places.len() {
            self.exchange(at);
        }
        if self.has_controller && self.steps.is_multiple_of(ROLLUP) {
            for place in self.places.iter_mut().filter(|place| place.runs) {
                self.counted += std::mem::take(&mut place.fresh);
                place.confirmed = place.covered;
            }
        }
    }

    fn exchange(&mut self, at: usize) {
        let (has_controller, epoch, now) = (self.has_controller, self.epoch, self.held.now);
        let id = EndpointId(at as u32);
        let place = &mut self.places[at];
        if !place.connected {
            return;
        }
        let report = self.held.subscription.report_to(id, now);
        let entered = place.books.enter(now, &report, |_| None).unwrap();
        self.unconfirmed += entered.unconfirmed;
        place.fresh += entered.entries.iter().map(|entry| entry.delta.counts.offered).sum::<u64>();
        place.subscribed.extend(report.asked);
        place.covered = report.seq;
        place.seq += 1;
        let value = if place.values { ratio(place.ratio) } else { ratio(None) };
        let directive = |bucket: &Bucket| BucketDirective {
            bucket: bucket.clone(),
            whole: true,
            terms: limited(Mode::Enforce),
            keys: vec![KeyDirective { tenant: Tenant::default_class(), values: value }],
        };
        let message = Directives {
            epoch: Some(Epoch(epoch)),
            seq: place.seq,
            echo: Echo { covered: place.covered, confirmed: place.confirmed },
            upstream_age: Some(if has_controller {
                Duration::from_millis(500)
            } else {
                Duration::from_secs(60)
            }),
            parent: (place.seq == 1).then_some(InstanceId(place.instance)),
            buckets: place.subscribed.iter().map(directive).collect(),
            ..Directives::default()
        };
        self.held.subscription.apply(id, now, message).unwrap();
    }

    /// Returns the number of buckets that each aggregator owns.
    fn owners(&self) -> Vec<usize> {
        let each = self.held.subscription.endpoints().each;
        assert_eq!(each.iter().map(|(_, _, buckets)| buckets).sum::<usize>(), BUCKETS.len());
        each.into_iter().map(|(_, _, buckets)| buckets).collect()
    }

    /// Runs until every count is reported and rolled up.
    fn settle(&mut self) {
        self.has_controller = true;
        (0..self.places.len()).for_each(|at| self.restart(at));
        self.pass(Duration::from_secs(60));
    }
}

/// Sends traffic to every bucket for `span`.
fn traffic(fleet: &mut Fleet, span: Duration) {
    for _ in 0..span.as_millis() / STEP.as_millis() {
        for bucket in 0..BUCKETS.len() {
            fleet.send(bucket, 10);
        }
        fleet.step();
    }
}

#[test]
fn crash_moves_the_buckets_and_the_return_brings_them_back_without_loss() {
    let mut fleet = Fleet::new(3);
    let before = fleet.owners();
    assert!(before.iter().all(|buckets| *buckets > 0), "{before:?}");
    traffic(&mut fleet, Duration::from_secs(5));
    fleet.crash(1);
    traffic(&mut fleet, FAILOVER_DELAY_DEFAULT + Duration::from_secs(5));
    let meanwhile = fleet.owners();
    assert_eq!(meanwhile[1], 0);
    assert!(meanwhile[0] >= before[0] && meanwhile[2] >= before[2]);
    // Only counts between two roll-ups were unconfirmed at the crash.
    let lost = fleet.unconfirmed;
    let per_rollup = before[1] as u64 * 10 * ROLLUP;
    assert!(lost <= 2 * per_rollup, "{lost} of {per_rollup} in a roll-up");
    fleet.restart(1);
    traffic(&mut fleet, Duration::from_secs(20));
    assert_eq!(fleet.owners(), before);
    fleet.settle();
    assert_eq!(fleet.unconfirmed, lost, "the return loses no count");
    assert!(fleet.counted <= fleet.sent && fleet.sent <= fleet.counted + lost, "{}", fleet.counted);
}

#[test]
fn new_and_leaving_aggregators_lose_no_count() {
    let mut fleet = Fleet::new(3);
    let before = fleet.owners();
    let names = |places: &[usize]| -> Vec<Arc<str>> {
        places.iter().map(|at| format!("http://aggregator-{at}:7410").into()).collect()
    };
    traffic(&mut fleet, Duration::from_secs(5));
    fleet.held.subscription.list_endpoints(fleet.held.now, &names(&[0, 2]));
    traffic(&mut fleet, Duration::from_secs(10));
    assert_eq!(fleet.owners()[1], 0);
    fleet.held.subscription.list_endpoints(fleet.held.now, &names(&[0, 1, 2]));
    traffic(&mut fleet, Duration::from_secs(20));
    assert_eq!(fleet.owners(), before);
    fleet.settle();
    assert_eq!((fleet.counted, fleet.unconfirmed), (fleet.sent, 0));
}

#[test]
fn only_the_ratios_of_the_owner_apply_and_they_follow_the_counts() {
    let mut fleet = Fleet::new(2);
    let of_1: Vec<usize> = {
        fleet.places[1].ratio = 1.0;
        fleet.pass(Duration::from_secs(1));
        (0..BUCKETS.len()).filter(|bucket| fleet.send(*bucket, 100) == 0).collect()
    };
    assert_eq!(of_1.len(), fleet.owners()[1]);
    assert!(!of_1.is_empty() && of_1.len() < BUCKETS.len());
    let refused = |fleet: &mut Fleet| of_1.iter().all(|bucket| fleet.send(*bucket, 100) == 0);
    fleet.disconnect(1);
    fleet.pass(FAILOVER_DELAY_DEFAULT + Duration::from_millis(200));
    assert_eq!(fleet.owners()[1], 0);
    assert!(refused(&mut fleet), "the counts have moved, the ratios not yet");
    fleet.pass(Duration::from_secs(3));
    assert!(!refused(&mut fleet));
    // While the returned aggregator directs no ratio, no bucket moves to it.
    fleet.places[1].values = false;
    fleet.connect(1);
    fleet.pass(Duration::from_secs(30));
    assert_eq!(fleet.owners()[1], 0);
    fleet.places[1].values = true;
    fleet.pass(Duration::from_secs(10));
    assert_eq!(fleet.owners()[1], of_1.len());
    assert!(refused(&mut fleet));
}

#[test]
fn no_bucket_moves_while_the_controller_is_away() {
    let mut fleet = Fleet::new(2);
    let before = fleet.owners();
    fleet.has_controller = false;
    traffic(&mut fleet, Duration::from_secs(5));
    fleet.crash(1);
    traffic(&mut fleet, FAILOVER_DELAY_DEFAULT * 2);
    assert_eq!(fleet.owners(), before);
    fleet.has_controller = true;
    traffic(&mut fleet, Duration::from_secs(2));
    assert_eq!(fleet.owners()[1], 0);
    fleet.has_controller = false;
    fleet.restart(1);
    traffic(&mut fleet, Duration::from_secs(60));
    assert_eq!(fleet.owners()[1], 0);
    fleet.settle();
    assert_eq!(fleet.owners(), before);
}

#[test]
fn directives_of_an_older_epoch_are_rejected_by_whichever_aggregator_owns_the_bucket() {
    let mut fleet = Fleet::new(2);
    fleet.places[0].ratio = 1.0;
    fleet.places[1].ratio = 1.0;
    fleet.epoch = 6;
    fleet.pass(Duration::from_secs(1));
    // The other aggregator has not received the new epoch, and directs under the old one.
    fleet.epoch = 5;
    fleet.disconnect(1);
    fleet.places[0].ratio = 0.0;
    let refused = fleet.held.subscription.rejected();
    fleet.held.subscription.sessions.add(EndpointId(0), Some(Epoch(5)));
    fleet.places[0].connected = false;
    fleet.connect(0);
    fleet.pass(FAILOVER_DELAY_DEFAULT + Duration::from_secs(5));
    assert!(fleet.held.subscription.rejected() > refused);
    assert!((0..BUCKETS.len()).all(|bucket| fleet.send(bucket, 10) == 0));
    assert_eq!(fleet.held.subscription.epoch(), Some(Epoch(6)));
}

#[test]
fn kill_from_any_aggregator_holds_for_every_bucket() {
    let mut fleet = Fleet::new(3);
    fleet.places.iter_mut().for_each(|place| place.ratio = 1.0);
    fleet.pass(Duration::from_secs(1));
    assert!((0..BUCKETS.len()).all(|bucket| fleet.send(bucket, 10) == 0));
    let kill = Directives { kill: KillGeneration(1), seq: 1_000_000, ..Directives::default() };
    fleet.held.subscription.apply(EndpointId(2), fleet.held.now, kill).unwrap();
    assert!((0..BUCKETS.len()).all(|bucket| fleet.send(bucket, 10) == 10));
    for id in 0..3 {
        let report = fleet.held.subscription.report_to(EndpointId(id), fleet.held.now);
        assert_eq!(report.kill, KillGeneration(1));
    }
}

#[test]
fn each_stream_subscribes_once_to_the_buckets_of_its_aggregator() {
    let mut fleet = Fleet::new(3);
    let owners = fleet.owners();
    for (at, buckets) in owners.iter().enumerate() {
        assert_eq!(fleet.places[at].subscribed.len(), *buckets);
        let report = fleet.held.subscription.report_to(EndpointId(at as u32), fleet.held.now);
        assert!(report.asked.is_empty());
        assert_eq!(report.seq, fleet.places[at].seq + 1);
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Send { bucket: usize, times: u32 },
    Pass(u32),
    Crash(usize),
    Restart(usize),
    Disconnect(usize),
    Controller(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..BUCKETS.len(), 1..50u32).prop_map(|(bucket, times)| Step::Send { bucket, times }),
        6 => prop_oneof![1..20u32, 150..400u32].prop_map(Step::Pass),
        2 => (0..3usize).prop_map(Step::Crash),
        3 => (0..3usize).prop_map(Step::Restart),
        1 => (0..3usize).prop_map(Step::Disconnect),
        1 => any::<bool>().prop_map(Step::Controller),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_count_is_counted_twice_and_every_lost_one_is_counted_as_unconfirmed(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut fleet = Fleet::new(3);
        let before = fleet.owners();
        for step in steps {
            match step {
                Step::Send { bucket, times } => _ = fleet.send(bucket, times),
                Step::Pass(steps) => (0..steps).for_each(|_| fleet.step()),
                Step::Crash(at) => fleet.crash(at),
                Step::Restart(at) => fleet.restart(at),
                Step::Disconnect(at) => fleet.disconnect(at),
                Step::Controller(yes) => fleet.has_controller = yes,
            }
            prop_assert!(fleet.counted <= fleet.sent);
        }
        fleet.settle();
        prop_assert!(fleet.counted <= fleet.sent);
        prop_assert!(fleet.sent <= fleet.counted + fleet.unconfirmed, "{} {}", fleet.counted, fleet.unconfirmed);
        prop_assert_eq!(fleet.owners(), before);
    }
}
