//! The callers of the clients: they send the scripted requests of each step and retry after
//! refusals.

use std::collections::BTreeMap;

use rand::RngExt;
use rand::rngs::SmallRng;

use super::Request;
use super::world::World;
use crate::results::{Answer, BIN_S, Series, TraceHash};
use crate::rng::{Purpose, generator};
use crate::scenario::{Scenario, Traffic};
use crate::traffic::{Arrivals, Groups, NameSource, ParetoSource, Per, Phase, Planned, parts};

pub(crate) struct Callers<'a> {
    scenario: &'a Scenario,
    /// By client: its join time in seconds, and its zone.
    members: Vec<(f64, u32)>,
    arrivals_rng: SmallRng,
    retries_rng: SmallRng,
    sources_rng: SmallRng,
    names_rng: SmallRng,
    /// Pareto sources by entry of `traffic` and client; a single one if all clients are on
    /// together.
    sources: Vec<Vec<ParetoSource>>,
    /// Groups of arrivals by entry of `traffic`, with their phases by client.
    groups: Vec<Option<(Groups, Vec<Phase>)>>,
    names: Vec<Option<NameSource>>,
    /// By client: the requests of callers that wait for the end of a stall.
    owed: BTreeMap<u32, Vec<Request>>,
    retries: Planned<(u32, Request)>,
    /// Requests in flight by client and entry of `traffic`, if their number is limited, and their
    /// ends.
    in_flight: BTreeMap<(u32, u32), u32>,
    answers: Planned<(u32, u32)>,
    pub(super) series: Vec<Series>,
    /// Scratch: one client's requests in one step.
    queue: Vec<Request>,
}

