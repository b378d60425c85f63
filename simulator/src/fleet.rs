//! The processes of the fleet: how each tier's state machine is made and let live. Nothing else here knows what a
//! tier needs to begin.

use std::time::Duration;

use plimsoll_aggregator::zone::{Bounds, Zone};
use plimsoll_client::{KeyHandle, Limiter, Shard, Subscription};
use plimsoll_controller::brain::Brain;
use plimsoll_controller::durable::Durable;
use plimsoll_core::bucket::{InvalidName, Name, Zone as ZoneName};
use plimsoll_core::report::{Identity, InstanceId, Role};
use rand::rngs::SmallRng;
use rand::{Rng, RngExt};

use crate::clock::{ProcessClock, SimTime};
use crate::draws::{Purpose, derive, span};
use crate::scenario::Scenario;
use crate::series::Answer;

/// How often an aggregator's fast loop runs.
pub(crate) const ZONE_TICK: Duration = Duration::from_millis(100);
/// How far the clocks of processes may lie apart: about a day.
const CLOCKS_APART_US: u64 = 100_000_000_000;
/// Where calendar time stands when a run begins: boosts end by it.
const UNIX_START_S: i64 = 1_800_000_000;

/// Makes processes.
#[derive(Debug)]
pub(crate) struct Fleet<'a> {
    scenario: &'a Scenario,
    seed: u64,
    keys_max: usize,
}

/// A running controller.
#[derive(Debug)]
pub(crate) struct Controller {
    pub(crate) brain: Brain,
    pub(crate) clock: ProcessClock,
}

/// A running aggregator.
#[derive(Debug)]
pub(crate) struct Aggregator {
    pub(crate) zone: Zone,
    pub(crate) clock: ProcessClock,
}

/// A running client: a service's limiter and what keeps it up to date.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) subscription: Subscription,
    pub(crate) clock: ProcessClock,
    shard: Shard,
    /// The key of each entry of `traffic`; where refusals are not all carried out, what would have been so far.
    keys: Vec<(KeyHandle, Option<u64>)>,
}

impl<'a> Fleet<'a> {
    pub(crate) fn new(scenario: &'a Scenario, seed: u64) -> Self {
        let asked: usize = scenario.buckets.iter().map(|bucket| bucket.tenants.len() + 1).sum();
        // Listed tenants have directives of their own, asked for or not.
        let listed = scenario.policy.tenants().count() * scenario.buckets.len();
        let keys_max = asked + listed + 8;
        Self { scenario, seed, keys_max }
    }

    fn clock(now: SimTime, draws: &mut SmallRng) -> ProcessClock {
        ProcessClock::new(now, span(draws, CLOCKS_APART_US))
    }

    fn identity(
        &self,
        zone: u32,
        name: &str,
        role: Role,
        draws: &mut SmallRng,
    ) -> Result<Identity, InvalidName> {
        Ok(Identity {
            instance: InstanceId(draws.random()),
            name: Name::new(name)?,
            service: self.scenario.service.clone(),
            zone: ZoneName::new(&format!("zone-{zone}"))?,
            role,
        })
    }

    /// A controller that remembers what is durable and nothing else.
    pub(crate) fn controller(&self, now: SimTime, durable: Durable, draws: &mut SmallRng) -> Controller {
        let clock = Self::clock(now, draws);
        let policy = std::sync::Arc::clone(&self.scenario.policy);
        let mut brain = Brain::new(
            clock.read(now),
            InstanceId(draws.random()),
            durable,
            policy,
            self.scenario.parameters(),
        );
        save(&mut brain);
        Controller { brain, clock }
    }

    /// An aggregator that has heard nobody yet. Its name outlives its processes.
    pub(crate) fn aggregator(
        &self,
        now: SimTime,
        zone: u32,
        draws: &mut SmallRng,
    ) -> Result<Aggregator, InvalidName> {
        let identity = self.identity(zone, &format!("aggregator-{zone}"), Role::Aggregator, draws)?;
        let bounds = Bounds { children_max: self.scenario.clients() + 1_000, ..Bounds::default() };
        Ok(Aggregator {
            zone: Zone::new(identity, bounds, self.scenario.parameters()),
            clock: Self::clock(now, draws),
        })
    }

    /// A client that holds nothing yet.
    pub(crate) fn client(
        &self,
        now: SimTime,
        (client, life, zone): (u32, u32, u32),
        draws: &mut SmallRng,
    ) -> Result<Client, plimsoll_client::BucketError> {
        let name = format!("client-{client}");
        let identity = self.identity(zone, &name, Role::Client, draws);
        let identity =
            identity.map_err(|source| plimsoll_client::BucketError::Name { name: name.clone(), source })?;
        let (limiter, subscription) = Limiter::detached(identity, self.keys_max, 0, draws.next_u64());
        let key = |traffic: &crate::scenario::Traffic| {
            let bucket = &self.scenario.buckets[traffic.bucket];
            let tenant = &bucket.tenants[traffic.tenant];
            let key = limiter.bucket(bucket.name.as_str())?.key(tenant.as_str());
            Ok((key, bucket.observes.then_some(0)))
        };
        let keys = self.scenario.traffic.iter().map(key).collect::<Result<_, _>>()?;
        let coins =
            derive(derive(self.seed, Purpose::Coins as u64), u64::from(client) << 32 | u64::from(life));
        let shard = limiter.shard(coins);
        Ok(Client { subscription, clock: Self::clock(now, draws), shard, keys })
    }
}

/// Whatever must be written down is written at once: the disk is no part of the simulation.
fn save(brain: &mut Brain) {
    if let Some((number, _)) = brain.unsaved() {
        brain.on_saved(number);
    }
}

impl Controller {
    /// The law is applied.
    pub(crate) fn tick(&mut self, now: SimTime) {
        let unix_s = UNIX_START_S + i64::try_from(now.0 / 1_000_000).unwrap_or(i64::MAX);
        self.brain.on_tick(self.clock.read(now), unix_s);
        save(&mut self.brain);
    }

    /// Something was reported that may have to be written down.
    pub(crate) fn saved(&mut self) {
        save(&mut self.brain);
    }
}

impl Aggregator {
    /// The fast loop runs. True when clients have something new to hear.
    pub(crate) fn tick(&mut self, now: SimTime) -> bool {
        self.zone.on_tick(self.clock.read(now))
    }
}

impl Client {
    /// Ten milliseconds have passed.
    pub(crate) fn tick(&mut self, now: SimTime) {
        self.subscription.on_tick(self.clock.read(now));
    }

    /// A request of this entry of `traffic` comes.
    #[inline]
    pub(crate) fn decide(&mut self, source: usize) -> Answer {
        let Some((key, would)) = self.keys.get_mut(source) else { return Answer::Admitted };
        if !self.shard.admit(key).is_admit() {
            return Answer::Refused;
        }
        let Some(before) = would else { return Answer::Admitted };
        let now = key.counts().would_dropped;
        let dropped = now > *before;
        *before = now;
        if dropped { Answer::WouldDropped } else { Answer::Admitted }
    }
}
