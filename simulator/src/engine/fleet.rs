//! The processes of the fleet. This is the one place that knows how to construct and tick each tier's state
//! machine.

use std::time::Duration;

use plimsoll_aggregator::zone::{Bounds, Zone};
use plimsoll_client::{BucketHandle, KEYS_MAX_DEFAULT, KeyHandle, Limiter, Shard, Subscription};
use plimsoll_controller::brain::Brain;
use plimsoll_controller::state::DurableState;
use plimsoll_core::names::{InvalidName, Name, Zone as ZoneName};
use plimsoll_core::report::{Identity, InstanceId, Role};
use rand::rngs::SmallRng;
use rand::{Rng, RngExt};

use super::clock::{ProcessClock, SimTime};
use crate::results::Answer;
use crate::rng::{Purpose, derive, span};
use crate::scenario::{Scenario, Traffic};

/// The period of an aggregator's fast loop.
pub(crate) const ZONE_TICK: Duration = Duration::from_millis(100);
/// The largest difference between the clocks of two processes: about a day.
const CLOCKS_APART_US: u64 = 100_000_000_000;
/// The time of day at the start of a run, in seconds since 1970; boosts end by it.
const UNIX_START_S: i64 = 1_800_000_000;

/// Creates processes.
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

/// A running client: a service's limiter, and the subscription that updates it.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) subscription: Subscription,
    pub(crate) clock: ProcessClock,
    shard: Shard,
    /// The key of each entry of `traffic`, with its count of would-be drops where the bucket is not fully
    /// enforced.
    keys: Vec<(KeyHandle, Option<u64>)>,
    /// The names in place of the key's, by entry of `traffic`.
    names: Vec<Option<Names>>,
}

/// Names that requests give in turn.
#[derive(Debug)]
struct Names {
    bucket: BucketHandle,
    prefix: String,
    of: u32,
    /// The next name of this client, which takes every `step`th.
    next: u32,
    step: u32,
}

impl<'a> Fleet<'a> {
    pub(crate) fn new(scenario: &'a Scenario, seed: u64) -> Self {
        let offered: usize = scenario.buckets.iter().map(|bucket| bucket.tenants.len() + 1).sum();
        // Listed tenants have directives of their own, with or without traffic.
        let listed = scenario.policy.tenants().count() * scenario.buckets.len();
        let names = scenario.traffic.iter().filter_map(|traffic| traffic.names).sum::<u32>() as usize;
        let keys_max = (offered + listed + names + 8).min(KEYS_MAX_DEFAULT.max(offered + listed + 8));
        Self { scenario, seed, keys_max }
    }

    fn clock(now: SimTime, rng: &mut SmallRng) -> ProcessClock {
        ProcessClock::new(now, span(rng, CLOCKS_APART_US))
    }

    fn identity(
        &self,
        zone: u32,
        name: &str,
        role: Role,
        rng: &mut SmallRng,
    ) -> Result<Identity, InvalidName> {
        Ok(Identity {
            instance: InstanceId(rng.random()),
            name: Name::new(name)?,
            service: self.scenario.service.clone(),
            zone: ZoneName::new(&format!("zone-{zone}"))?,
            role,
        })
    }

    /// Creates a controller that starts from the durable state alone.
    pub(crate) fn controller(&self, now: SimTime, durable: DurableState, rng: &mut SmallRng) -> Controller {
        let clock = Self::clock(now, rng);
        let policy = std::sync::Arc::clone(&self.scenario.policy);
        let (now, instance) = (clock.read(now), InstanceId(rng.random()));
        let brain = Brain::new(now, instance, durable, policy, self.scenario.parameters());
        let mut controller = Controller { brain, clock };
        controller.save();
        controller
    }

    /// Creates an aggregator without any state. Every process of one zone has the same name.
    pub(crate) fn aggregator(
        &self,
        now: SimTime,
        zone: u32,
        rng: &mut SmallRng,
    ) -> Result<Aggregator, InvalidName> {
        let identity = self.identity(zone, &format!("aggregator-{zone}"), Role::Aggregator, rng)?;
        let bounds = Bounds { children_max: self.scenario.clients() + 1_000, ..Bounds::default() };
        Ok(Aggregator {
            zone: Zone::new(identity, bounds, self.scenario.parameters()),
            clock: Self::clock(now, rng),
        })
    }

    /// Creates a client without any directives.
    pub(crate) fn client(
        &self,
        now: SimTime,
        (client, life, zone): (u32, u32, u32),
        rng: &mut SmallRng,
    ) -> Result<Client, plimsoll_client::BucketError> {
        let name = format!("client-{client}");
        let identity = self.identity(zone, &name, Role::Client, rng);
        let identity =
            identity.map_err(|source| plimsoll_client::BucketError::Name { name: name.clone(), source })?;
        let (limiter, subscription) = Limiter::without_transport(identity, self.keys_max, 0, rng.next_u64());
        let key = |traffic: &Traffic| {
            let bucket = &self.scenario.buckets[traffic.bucket];
            let tenant = &bucket.tenants[traffic.tenant];
            let key = limiter.bucket(bucket.name.as_str())?.key(tenant.as_str());
            Ok((key, bucket.observes.then_some(0)))
        };
        let keys = self.scenario.traffic.iter().map(key).collect::<Result<_, _>>()?;
        let names = |traffic: &Traffic| {
            let Some(of) = traffic.names else { return Ok(None) };
            let bucket = &self.scenario.buckets[traffic.bucket];
            let prefix = format!("{}-", bucket.tenants[traffic.tenant]);
            let step = self.scenario.clients() as u32;
            let bucket = limiter.bucket(bucket.name.as_str())?;
            Ok(Some(Names { bucket, prefix, of, next: client % of, step }))
        };
        let names = self.scenario.traffic.iter().map(names).collect::<Result<_, _>>()?;
        let coins =
            derive(derive(self.seed, Purpose::Coins as u64), u64::from(client) << 32 | u64::from(life));
        let shard = limiter.shard(coins);
        Ok(Client { subscription, clock: Self::clock(now, rng), shard, keys, names })
    }
}

impl Controller {
    /// Applies the law and saves the durable state.
    pub(crate) fn tick(&mut self, now: SimTime) {
        let unix_s = UNIX_START_S + i64::try_from(now.0 / 1_000_000).unwrap_or(i64::MAX);
        self.brain.on_tick(self.clock.read(now), unix_s);
        self.save();
    }

    /// Saves the durable state at once: the simulation has no disk.
    pub(crate) fn save(&mut self) {
        if let Some((number, _)) = self.brain.unsaved() {
            self.brain.on_saved(number);
        }
    }
}

impl Client {
    /// Decides a request of an entry of `traffic`.
    #[inline]
    pub(crate) fn decide(&mut self, entry: usize) -> Answer {
        let Some((key, would)) = self.keys.get_mut(entry) else { return Answer::Admitted };
        if let Some(names) = &mut self.names[entry] {
            *key = names.next();
            *would = would.map(|_| key.counts().would_dropped);
        }
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

impl Names {
    fn next(&mut self) -> KeyHandle {
        let name = format!("{}{}", self.prefix, self.next);
        self.next = (self.next + self.step) % self.of;
        self.bucket.key(&name)
    }
}
