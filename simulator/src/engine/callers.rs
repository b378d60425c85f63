//! The callers of the clients: they send the scripted requests of each step and retry after refusals.

use std::collections::BTreeMap;

use rand::RngExt;
use rand::rngs::SmallRng;

use super::System;
use crate::results::{Answer, BIN_S, Series, TraceHash};
use crate::rng::{Purpose, generator};
use crate::scenario::{Scenario, Traffic};
use crate::traffic::{Arrivals, Groups, ParetoSource, PendingRetries, Per, Phase, parts};

/// The callers of all clients, and the counts of their requests.
pub(crate) struct Callers<'a> {
    scenario: &'a Scenario,
    /// By client: when it joins, in seconds, and its zone.
    members: Vec<(f64, u32)>,
    arrivals_rng: SmallRng,
    retries_rng: SmallRng,
    sources_rng: SmallRng,
    /// Pareto sources by entry of `traffic` and client; a single one where all clients are on together.
    sources: Vec<Vec<ParetoSource>>,
    /// The groups of arrivals by entry of `traffic`, with their phases by client.
    groups: Vec<Option<(Groups, Vec<Phase>)>>,
    /// The requests of clients whose callers are stalled, as entries of `traffic`.
    owed: BTreeMap<u32, Vec<u32>>,
    retries: PendingRetries,
    /// The counts by bucket, in the scenario's order.
    pub(super) series: Vec<Series>,
    /// Scratch: the entries of `traffic` of one client's requests in one step.
    queue: Vec<u32>,
}

/// One entry of `traffic` in one step: the arrivals at a client that the entry's share names first, and at
/// any other.
struct Offer<'a> {
    traffic: &'a Traffic,
    first: u32,
    means: [f64; 2],
    arrivals: [Arrivals; 2],
}

impl<'a> Callers<'a> {
    pub(crate) fn new(scenario: &'a Scenario, seed: u64, steps: usize) -> Self {
        let members = scenario.members();
        let mut sources_rng = generator(seed, Purpose::Sources);
        let mut sources_of = |traffic: &Traffic| match traffic.load.pareto() {
            Some(pareto) if pareto.per == Per::Tenant => vec![pareto.source(0.0, &mut sources_rng)],
            Some(pareto) => members.iter().map(|(at, _)| pareto.source(*at, &mut sources_rng)).collect(),
            None => Vec::new(),
        };
        let sources = scenario.traffic.iter().map(&mut sources_of).collect();
        let mut phases = || members.iter().map(|_| Phase::draw(&mut sources_rng)).collect();
        let groups =
            scenario.traffic.iter().map(|traffic| traffic.groups.map(|groups| (groups, phases()))).collect();
        let series =
            scenario.buckets.iter().map(|bucket| Series::new(steps, bucket.tenants.len(), bucket.limit));
        Self {
            scenario,
            members,
            arrivals_rng: generator(seed, Purpose::Traffic),
            retries_rng: generator(seed, Purpose::Retries),
            sources_rng,
            sources,
            groups,
            owed: BTreeMap::new(),
            retries: PendingRetries::default(),
            series: series.collect(),
            queue: Vec::new(),
        }
    }

    /// Sends the requests of one step and counts the answers.
    pub(crate) fn step(&mut self, step: usize, system: &mut impl System, trace: &mut TraceHash) {
        let begins = step as f64 * BIN_S;
        let middle = begins + BIN_S / 2.0;
        let joined = self.members.partition_point(|(at, _)| *at <= middle) as u32;
        let offers: Vec<Offer<'_>> = self
            .scenario
            .traffic
            .iter()
            .zip(&mut self.sources)
            .map(|(traffic, sources)| {
                let parts = parts(&traffic.shares, middle, joined);
                let mut mean = traffic.load.rate(middle) * BIN_S;
                let together = traffic.load.pareto().filter(|pareto| pareto.per == Per::Tenant);
                if let (Some(pareto), Some(source)) = (together, sources.first_mut()) {
                    mean *= source.rate(&pareto, begins, BIN_S, &mut self.sources_rng);
                }
                let means = [mean * parts.each_of_first, mean * parts.each_of_others];
                Offer { traffic, first: parts.first, means, arrivals: means.map(Arrivals::of) }
            })
            .collect();
        let mut due = self.retries.due(step).into_iter().peekable();
        for client in 0..joined {
            self.queue.clear();
            while let Some((_, entry)) = due.next_if(|(retrying, _)| *retrying == client) {
                self.queue.push(entry);
            }
            if self.is_away(client, begins) {
                continue;
            }
            self.arrive(client, &offers, begins);
            if self.is_stalled(client, begins) {
                self.owed.entry(client).or_default().append(&mut self.queue);
                continue;
            }
            if let Some(owed) = self.owed.remove(&client) {
                self.queue.splice(..0, owed);
            }
            for at in 0..self.queue.len() {
                let entry = self.queue[at];
                let traffic = offers[entry as usize].traffic;
                let answer = system.decide(client, entry as usize);
                self.series[traffic.bucket].count(step, traffic.tenant, answer);
                if let (Answer::Refused, Some(retry)) = (answer, &traffic.retry) {
                    self.retries.plan(retry, step, client, entry, &mut self.retries_rng);
                }
            }
        }
        for series in &self.series {
            for bins in [&series.all.offered, &series.all.admitted, &series.all.would] {
                trace.write(u64::from(bins[step]));
            }
        }
    }

    fn is_stalled(&self, client: u32, t: f64) -> bool {
        self.scenario.faults.iter().any(|fault| fault.stalls(client, t))
    }

    fn is_away(&self, client: u32, t: f64) -> bool {
        let zone = self.members[client as usize].1;
        self.scenario.faults.iter().any(|fault| fault.takes_load(client, zone, t))
    }

    /// Adds this step's requests of a client to the queue, in random order.
    fn arrive(&mut self, client: u32, offers: &[Offer<'_>], begins: f64) {
        for (entry, offer) in offers.iter().enumerate() {
            let kind = usize::from(client >= offer.first);
            let mut mean = offer.means[kind];
            let own = offer.traffic.load.pareto().filter(|pareto| pareto.per == Per::Client);
            if let Some(pareto) = own {
                let source = &mut self.sources[entry][client as usize];
                mean *= source.rate(&pareto, begins, BIN_S, &mut self.sources_rng);
            }
            let rng = &mut self.arrivals_rng;
            let count = match &mut self.groups[entry] {
                Some((groups, phases)) => groups.arrivals(mean, &mut phases[client as usize], rng),
                None if own.is_some() => Arrivals::of(mean).draw(rng),
                None => offer.arrivals[kind].draw(rng),
            };
            self.queue.extend(std::iter::repeat_n(entry as u32, count as usize));
        }
        if offers.len() > 1 {
            // Shuffled (Fisher and Yates), so that no entry of `traffic` takes precedence.
            for last in (1..self.queue.len()).rev() {
                let other = self.arrivals_rng.random_range(0..=last);
                self.queue.swap(last, other);
            }
        }
    }
}