/// One entry of `traffic` in one step. Pairs are of a client whose number is below `first`, and of any
/// other.
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
            Some(pareto) => members
                .iter()
                .map(|(at, _)| pareto.source(*at, &mut sources_rng))
                .collect(),
            None => Vec::new(),
        };
        let sources = scenario.traffic.iter().map(&mut sources_of).collect();
        let mut phases = || {
            members
                .iter()
                .map(|_| Phase::draw(&mut sources_rng))
                .collect()
        };
        let groups = scenario
            .traffic
            .iter()
            .map(|traffic| traffic.groups.map(|groups| (groups, phases())))
            .collect();
        let names = |traffic: &Traffic| traffic.names.map(|names| names.source(members.len()));
        Self {
            scenario,
            arrivals_rng: generator(seed, Purpose::Traffic),
            retries_rng: generator(seed, Purpose::Retries),
            names_rng: generator(seed, Purpose::Names),
            sources_rng,
            sources,
            groups,
            names: scenario.traffic.iter().map(names).collect(),
            members,
            owed: BTreeMap::new(),
            retries: Planned::default(),
            in_flight: BTreeMap::new(),
            answers: Planned::default(),
            series: scenario
                .buckets
                .iter()
                .map(|bucket| Series::new(steps, bucket))
                .collect(),
            queue: Vec::new(),
        }
    }

    pub(crate) fn step(&mut self, step: usize, world: &mut World<'_>, trace: &mut TraceHash) {
        let begins = step as f64 * BIN_S;
        let middle = begins + BIN_S / 2.0;
        let joined = self.members.partition_point(|(at, _)| *at <= middle) as u32;
        let offers: Vec<Offer<'_>> = self
            .scenario
            .traffic
            .iter()
            .zip(&mut self.sources)
            .map(|(traffic, sources)| {
                let senders = self.members[..joined as usize]
                    .iter()
                    .filter(|(_, zone)| traffic.is_sent_from(*zone));
                let mut parts = parts(&traffic.shares, middle, joined);
                if !traffic.zones.is_empty() {
                    parts.each_of_others = 1.0 / senders.count().max(1) as f64;
                }
                let mut mean = traffic.load.rate(middle) * BIN_S;
                let together = traffic
                    .load
                    .pareto()
                    .filter(|pareto| pareto.per == Per::Tenant);
                if let (Some(pareto), Some(source)) = (together, sources.first_mut()) {
                    mean *= source.rate(&pareto, begins, BIN_S, &mut self.sources_rng);
                }
                let means = [mean * parts.each_of_first, mean * parts.each_of_others];
                Offer {
                    traffic,
                    first: parts.first,
                    means,
                    arrivals: means.map(Arrivals::of),
                }
            })
            .collect();
        for (client, entry) in self.answers.due(step) {
            self.answered(client, entry);
        }
        for (bucket, limit) in self.scenario.limits_from(step) {
            self.series[bucket].change_limit(step, limit);
        }
        let mut due = self.retries.due(step).into_iter().peekable();
        for client in 0..joined {
            self.queue.clear();
            while let Some((_, request)) = due.next_if(|(retrying, _)| *retrying == client) {
                self.queue.push(request);
            }
            if self.is_away(client, begins) {
                for at in 0..self.queue.len() {
                    self.answered(client, self.queue[at].entry);
                }
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
                let request = self.queue[at];
                let traffic = offers[request.entry as usize].traffic;
                let answer = world.decide(client, request);
                self.series[traffic.bucket].count(
                    step,
                    traffic.tenant,
                    request.name,
                    answer,
                    traffic.cost,
                );
                self.end(step, client, request, traffic, answer);
            }
        }
        for series in &self.series {
            for bins in [&series.all.offered, &series.all.admitted, &series.all.would] {
                trace.write(u64::from(bins[step]));
            }
        }
    }

    /// Plans the next step after an answer: a retry, or the end of the request.
    fn end(
        &mut self,
        step: usize,
        client: u32,
        request: Request,
        traffic: &Traffic,
        answer: Answer,
    ) {
        let retry = traffic.retry.as_ref().filter(|_| answer == Answer::Refused);
        if let Some(wait) =
            retry.and_then(|retry| retry.wait(request.attempt, &mut self.retries_rng))
        {
            let again = Request {
                attempt: request.attempt + 1,
                ..request
            };
            self.retries.plan(step + wait, (client, again));
        } else if let Some(callers) = traffic.callers {
            match answer {
                Answer::Refused => self.answered(client, request.entry),
                _ => self
                    .answers
                    .plan(step + callers.steps(), (client, request.entry)),
            }
        }
    }

    fn answered(&mut self, client: u32, entry: u32) {
        if let Some(in_flight) = self.in_flight.get_mut(&(client, entry)) {
            *in_flight -= 1;
        }
    }

    fn is_stalled(&self, client: u32, t: f64) -> bool {
        self.scenario
            .faults
            .iter()
            .any(|fault| fault.stalls(client, t))
    }

    fn is_away(&self, client: u32, t: f64) -> bool {
        let zone = self.members[client as usize].1;
        self.scenario
            .faults
            .iter()
            .any(|fault| fault.takes_load(client, zone, t))
    }

    /// Draws the requests of a client in one step into `queue`.
    fn arrive(&mut self, client: u32, offers: &[Offer<'_>], begins: f64) {
        let zone = self.members[client as usize].1;
        for (entry, offer) in offers
            .iter()
            .enumerate()
            .filter(|(_, offer)| offer.traffic.is_sent_from(zone))
        {
            let kind = usize::from(client >= offer.first);
            let mut mean = offer.means[kind];
            let own = offer
                .traffic
                .load
                .pareto()
                .filter(|pareto| pareto.per == Per::Client);
            if let Some(pareto) = own {
                let source = &mut self.sources[entry][client as usize];
                mean *= source.rate(&pareto, begins, BIN_S, &mut self.sources_rng);
            }
            let rng = &mut self.arrivals_rng;
            let mut count = match &mut self.groups[entry] {
                Some((groups, phases)) => groups.arrivals(mean, &mut phases[client as usize], rng),
                None if own.is_some() => Arrivals::of(mean).draw(rng),
                None => offer.arrivals[kind].draw(rng),
            };
            let entry = entry as u32;
            if let Some(callers) = offer.traffic.callers {
                let in_flight = self.in_flight.entry((client, entry)).or_default();
                count = count.min(callers.in_flight - *in_flight);
                *in_flight += count;
            }
            let (names, rng) = (&mut self.names[entry as usize], &mut self.names_rng);
            self.queue.extend((0..count).map(|_| {
                let name = names.as_mut().map(|names| names.draw(client, rng));
                Request {
                    entry,
                    attempt: 1,
                    name,
                }
            }));
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
