//! The processes of the fleet. Only this module constructs the tiers' state machines.

use std::fmt::Write as _;
use std::time::Duration;

use plimsoll_aggregator::zone::{Bounds, Zone};
use plimsoll_client::internals::{KeyHandle, Shard, Subscription};
use plimsoll_client::{BucketHandle, KEYS_MAX_DEFAULT, Limiter};
use plimsoll_controller::brain::Brain;
use plimsoll_controller::state::DurableState;
use plimsoll_core::names::{InvalidName, Name, Zone as ZoneName, own_name};
use plimsoll_core::report::{Identity, InstanceId, Role};
use plimsoll_policy::Policy;
use rand::rngs::SmallRng;
use rand::{Rng, RngExt};

use super::Request;
use super::clock::{ProcessClock, SimTime};
use crate::results::Answer;
use crate::rng::{Purpose, derive, span};
use crate::scenario::{Scenario, TargetBucket, Traffic};

pub(crate) const ZONE_TICK: Duration = Duration::from_millis(100);
/// Maximum difference between the clocks of two processes: about a day.
const CLOCKS_APART_US: u64 = 100_000_000_000;
/// Time of day at the start of a run, in seconds since 1970; boosts use it for their ends.
const UNIX_START_S: i64 = 1_800_000_000;

#[derive(Debug)]
pub(crate) struct Fleet<'a> {
    scenario: &'a Scenario,
    seed: u64,
    keys_max: usize,
}

#[derive(Debug)]
pub(crate) struct Controller {
    pub(crate) brain: Brain,
    pub(crate) clock: ProcessClock,
}

#[derive(Debug)]
pub(crate) struct Aggregator {
    pub(crate) zone: Zone,
    pub(crate) clock: ProcessClock,
}

/// A service's limiter, and the subscription that updates it.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) subscription: Subscription,
    pub(crate) clock: ProcessClock,
    shard: Shard,
    /// By entry of `traffic`.
    targets: Vec<Target>,
}

/// Key for the decisions on one entry of `traffic`.
#[derive(Debug)]
struct Target {
    bucket: BucketHandle,
    /// Name of the tenant, or the last name in a request.
    name: String,
    /// Length of the common prefix of all names.
    prefix: usize,
    /// Empty without one.
    plan: String,
    cost: u32,
    /// Keeps the tenant's key from eviction.
    _key: KeyHandle,
}

impl<'a> Fleet<'a> {
    pub(crate) fn new(scenario: &'a Scenario, seed: u64) -> Self {
        let offered: usize = scenario
            .buckets
            .iter()
            .map(|bucket| bucket.tenants.len() + 1)
            .sum();
        // Listed tenants have their own directives, with or without traffic.
        let listed = scenario.policy.tenants().count() * scenario.buckets.len();
        let named = scenario.traffic.iter().filter_map(|traffic| traffic.names);
        // A service that knows of many tenants sets so many keys that more than half of them stay
        // free, up to the maximum.
        let of_names = named.map(|names| names.counted().unwrap_or_default() as usize * 9 / 4);
        let of_names = of_names.reduce(|sum, more| sum + more);
        let room = of_names.map_or(8, |keys| keys.clamp(KEYS_MAX_DEFAULT, 100_000));
        let keys_max = offered + listed + room;
        Self {
            scenario,
            seed,
            keys_max,
        }
    }

