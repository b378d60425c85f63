//! A limiter with several aggregators that crash and return: whose ratios hold, and that the books balance.

use std::collections::BTreeSet;

use super::*;
use crate::assignment::GRACE;
use plimsoll_core::report::{Books, Echo};
use proptest::prelude::*;

const BUCKETS: [&str; 6] = ["api", "checkout", "search", "login", "orders", "cart"];
const STEP: Duration = Duration::from_millis(100);
/// Reports per roll-up.
const ROLLUP: u64 = 5;

/// An aggregator and what of it has reached the controller.
struct Place {
    instance: u128,
    /// The process runs; a network that fails leaves it running.
    runs: bool,
    connected: bool,
    books: Books,
    seq: u64,
    asked: BTreeSet<Bucket>,
    /// Entered and not yet rolled up: lost with the process.
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
    asked: u64,
    counted: u64,
    unconfirmed: u64,
    /// The controller is there.
    led: bool,
    epoch: u64,
    steps: u64,
    next: u128,
}

fn books(instance: u128) -> Books {
    Books::new(InstanceId(1), InstanceId(instance), 1_000)
}

impl Fleet {
    fn new(count: usize) -> Self {
        let mut held = Held::unheard("host:1");
        held.subscription.spread_over_several(GRACE);
        BUCKETS.iter().for_each(|bucket| assert!(held.table.declare(bucket).unwrap().is_some()));
        let names: Vec<Arc<str>> =
            (0..count).map(|at| format!("http://aggregator-{at}:7410").into()).collect();
        held.subscription.list(held.now, &names);
        let place = |at: usize| Place {
            instance: 100 + at as u128,
            runs: true,
            connected: false,
            books: books(100 + at as u128),
            seq: 0,
            asked: BTreeSet::new(),
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
            asked: 0,
            counted: 0,
            unconfirmed: 0,
            led: true,
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
            place.asked.clear();
            place.books.open();
            self.held.subscription.open(EndpointId(at as u32));
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

    fn ask(&mut self, bucket: usize, times: u32) -> u32 {
        self.asked += u64::from(times);
        let held = &mut self.held;
        let admit = |_: &u32| held.ask(BUCKETS[bucket], "acme").is_admit();
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
        if self.led && self.steps.is_multiple_of(ROLLUP) {
            for place in self.places.iter_mut().filter(|place| place.runs) {
                self.counted += std::mem::take(&mut place.fresh);
                place.confirmed = place.covered;
            }
        }
    }

    fn exchange(&mut self, at: usize) {
        let (led, epoch, now) = (self.led, self.epoch, self.held.now);
        let id = EndpointId(at as u32);
        let place = &mut self.places[at];
        if !place.connected {
            return;
        }
        let report = self.held.subscription.report_to(id, now);
        let entered = place.books.enter(now, &report, |_| None).unwrap();
        self.unconfirmed += entered.unconfirmed;
        place.fresh += entered.entries.iter().map(|entry| entry.delta.counts.offered).sum::<u64>();
        place.asked.extend(report.asked);
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
            upstream_age: Some(if led { Duration::from_millis(500) } else { Duration::from_secs(60) }),
            parent: (place.seq == 1).then_some(InstanceId(place.instance)),
            buckets: place.asked.iter().map(directive).collect(),
            ..Directives::default()
        };
        self.held.subscription.take(id, now, message).unwrap();
    }

    /// Who has each bucket.
    fn owners(&self) -> Vec<usize> {
        let each = self.held.subscription.endpoints().each;
        assert_eq!(each.iter().map(|(_, _, buckets)| buckets).sum::<usize>(), BUCKETS.len());
        each.into_iter().map(|(_, _, buckets)| buckets).collect()
    }

    /// Everything there is has been said and rolled up.
    fn settle(&mut self) {
        self.led = true;
        (0..self.places.len()).for_each(|at| self.restart(at));
        self.pass(Duration::from_secs(60));
    }
}

/// Traffic in every bucket for so long.
fn traffic(fleet: &mut Fleet, span: Duration) {
    for _ in 0..span.as_millis() / STEP.as_millis() {
        for bucket in 0..BUCKETS.len() {
            fleet.ask(bucket, 10);
        }
        fleet.step();
    }
}

#[test]
fn a_crash_moves_the_buckets_and_the_return_brings_them_back_and_gives_nothing_up() {
    let mut fleet = Fleet::new(3);
    let before = fleet.owners();
    assert!(before.iter().all(|buckets| *buckets > 0), "{before:?}");
    traffic(&mut fleet, Duration::from_secs(5));
    fleet.crash(1);
    traffic(&mut fleet, GRACE + Duration::from_secs(5));
    let meanwhile = fleet.owners();
    assert_eq!(meanwhile[1], 0);
    assert!(meanwhile[0] >= before[0] && meanwhile[2] >= before[2]);
    // What was on its way when it crashed: between two roll-ups.
    let lost = fleet.unconfirmed;
    let per_rollup = before[1] as u64 * 10 * ROLLUP;
    assert!(lost <= 2 * per_rollup, "{lost} of {per_rollup} in a roll-up");
    fleet.restart(1);
    traffic(&mut fleet, Duration::from_secs(20));
    assert_eq!(fleet.owners(), before);
    fleet.settle();
    assert_eq!(fleet.unconfirmed, lost, "to come back costs nothing");
    assert!(fleet.counted <= fleet.asked && fleet.asked <= fleet.counted + lost, "{}", fleet.counted);
}

#[test]
fn a_new_and_a_leaving_aggregator_cost_nothing() {
    let mut fleet = Fleet::new(3);
    let before = fleet.owners();
    let names = |places: &[usize]| -> Vec<Arc<str>> {
        places.iter().map(|at| format!("http://aggregator-{at}:7410").into()).collect()
    };
    traffic(&mut fleet, Duration::from_secs(5));
    fleet.held.subscription.list(fleet.held.now, &names(&[0, 2]));
    traffic(&mut fleet, Duration::from_secs(10));
    assert_eq!(fleet.owners()[1], 0);
    fleet.held.subscription.list(fleet.held.now, &names(&[0, 1, 2]));
    traffic(&mut fleet, Duration::from_secs(20));
    assert_eq!(fleet.owners(), before);
    fleet.settle();
    assert_eq!((fleet.counted, fleet.unconfirmed), (fleet.asked, 0));
}

#[test]
fn ratios_hold_from_the_owner_alone_and_follow_the_counts() {
    let mut fleet = Fleet::new(2);
    let of_1: Vec<usize> = {
        fleet.places[1].ratio = 1.0;
        fleet.pass(Duration::from_secs(1));
        (0..BUCKETS.len()).filter(|bucket| fleet.ask(*bucket, 100) == 0).collect()
    };
    assert_eq!(of_1.len(), fleet.owners()[1]);
    assert!(!of_1.is_empty() && of_1.len() < BUCKETS.len());
    let refused = |fleet: &mut Fleet| of_1.iter().all(|bucket| fleet.ask(*bucket, 100) == 0);
    fleet.disconnect(1);
    fleet.pass(GRACE + Duration::from_millis(200));
    assert_eq!(fleet.owners()[1], 0);
    assert!(refused(&mut fleet), "the counts have moved, the ratios have not");
    fleet.pass(Duration::from_secs(3));
    assert!(!refused(&mut fleet));
    // While the one that is back knows no ratio, nothing goes to it.
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
fn nothing_moves_while_the_controller_is_away() {
    let mut fleet = Fleet::new(2);
    let before = fleet.owners();
    fleet.led = false;
    traffic(&mut fleet, Duration::from_secs(5));
    fleet.crash(1);
    traffic(&mut fleet, GRACE * 2);
    assert_eq!(fleet.owners(), before);
    fleet.led = true;
    traffic(&mut fleet, Duration::from_secs(2));
    assert_eq!(fleet.owners()[1], 0);
    fleet.led = false;
    fleet.restart(1);
    traffic(&mut fleet, Duration::from_secs(60));
    assert_eq!(fleet.owners()[1], 0);
    fleet.settle();
    assert_eq!(fleet.owners(), before);
}

#[test]
fn an_older_reign_is_not_listened_to_wherever_a_bucket_goes() {
    let mut fleet = Fleet::new(2);
    fleet.places[0].ratio = 1.0;
    fleet.places[1].ratio = 1.0;
    fleet.epoch = 6;
    fleet.pass(Duration::from_secs(1));
    // The other one has not heard of the new reign, and speaks with the old one's voice.
    fleet.epoch = 5;
    fleet.disconnect(1);
    fleet.places[0].ratio = 0.0;
    let refused = fleet.held.subscription.refused();
    let mut strand = Strand::new(Some(Epoch(5)));
    strand.parent = Some(InstanceId(100));
    fleet.held.subscription.strands.insert(EndpointId(0), strand);
    fleet.places[0].connected = false;
    fleet.connect(0);
    fleet.pass(GRACE + Duration::from_secs(5));
    assert!(fleet.held.subscription.refused() > refused);
    assert!((0..BUCKETS.len()).all(|bucket| fleet.ask(bucket, 10) == 0));
    assert_eq!(fleet.held.subscription.epoch(), Some(Epoch(6)));
}

#[test]
fn a_kill_heard_from_anyone_holds_everywhere() {
    let mut fleet = Fleet::new(3);
    fleet.places.iter_mut().for_each(|place| place.ratio = 1.0);
    fleet.pass(Duration::from_secs(1));
    assert!((0..BUCKETS.len()).all(|bucket| fleet.ask(bucket, 10) == 0));
    let kill = Directives { kill: KillGeneration(1), seq: 1_000_000, ..Directives::default() };
    fleet.held.subscription.take(EndpointId(2), fleet.held.now, kill).unwrap();
    assert!((0..BUCKETS.len()).all(|bucket| fleet.ask(bucket, 10) == 10));
    for id in 0..3 {
        let report = fleet.held.subscription.report_to(EndpointId(id), fleet.held.now);
        assert_eq!(report.kill, KillGeneration(1));
    }
}

#[test]
fn each_stream_asks_for_its_own_buckets_once_and_carries_one_message_a_step() {
    let mut fleet = Fleet::new(3);
    let owners = fleet.owners();
    for (at, buckets) in owners.iter().enumerate() {
        assert_eq!(fleet.places[at].asked.len(), *buckets);
        let report = fleet.held.subscription.report_to(EndpointId(at as u32), fleet.held.now);
        assert!(report.asked.is_empty());
        assert_eq!(report.seq, fleet.places[at].seq + 1);
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Ask { bucket: usize, times: u32 },
    Pass(u32),
    Crash(usize),
    Restart(usize),
    Disconnect(usize),
    Lead(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..BUCKETS.len(), 1..50u32).prop_map(|(bucket, times)| Step::Ask { bucket, times }),
        6 => prop_oneof![1..20u32, 150..400u32].prop_map(Step::Pass),
        2 => (0..3usize).prop_map(Step::Crash),
        3 => (0..3usize).prop_map(Step::Restart),
        1 => (0..3usize).prop_map(Step::Disconnect),
        1 => any::<bool>().prop_map(Step::Lead),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn whoever_crashes_whenever_nothing_is_counted_twice_and_what_is_given_up_is_counted(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut fleet = Fleet::new(3);
        let before = fleet.owners();
        for step in steps {
            match step {
                Step::Ask { bucket, times } => _ = fleet.ask(bucket, times),
                Step::Pass(steps) => (0..steps).for_each(|_| fleet.step()),
                Step::Crash(at) => fleet.crash(at),
                Step::Restart(at) => fleet.restart(at),
                Step::Disconnect(at) => fleet.disconnect(at),
                Step::Lead(yes) => fleet.led = yes,
            }
            prop_assert!(fleet.counted <= fleet.asked);
        }
        fleet.settle();
        prop_assert!(fleet.counted <= fleet.asked);
        prop_assert!(fleet.asked <= fleet.counted + fleet.unconfirmed, "{} {}", fleet.counted, fleet.unconfirmed);
        prop_assert_eq!(fleet.owners(), before);
    }
}
