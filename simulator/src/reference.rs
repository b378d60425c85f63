//! Laws that are known to fail, to be shown failing: each is the simplest reading of a text that looks right. They
//! share the engine and its figures with the real code, so that what they break proves that the checks can fail.

use rand::rngs::SmallRng;

use crate::clock::SimTime;
use crate::draws::{Purpose, generator, span, unit};
use crate::engine::System;
use crate::scenario::Scenario;
use crate::series::Answer;
use crate::spec::Reference;
use crate::trace::TraceHash;

/// How often each of them counts and decides, in microseconds.
const PERIOD_US: u64 = 500_000;
/// A percentile of fewer samples than this is nothing to go by, which the textbook takes for 0.
const SAMPLES_MIN: usize = 3;

/// A fleet under a reference law: zones that count, and ratios that every client of a zone follows at once, with an
/// independent coin.
#[derive(Debug)]
pub(crate) struct Stand<'a> {
    scenario: &'a Scenario,
    law: Reference,
    coins: SmallRng,
    zone_of: Vec<u32>,
    zones: Vec<Count>,
    next_decision: u64,
    /// What was offered to each bucket in each period so far.
    history: Vec<Vec<f64>>,
}

/// One zone: what it counts by entry of `traffic`, what it said last, and what it was told.
#[derive(Debug)]
struct Count {
    next: u64,
    offered: Vec<u64>,
    rates: Vec<f64>,
    ratios: Vec<f64>,
}

impl<'a> Stand<'a> {
    pub(crate) fn new(scenario: &'a Scenario, seed: u64, law: Reference) -> Self {
        let zone_of = scenario.members().into_iter().map(|(_, zone)| zone).collect();
        let mut processes = generator(seed, Purpose::Processes);
        let entries = scenario.traffic.len();
        let zones = (0..scenario.zones).map(|_| Count {
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

    /// A zone's period is over: it reports, or decides for itself.
    fn count(&mut self, zone: usize) {
        let zone = &mut self.zones[zone];
        zone.next += PERIOD_US;
        let counts = std::mem::replace(&mut zone.offered, vec![0; self.scenario.traffic.len()]);
        zone.rates = counts.iter().map(|count| *count as f64 * 1e6 / PERIOD_US as f64).collect();
        if self.law != Reference::Local {
            return;
        }
        for (bucket, protected) in self.scenario.buckets.iter().enumerate() {
            let of_bucket = || self.scenario.traffic.iter().enumerate().filter(|(_, t)| t.bucket == bucket);
            let counted: u64 = of_bucket().map(|(source, _)| counts[source]).sum();
            // The trap: a count of half a second, of one zone, against the whole fleet's limit for a second.
            let ratio = protected.limit.map_or(0.0, |limit| excess(counted as f64, limit));
            of_bucket().for_each(|(source, _)| zone.ratios[source] = ratio);
        }
    }

    /// The controller's period is over.
    fn decide_all(&mut self) {
        self.next_decision += PERIOD_US;
        if self.law == Reference::Local {
            return;
        }
        for (bucket, protected) in self.scenario.buckets.iter().enumerate() {
            let of_bucket = || self.scenario.traffic.iter().enumerate().filter(|(_, t)| t.bucket == bucket);
            let offered: f64 = of_bucket()
                .map(|(source, _)| self.zones.iter().map(|zone| zone.rates[source]).sum::<f64>())
                .sum();
            if offered > 0.0 {
                self.history[bucket].push(offered);
            }
            let limit = match self.law {
                Reference::TextbookP95 => Some(p95_or_nothing(&self.history[bucket])),
                _ => protected.limit,
            };
            let ratio = limit.map_or(0.0, |limit| excess(offered, limit));
            for (source, traffic) in of_bucket() {
                let tenant = &protected.tenants[traffic.tenant];
                let ratio = match self.law {
                    Reference::TextbookWeights => {
                        (ratio / self.scenario.policy.tenant(tenant).weight().get()).min(1.0)
                    }
                    _ => ratio,
                };
                self.zones.iter_mut().for_each(|zone| zone.ratios[source] = ratio);
            }
        }
    }
}

fn excess(offered: f64, limit: f64) -> f64 {
    if offered > limit { (offered - limit) / offered } else { 0.0 }
}

/// The 95th percentile by nearest rank; the trap is what it is before there is one.
fn p95_or_nothing(samples: &[f64]) -> f64 {
    if samples.len() < SAMPLES_MIN {
        return 0.0;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len() * 95).div_ceil(100) - 1).copied().unwrap_or_default()
}

impl System for Stand<'_> {
    fn advance(&mut self, now: SimTime, _trace: &mut TraceHash) {
        for zone in 0..self.zones.len() {
            while self.zones[zone].next <= now.0 {
                self.count(zone);
            }
        }
        while self.next_decision <= now.0 {
            self.decide_all();
        }
    }

    fn decide(&mut self, client: u32, source: usize) -> Answer {
        let zone = &mut self.zones[self.zone_of[client as usize] as usize];
        zone.offered[source] += 1;
        if unit(&mut self.coins) >= zone.ratios[source] {
            return Answer::Admitted;
        }
        let bucket = &self.scenario.buckets[self.scenario.traffic[source].bucket];
        if bucket.observes { Answer::WouldDropped } else { Answer::Refused }
    }

    fn refusals(self) -> Vec<String> {
        Vec::new()
    }
}
