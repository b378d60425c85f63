//! One client and its aggregators, for tests with several of them.

use std::collections::BTreeSet;

use crate::subscription::assignment::FAILOVER_DELAY_DEFAULT;
use crate::subscription::tests::*;
use plimsoll_core::report::Books;

pub(super) const BUCKETS: [&str; 6] = ["api", "checkout", "search", "login", "orders", "cart"];
pub(super) const STEP: Duration = Duration::from_millis(100);
pub(super) const ROLLUP: u64 = 5;

pub(super) struct Aggregator {
    pub(super) instance: u128,
    /// True while the process runs, even without a network.
    pub(super) runs: bool,
    pub(super) connected: bool,
    pub(super) books: Books,
    pub(super) seq: u64,
    pub(super) subscribed: BTreeSet<Bucket>,
    /// Counts entered and not rolled up yet: lost with the process.
    pub(super) fresh: u64,
    pub(super) covered: u64,
    pub(super) confirmed: u64,
    /// The ratio that it directs; `None` while it directs no values.
    pub(super) ratio: Option<f64>,
}

pub(super) struct Fleet {
    pub(super) client: TestClient,
    pub(super) aggregators: Vec<Aggregator>,
    pub(super) sent: u64,
    pub(super) counted: u64,
    pub(super) unconfirmed: u64,
    pub(super) has_controller: bool,
    pub(super) epoch: u64,
    pub(super) steps: u64,
    pub(super) next: u128,
}

fn books(instance: u128) -> Books {
    Books::new(InstanceId(instance), 1_000)
}

impl Fleet {
    pub(super) fn new(count: usize) -> Self {
        let mut client = TestClient::fresh("host:1");
        client
            .subscription
            .use_several_aggregators(FAILOVER_DELAY_DEFAULT);
        BUCKETS
            .iter()
            .for_each(|bucket| assert!(client.table.declare(bucket).unwrap().is_some()));
        let names: Vec<Arc<str>> = (0..count)
            .map(|at| format!("aggregator-{at}:7410").into())
            .collect();
        client.subscription.list_endpoints(client.now, &names);
        let aggregator = |at: usize| Aggregator {
            instance: 100 + at as u128,
            runs: true,
            connected: false,
            books: books(100 + at as u128),
            seq: 0,
            subscribed: BTreeSet::new(),
            fresh: 0,
            covered: 0,
            confirmed: 0,
            ratio: Some(0.0),
        };
        let aggregators = (0..count).map(aggregator).collect();
        let mut fleet = Self {
            client,
            aggregators,
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

    pub(super) fn connect(&mut self, at: usize) {
        let aggregator = &mut self.aggregators[at];
        if aggregator.runs && !aggregator.connected {
            (
                aggregator.connected,
                aggregator.seq,
                aggregator.covered,
                aggregator.confirmed,
            ) = (true, 0, 0, 0);
            aggregator.subscribed.clear();
            aggregator.books.open();
            self.client.subscription.open_stream(EndpointId(at as u32));
        }
    }

    pub(super) fn disconnect(&mut self, at: usize) {
        if std::mem::take(&mut self.aggregators[at].connected) {
            self.client
                .subscription
                .on_lost(EndpointId(at as u32), self.client.now);
        }
    }

    pub(super) fn crash(&mut self, at: usize) {
        self.disconnect(at);
        self.next += 1;
        let aggregator = &mut self.aggregators[at];
        (aggregator.runs, aggregator.fresh, aggregator.instance) = (false, 0, self.next);
        aggregator.books = books(self.next);
    }

    pub(super) fn restart(&mut self, at: usize) {
        self.aggregators[at].runs = true;
        self.connect(at);
    }

    pub(super) fn send(&mut self, bucket: usize, times: u32) -> u32 {
        self.sent += u64::from(times);
        let client = &mut self.client;
        let admit = |_: &u32| client.admit_in(BUCKETS[bucket], "acme").is_admit();
        (0..times).filter(admit).count() as u32
    }

    pub(super) fn pass(&mut self, span: Duration) {
        for _ in 0..span.as_millis() / STEP.as_millis() {
            self.step();
        }
    }

    pub(super) fn step(&mut self) {
        self.steps += 1;
        for _ in 0..10 {
            self.client.now = self.client.now + STEP / 10;
            self.client.subscription.on_tick(self.client.now);
        }
        for at in 0..self.aggregators.len() {
            self.exchange(at);
        }
        if self.has_controller && self.steps.is_multiple_of(ROLLUP) {
            for aggregator in self
                .aggregators
                .iter_mut()
                .filter(|aggregator| aggregator.runs)
            {
                self.counted += std::mem::take(&mut aggregator.fresh);
                aggregator.confirmed = aggregator.covered;
            }
        }
    }

    pub(super) fn exchange(&mut self, at: usize) {
        let (has_controller, epoch, now) = (self.has_controller, self.epoch, self.client.now);
        let id = EndpointId(at as u32);
        let aggregator = &mut self.aggregators[at];
        if !aggregator.connected {
            return;
        }
        let report = self.client.subscription.report_to(id, now);
        let entered = aggregator.books.enter(now, &report, |_| None).unwrap();
        self.unconfirmed += entered.unconfirmed;
        aggregator.fresh += entered
            .entries
            .iter()
            .map(|entry| entry.delta.counts.offered)
            .sum::<u64>();
        aggregator.subscribed.extend(report.subscriptions.added);
        aggregator.covered = report.seq;
        aggregator.seq += 1;
        let values = ratio(aggregator.ratio);
        let directive = |bucket: &Bucket| BucketDirective {
            bucket: bucket.clone(),
            whole: true,
            terms: limited(Mode::Enforce),
            keys: vec![KeyDirective {
                tenant: Tenant::default_class(),
                values,
            }],
        };
        let message = Directives {
            lead: Epoch(epoch).into(),
            seq: aggregator.seq,
            echo: Echo {
                covered: aggregator.covered,
                confirmed: aggregator.confirmed,
            },
            upstream_age: Some(if has_controller {
                Duration::from_millis(500)
            } else {
                Duration::from_secs(60)
            }),
            parent: (aggregator.seq == 1).then_some(InstanceId(aggregator.instance)),
            buckets: aggregator.subscribed.iter().map(directive).collect(),
            ..Directives::default()
        };
        self.client.subscription.apply(id, now, message).unwrap();
    }

    pub(super) fn owners(&self) -> Vec<usize> {
        let assignment = self.client.subscription.assignment().unwrap();
        let owners: Vec<usize> = assignment
            .endpoints()
            .map(|(_, _, buckets)| buckets)
            .collect();
        assert_eq!(owners.iter().sum::<usize>(), BUCKETS.len());
        owners
    }

    pub(super) fn settle(&mut self) {
        self.has_controller = true;
        (0..self.aggregators.len()).for_each(|at| self.restart(at));
        self.pass(Duration::from_secs(60));
    }
}