    fn clock(now: SimTime, pace: f64, rng: &mut SmallRng) -> ProcessClock {
        ProcessClock::new(now, span(rng, CLOCKS_APART_US), pace)
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

    /// Creates a controller that starts only from the durable state and the policy.
    pub(crate) fn controller(
        &self,
        now: SimTime,
        durable: DurableState,
        policy: &std::sync::Arc<Policy>,
        rng: &mut SmallRng,
    ) -> Controller {
        let clock = Self::clock(now, self.scenario.pace.controller(), rng);
        let policy = std::sync::Arc::clone(policy);
        let (now, instance) = (clock.read(now), InstanceId(rng.random()));
        let brain = Brain::new(now, instance, durable, policy, self.scenario.parameters());
        let mut controller = Controller { brain, clock };
        controller.save();
        controller
    }

    /// Creates an aggregator without any state. It has the same name as the one before it in its zone.
    pub(crate) fn aggregator(
        &self,
        now: SimTime,
        zone: u32,
        rng: &mut SmallRng,
    ) -> Result<Aggregator, InvalidName> {
        let identity = self.identity(zone, &format!("aggregator-{zone}"), Role::Aggregator, rng)?;
        let bounds = Bounds {
            children_max: self.scenario.clients() + 1_000,
            ..Bounds::default()
        };
        Ok(Aggregator {
            zone: Zone::new(identity, bounds, self.scenario.parameters()),
            clock: Self::clock(now, self.scenario.pace.zone(zone), rng),
        })
    }

    pub(crate) fn client(
        &self,
        now: SimTime,
        (client, life, zone): (u32, u32, u32),
        rng: &mut SmallRng,
    ) -> Result<Client, plimsoll_client::BucketError> {
        let name = format!("client-{client}");
        let identity = self.identity(zone, &name, Role::Client, rng);
        let identity = identity.map_err(|source| plimsoll_client::BucketError::Name {
            name: name.clone(),
            source,
        })?;
        let (limiter, subscription) =
            Limiter::without_transport(identity, self.keys_max, 0, rng.next_u64());
        let target = |traffic: &Traffic| {
            let TargetBucket { name, tenants, .. } = &self.scenario.buckets[traffic.bucket];
            let bucket = limiter.bucket(name.as_str())?;
            let tenant = &tenants[traffic.tenant];
            let own = own_name(tenant.as_str());
            let name = if traffic.names.is_some() {
                format!("{own}-")
            } else {
                own.to_owned()
            };
            let key = bucket.key(tenant.as_str());
            Ok(Target {
                prefix: name.len(),
                name,
                plan: tenant.plan().unwrap_or_default().to_owned(),
                bucket,
                cost: traffic.cost,
                _key: key,
            })
        };
        let targets = self
            .scenario
            .traffic
            .iter()
            .map(target)
            .collect::<Result<_, _>>()?;
        let coins = derive(
            derive(self.seed, Purpose::Coins as u64),
            u64::from(client) << 32 | u64::from(life),
        );
        let shard = limiter.shard(coins);
        let clock = Self::clock(now, self.scenario.pace.client(client), rng);
        Ok(Client {
            subscription,
            clock,
            shard,
            targets,
        })
    }
}

impl Controller {
    pub(crate) fn tick(&mut self, now: SimTime) {
        let unix_s = UNIX_START_S + i64::try_from(now.0 / 1_000_000).unwrap_or(i64::MAX);
        self.brain.on_tick(self.clock.read(now), unix_s);
        self.save();
    }

    /// Marks the durable state as saved: the simulation has no disk.
    pub(crate) fn save(&mut self) {
        if let Some((number, _)) = self.brain.unsaved() {
            self.brain.on_saved(number);
        }
    }
}

impl Client {
    #[inline]
    pub(crate) fn decide(&mut self, request: Request) -> Answer {
        let Some(target) = self.targets.get_mut(request.entry as usize) else {
            return Answer::Admitted;
        };
        if let Some(name) = request.name {
            target.name.truncate(target.prefix);
            // Writing to a string never fails.
            let _ = write!(target.name, "{name}");
        }
        let asked = plimsoll_client::Request::new(&target.bucket, &target.name)
            .plan(&target.plan)
            .cost(target.cost);
        let decided = self.shard.check(&asked);
        match decided.withheld {
            _ if !decided.verdict.is_admit() => Answer::Refused,
            Some(_) => Answer::WouldDropped,
            None => Answer::Admitted,
        }
    }
}
