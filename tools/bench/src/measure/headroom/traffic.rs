//! Requests at random moments, drawn before they are made, so that making them costs the machine
//! little.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// With its plan, as in `acme%~free`.
    pub(super) tenant: &'static str,
    pub(super) rps: f64,
    /// Requests at the same moment at the same instance.
    pub(super) group: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) due: Duration,
    pub(super) tenant: &'static str,
    pub(super) instance: usize,
}

/// Draws the requests of phases, one after the other, each with its length and its flows. A group
/// is sent to a random one of `instances`.
pub(super) fn arrivals(phases: &[(Duration, Vec<Flow>)], instances: usize) -> Vec<Arrival> {
    let mut rng = SmallRng::seed_from_u64(1);
    let mut arrivals = Vec::new();
    let mut begin = 0.0;
    for (lasts, flows) in phases {
        let end = begin + lasts.as_secs_f64();
        for flow in flows {
            let mean = flow.group as f64 / flow.rps;
            let mut at = begin + mean * exponential(&mut rng);
            while at < end {
                let (due, instance) = (Duration::from_secs_f64(at), rng.random_range(0..instances));
                arrivals.extend(std::iter::repeat_n(
                    Arrival {
                        due,
                        tenant: flow.tenant,
                        instance,
                    },
                    flow.group,
                ));
                at += mean * exponential(&mut rng);
            }
        }
        begin = end;
    }
    arrivals.sort_by_key(|arrival| arrival.due);
    arrivals
}

/// Draws from the exponential distribution of mean 1: the gap between independent arrivals.
fn exponential(rng: &mut SmallRng) -> f64 {
    -(1.0 - rng.random::<f64>()).ln()
}
