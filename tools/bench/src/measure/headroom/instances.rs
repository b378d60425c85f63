//! Instances of a service: clients of this library in this process, on a controller and aggregators
//! in separate processes. Without HTTP every request is decided and recorded when it is due.

use std::any::Any;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Instant;

use plimsoll_client::{Limiter, Request, Verdict};
use plimsoll_core::names::{own_name, plan_of};
use plimsoll_testing::fleet::{BUCKET, Fleet, TENANTS, metric, policy};
use plimsoll_testing::process::{Process, http_get, until};
use tokio::runtime::Runtime;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::record::{Decision, Record};
use super::traffic::Arrival;
use crate::shutdown;

/// Names that an instance tells apart: more than any load here has.
const KEYS_MAX: usize = 40_000;

/// The addresses of an aggregator.
pub(super) struct Ports {
    listen: SocketAddr,
    admin: SocketAddr,
}

pub(super) fn ports(aggregator: &Process) -> Ports {
    Ports {
        listen: aggregator.address("listen"),
        admin: aggregator.address("admin"),
    }
}

pub(super) struct Instances {
    limiters: Vec<Limiter>,
    _stops_the_feeds: DropGuard,
    _runtime: Runtime,
    _fleet: Box<dyn Any>,
}

impl Instances {
    /// Starts `count` instances, half of them in each zone, and waits until they are connected.
    pub(super) fn start(count: usize, limit: u32) -> Self {
        let policy = policy(limit, "enforce", false);
        Self::below(Fleet::without_services(&policy, TENANTS), count)
    }

    /// Starts `count` instances on this fleet, evenly over its zones, and waits until they are connected.
    pub(super) fn below(fleet: Fleet, count: usize) -> Self {
        let zones = fleet.zones.iter();
        let zones: Vec<_> = zones
            .map(|zone| (zone.name, ports(&zone.aggregator)))
            .collect();
        Self::at(&zones, count, Box::new(fleet))
    }

    /// Starts `count` instances evenly over these zones with their aggregators, and waits until they are connected.
    pub(super) fn at(zones: &[(&str, Ports)], count: usize, fleet: Box<dyn Any>) -> Self {
        let runtime = shutdown::runtime().unwrap();
        let stop = CancellationToken::new();
        let start = |number: usize| {
            let (zone, ports) = &zones[number % zones.len()];
            let aggregator = format!("http://{}", ports.listen);
            let builder = Limiter::builder("measured").name(&format!("instance-{number}"));
            let builder = builder
                .zone(zone)
                .aggregator(&aggregator)
                .keys_max(KEYS_MAX);
            let (limiter, feed) = builder.build_detached().unwrap();
            runtime.spawn(feed.run(stop.clone()));
            limiter.bucket(BUCKET).unwrap();
            limiter
        };
        let limiters = (0..count).map(start).collect();
        until("all instances to be connected", || {
            let connected = |(_, ports): &(&str, Ports)| {
                metric(
                    &http_get(ports.admin, "/metrics").1,
                    "plimsoll_children",
                    "",
                )
            };
            (zones.iter().map(connected).sum::<f64>() == count as f64).then_some(())
        });
        Self {
            limiters,
            _stops_the_feeds: stop.drop_guard(),
            _runtime: runtime,
            _fleet: fleet,
        }
    }

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
            let mut request = Request::new(BUCKET, own_name(arrival.tenant));
            if let Some(plan) = plan_of(arrival.tenant) {
                request = request.plan(plan);
            }
            let refused = match self.limiters[arrival.instance].check(&request) {
                Verdict::Admit => None,
                Verdict::Refuse(refusal) => Some(refusal.reason().as_str()),
            };
            Decision {
                at: now,
                late: now - arrival.due,
                tenant: arrival.tenant,
                refused,
            }
        };
        Record(arrivals.iter().map(decide).collect())
    }
}
