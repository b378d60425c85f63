//! The loop: ten milliseconds at a time, first what happens between the processes, then the requests that come.

use rand::RngExt;
use rand::rngs::SmallRng;

use crate::arrivals::Arrivals;
use crate::clock::SimTime;
use crate::draws::{Purpose, generator};
use crate::load::Source;
use crate::reference::Stand;
use crate::retry::Returns;
use crate::scenario::{Scenario, Traffic};
use crate::series::{Answer, BIN_S, Run, Series};
use crate::shares::parts;
use crate::trace::TraceHash;
use crate::world::World;

/// A step in microseconds.
const STEP_US: u64 = 10_000;
/// How many steps the tiers have to find each other before a scenario begins, unless it starts them itself.
const SETTLING_STEPS: u64 = 300;

/// What decides requests: the real fleet, or a reference law.
pub(crate) trait System {
    /// Everything up to `now` happens.
    fn advance(&mut self, now: SimTime, trace: &mut TraceHash);

    /// A request of the entry `source` of `traffic` comes to `client`.
    fn decide(&mut self, client: u32, source: usize) -> Answer;

    /// What should not have happened.
    fn refusals(self) -> Vec<String>;
}

/// Runs a scenario once. The same scenario and seed give the same run, to the last message.
#[must_use]
pub fn run(scenario: &Scenario, seed: u64) -> Run {
    run_watched(scenario, seed, &|_| {})
}

/// As [`run`], and tells the watcher of every virtual second that has passed.
#[must_use]
pub fn run_watched(scenario: &Scenario, seed: u64, watcher: &dyn Fn(u64)) -> Run {
    let zero = SimTime(if scenario.start.is_some() { 0 } else { SETTLING_STEPS * STEP_US });
    match scenario.reference {
        Some(law) => go(scenario, seed, zero, Stand::new(scenario, seed, law), watcher),
        None => go(scenario, seed, zero, World::new(scenario, seed, zero), watcher),
    }
}

fn go(scenario: &Scenario, seed: u64, zero: SimTime, mut system: impl System, watcher: &dyn Fn(u64)) -> Run {
    let mut trace = TraceHash::default();
    for now in (0..zero.0).step_by(STEP_US as usize) {
        system.advance(SimTime(now), &mut trace);
    }
    let steps = (scenario.duration_s / BIN_S).round() as usize;
    let mut crowd = Crowd::new(scenario, seed, steps);
    for step in 0..steps {
        system.advance(zero.plus(step as u64 * STEP_US), &mut trace);
        crowd.step(step, &mut system, &mut trace);
        if step % 100 == 99 {
            watcher(1);
        }
    }
    Run { seed, trace, refusals: system.refusals(), buckets: crowd.series }
}

/// Everybody who sends requests.
struct Crowd<'a> {
    scenario: &'a Scenario,
    /// When each client joins, and its zone.
    members: Vec<(f64, u32)>,
    traffic: SmallRng,
    retries: SmallRng,
    sources_draws: SmallRng,
    /// Pareto sources by entry of `traffic` and client.
    sources: Vec<Vec<Source>>,
    returns: Option<Returns>,
    series: Vec<Series>,
    queue: Vec<u32>,
}

/// One entry of `traffic` in one step: how many requests come to a client of either kind.
struct Offer<'a> {
    traffic: &'a Traffic,
    first: u32,
    means: [f64; 2],
    arrivals: [Arrivals; 2],
}

impl<'a> Crowd<'a> {
    fn new(scenario: &'a Scenario, seed: u64, steps: usize) -> Self {
        let members = scenario.members();
        let mut sources_draws = generator(seed, Purpose::Sources);
        let mut sources_of = |traffic: &Traffic| match traffic.load.pareto() {
            Some(pareto) => members.iter().map(|(at, _)| pareto.source(*at, &mut sources_draws)).collect(),
            None => Vec::new(),
        };
        let sources = scenario.traffic.iter().map(&mut sources_of).collect();
        let retrying = scenario.traffic.iter().any(|traffic| traffic.retry.is_some());
        let series = scenario.buckets.iter().map(|bucket| Series::new(steps, bucket.tenants.len()));
        Self {
            scenario,
            members,
            traffic: generator(seed, Purpose::Traffic),
            retries: generator(seed, Purpose::Retries),
            sources_draws,
            sources,
            returns: retrying.then(|| Returns::new(steps, BIN_S)),
            series: series.collect(),
            queue: Vec::new(),
        }
    }

    fn step(&mut self, step: usize, system: &mut impl System, trace: &mut TraceHash) {
        let begins = step as f64 * BIN_S;
        let middle = begins + BIN_S / 2.0;
        let joined = self.members.partition_point(|(at, _)| *at <= middle) as u32;
        let offers: Vec<Offer<'_>> = self
            .scenario
            .traffic
            .iter()
            .map(|traffic| {
                let parts = parts(&traffic.shares, middle, joined);
                let mean = traffic.load.rate(middle) * BIN_S;
                let means = [mean * parts.each_of_first, mean * parts.each_of_others];
                Offer { traffic, first: parts.first, means, arrivals: means.map(Arrivals::of) }
            })
            .collect();
        let due = self.returns.as_mut().map(|returns| returns.due(step)).unwrap_or_default();
        let mut due = due.into_iter().peekable();
        for client in 0..joined {
            self.queue.clear();
            while let Some((_, source)) = due.next_if(|(returning, _)| *returning == client) {
                self.queue.push(source);
            }
            if self.is_away(client, begins) {
                continue;
            }
            self.arrive(client, &offers, begins);
            for at in 0..self.queue.len() {
                let source = self.queue[at];
                let traffic = offers[source as usize].traffic;
                let answer = system.decide(client, source as usize);
                self.series[traffic.bucket].count(step, traffic.tenant, answer);
                if let (Answer::Refused, Some(retry), Some(returns)) =
                    (answer, &traffic.retry, &mut self.returns)
                {
                    returns.refused(retry, step, client, source, &mut self.retries);
                }
            }
        }
        for series in &self.series {
            for bins in [&series.offered, &series.admitted, &series.would] {
                trace.write(u64::from(bins[step]));
            }
        }
    }

    fn is_away(&self, client: u32, t: f64) -> bool {
        let zone = self.members[client as usize].1;
        self.scenario.faults.iter().any(|fault| fault.takes_load(client, zone, t))
    }

    /// Puts this step's requests of a client into the queue, those of all entries in random order.
    fn arrive(&mut self, client: u32, offers: &[Offer<'_>], begins: f64) {
        for (source, offer) in offers.iter().enumerate() {
            let kind = usize::from(client >= offer.first);
            let count = match offer.traffic.load.pareto() {
                Some(pareto) => {
                    let of_client = &mut self.sources[source][client as usize];
                    let on = of_client.share_on(&pareto, begins, BIN_S, &mut self.sources_draws);
                    Arrivals::of(offer.means[kind] * on * pareto.boost()).draw(&mut self.traffic)
                }
                None => offer.arrivals[kind].draw(&mut self.traffic),
            };
            self.queue.extend(std::iter::repeat_n(source as u32, count as usize));
        }
        if offers.len() > 1 {
            // No entry stands before another one (Fisher and Yates).
            for last in (1..self.queue.len()).rev() {
                let other = self.traffic.random_range(0..=last);
                self.queue.swap(last, other);
            }
        }
    }
}
