//! Instances of a service: clients of this library in this process, on a controller and aggregators in
//! processes of their own. Without HTTP every request is decided when it is due, and recorded.

use std::thread::sleep;
use std::time::Instant;

use plimsoll_client::{BucketHandle, Limiter, Verdict};
use tokio::runtime::Runtime;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::record::{Decision, Record};
use super::traffic::Arrival;
use crate::fleet::{BUCKET, Fleet, TENANTS, policy};
use crate::process::until;
use crate::shutdown;

pub(super) struct Instances {
    buckets: Vec<BucketHandle>,
    _stops_the_feeds: DropGuard,
    /// Runs the feeds.
    _runtime: Runtime,
    _fleet: Fleet,
}

impl Instances {
    /// Starts `count` instances, half of them in each zone, and waits until they are connected.
    pub(super) fn start(count: usize, limit: u32) -> Self {
        let fleet = Fleet::without_services(&policy(limit, "enforce", false), TENANTS);
        let runtime = shutdown::runtime().unwrap();
        let stop = CancellationToken::new();
        let start = |number: usize| {
            let zone = &fleet.zones[number % fleet.zones.len()];
            let aggregator = format!("http://{}", zone.aggregator.address("listen"));
            let builder = Limiter::builder("measured").unwrap().name(&format!("instance-{number}")).unwrap();
            let builder = builder.zone(zone.name).unwrap().aggregator(&aggregator).unwrap();
            let (limiter, feed) = builder.build().unwrap();
            runtime.spawn(feed.run(stop.clone()));
            limiter.bucket(BUCKET).unwrap()
        };
        let buckets = (0..count).map(start).collect();
        until("all instances to be connected", || {
            let connected = |zone| fleet.aggregator_metric(zone, "plimsoll_children");
            ((0..fleet.zones.len()).map(connected).sum::<f64>() == count as f64).then_some(())
        });
        Self { buckets, _stops_the_feeds: stop.drop_guard(), _runtime: runtime, _fleet: fleet }
    }

    /// Makes requests when they are due.
    pub(super) fn serve(&self, arrivals: &[Arrival]) -> Record {
        let start = Instant::now();
        let decide = |arrival: &Arrival| {
            let now = loop {
                let at = start.elapsed();
                if at >= arrival.due {
                    break at;
                }
                sleep(arrival.due - at);
            };
            let refused = match self.buckets[arrival.instance].admit(arrival.tenant) {
                Verdict::Admit => None,
                Verdict::Refuse(refusal) => Some(refusal.reason().as_str()),
            };
            Decision { at: now, late: now - arrival.due, tenant: arrival.tenant, refused }
        };
        Record(arrivals.iter().map(decide).collect())
    }
}
