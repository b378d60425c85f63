//! Reference laws that are known to fail: each is the simplest implementation of a textbook rule. They run in
//! the same engine and are measured by the same figures as the real code, which proves that the expectations
//! can fail.

use rand::rngs::SmallRng;

use super::clock::SimTime;
use super::{Request, System};
use crate::results::{Answer, TraceHash};
use crate::rng::{Purpose, generator, span, unit};
use crate::scenario::{Reference, Scenario};

/// The period in which zones count and the controller decides, in microseconds.
const PERIOD_US: u64 = 500_000;
/// The least samples that a percentile needs. With fewer the textbook takes the limit for 0.
const SAMPLES_MIN: usize = 3;

/// A fleet under a reference law. Zones count; every client of a zone applies the zone's ratios at once, with
/// an independent coin.
#[derive(Debug)]
pub(crate) struct ReferenceFleet<'a> {
    scenario: &'a Scenario,
    law: Reference,
    coins: SmallRng,
    zone_of: Vec<u32>,
    zones: Vec<ReferenceZone>,
    next_decision: u64,
    /// The offered rate by bucket and period.
    history: Vec<Vec<f64>>,
}

/// One zone; its columns are by entry of `traffic`.
#[derive(Debug)]
struct ReferenceZone {
    /// The end of the present period, in microseconds.
    next: u64,
    /// Requests counted in the present period.
    offered: Vec<u64>,
    /// The rates of the last period, as reported to the controller.
    rates: Vec<f64>,
    /// The drop ratios in force.
    ratios: Vec<f64>,
}

impl<'a> ReferenceFleet<'a> {
    pub(crate) fn new(scenario: &'a Scenario, seed: u64, law: Reference) -> Self {
        let zone_of = scenario.members().into_iter().map(|(_, zone)| zone).collect();
        let mut processes = generator(seed, Purpose::Processes);
        let entries = scenario.traffic.len();
        let zones = (0..scenario.zones).map(|_| ReferenceZone {
            next: span(&mut processes, PERIOD_US),
            offered: vec![0; entries],
            rates: vec![0.0; entries],
            ratios: vec![0.0; entries],
        });
        let zones = zones.collect();
        let next_decision = span(&mut processes, PERIOD_US);
        let coins = generator(seed, Purpose::Coins);
        let history = vec![Vec::new(); scenario.buckets.len()];
        Self { scenario, law, coins, zone_of, zones, next_decision, history }
    }

    /// Ends a zone's period: the zone reports, or under [`Reference::Local`] decides by itself.
    fn end_period(&mut self, zone: usize) {
        let zone = &mut self.zones[zone];
        zone.next += PERIOD_US;
        let counts = std::mem::replace(&mut zone.offered, vec![0; self.scenario.traffic.len()]);
        zone.rates = counts.iter().map(|count| *count as f64 * 1e6 / PERIOD_US as f64).collect();
        if self.law != Reference::Local {
            return;
        }
        for (bucket, protected) in self.scenario.buckets.iter().enumerate() {
            let of_bucket = || self.scenario.traffic.iter().enumerate().filter(|(_, t)| t.bucket == bucket);
            let counted: u64 = of_bucket().map(|(entry, _)| counts[entry]).sum();
            // The trap: compares one zone's count of half a second with the fleet's limit for a second.
            let ratio = protected.limit.map_or(0.0, |limit| excess(counted as f64, limit));
            of_bucket().for_each(|(entry, _)| zone.ratios[entry] = ratio);
        }
    }

    /// Ends the controller's period: the controller sets the ratios of all zones.
    fn decide_all(&mut self) {
        self.next_decision += PERIOD_US;
        if self.law == Reference::Local {
            return;
        }
        for (bucket, protected) in self.scenario.buckets.iter().enumerate() {
            let of_bucket = || self.scenario.traffic.iter().enumerate().filter(|(_, t)| t.bucket == bucket);
            let offered: f64 = of_bucket()
                .map(|(entry, _)| self.zones.iter().map(|zone| zone.rates[entry]).sum::<f64>())
                .sum();
            if offered > 0.0 {
                self.history[bucket].push(offered);
            }
            let limit = match self.law {
                Reference::TextbookP95 => Some(p95_or_zero(&self.history[bucket])),
                _ => protected.limit,
            };
            let ratio = limit.map_or(0.0, |limit| excess(offered, limit));
            for (entry, traffic) in of_bucket() {
                let tenant = &protected.tenants[traffic.tenant];
                let ratio = match self.law {
                    Reference::TextbookWeights => {
                        (ratio / self.scenario.policy.tenant(tenant).weight.get()).min(1.0)
                    }
                    _ => ratio,
                };
                self.zones.iter_mut().for_each(|zone| zone.ratios[entry] = ratio);
            }
        }
    }
}

fn excess(offered: f64, limit: f64) -> f64 {
    if offered > limit { (offered - limit) / offered } else { 0.0 }
}

/// The 95th percentile by nearest rank. The trap: it is 0 while there are too few samples.
fn p95_or_zero(samples: &[f64]) -> f64 {
    if samples.len() < SAMPLES_MIN {
        return 0.0;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len() * 95).div_ceil(100) - 1).copied().unwrap_or_default()
}

impl System for ReferenceFleet<'_> {
    fn advance(&mut self, now: SimTime, _trace: &mut TraceHash) {
        for zone in 0..self.zones.len() {
            while self.zones[zone].next <= now.0 {
                self.end_period(zone);
            }
        }
        while self.next_decision <= now.0 {
            self.decide_all();
        }
    }

    fn underadmitting(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn decide(&mut self, client: u32, request: Request) -> Answer {
        let entry = request.entry as usize;
        let zone = &mut self.zones[self.zone_of[client as usize] as usize];
        zone.offered[entry] += u64::from(self.scenario.traffic[entry].cost);
        if unit(&mut self.coins) >= zone.ratios[entry] {
            return Answer::Admitted;
        }
        let bucket = &self.scenario.buckets[self.scenario.traffic[entry].bucket];
        if bucket.observes { Answer::WouldDropped } else { Answer::Refused }
    }

    fn rejections(self) -> Vec<String> {
        Vec::new()
    }
}
