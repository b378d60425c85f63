//! Attacks on the kill switch: hostile peers claim kill generations, bucket generations and drill
//! numbers. The real state machines of all tiers exchange their messages without delay; the hostile
//! reports are scripted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_aggregator::zone::{Bounds, Zone};
use plimsoll_controller::brain::Brain;
use plimsoll_controller::state::{Command, DurableState};
use plimsoll_core::exchange::{Child, Parent, StreamId};
use plimsoll_core::kill::drill::Drill;
use plimsoll_core::kill::{
    EPOCH_JUMP_MAX, KILLED_BUCKETS_MAX, KillGeneration, KillNews, KillOrder, OrderId, Scope,
};
use plimsoll_core::law::Parameters;
use plimsoll_core::names::{Bucket, Name, Text, Zone as ZoneName};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Identity, InstanceId, Report, Role};
use plimsoll_policy::{ONE_CLASS_TENANTS, Policy};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::policy_of;

const FLEET: Scope = Scope::Fleet;
/// Aggregator under the controller, and the one under that aggregator.
const UPPER: usize = 0;
const LOWER: usize = 1;

fn policy() -> Arc<Policy> {
    let text = "buckets: { api: { limit: 1, mode: enforce } }\nrollout: { require_gates: false }\n";
    policy_of(text, ONE_CLASS_TENANTS)
}

fn bucket(name: &str) -> Bucket {
    Bucket::new(name).unwrap()
}

fn alone(name: &str) -> Scope {
    Scope::Bucket(bucket(name))
}

fn command() -> Command {
    Command {
        reason: Some(Text::new("a test").unwrap()),
        ..Command::default()
    }
}

fn identity(instance: u64, role: Role) -> Identity {
    Identity {
        instance: InstanceId(instance.into()),
        name: Name::new(&format!("host:{instance}")).unwrap(),
        service: Name::new("shop").unwrap(),
        zone: ZoneName::new("a").unwrap(),
        role,
    }
}

/// Claim of a hostile peer in its report.
#[derive(Clone, Default)]
struct Claim {
    kill: u64,
    kills: BTreeMap<Bucket, KillGeneration>,
    orders: BTreeMap<OrderId, KillOrder>,
    drill: u64,
}

fn fleet(kill: u64) -> Claim {
    Claim {
        kill,
        ..Claim::default()
    }
}

fn invented(count: usize, generation: u64) -> Claim {
    let one = |number| {
        (
            bucket(&format!("invented-{number}")),
            KillGeneration(generation),
        )
    };
    Claim {
        kills: (0..count).map(one).collect(),
        ..Claim::default()
    }
}

struct Peer {
    identity: Identity,
    stream: StreamId,
    seq: u64,
}

impl Peer {
    fn report(&mut self, now: MonoTime, claim: Claim) -> Report {
        self.seq += 1;
        Report {
            greeting: (self.seq == 1).then(|| self.identity.clone()).into(),
            seq: self.seq,
            time: Some(now),
            kills: KillNews {
                fleet: KillGeneration(claim.kill),
                buckets: claim.kills,
                orders: claim.orders,
                drill: Drill(claim.drill),
            },
            ..Report::default()
        }
    }
}

struct World {
    now: u64,
    processes: u64,
    brain: Option<Brain>,
    durable: DurableState,
    zones: [Zone; 2],
    /// Stream of each aggregator to its parent.
    streams: [Option<StreamId>; 2],
}

impl World {
    fn new() -> Self {
        let zones = [90, 91].map(new_zone);
        let durable = DurableState::first_start();
        let mut world = Self {
            now: 0,
            processes: 100,
            brain: None,
            durable,
            zones,
            streams: [None; 2],
        };
        world.controller_starts();
        world.settle();
        // A controller that runs for the first time may still learn from its aggregators.
        world.controller_stops();
        world.controller_starts();
        world.settle();
        world
    }

    fn at(&self) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_millis(self.now))
    }

    fn brain(&mut self) -> &mut Brain {
        self.brain.as_mut().expect("the controller runs")
    }

    fn controller_starts(&mut self) {
        self.processes += 1;
        let instance = InstanceId(self.processes.into());
        let brain = Brain::new(
            self.at(),
            instance,
            self.durable.clone(),
            policy(),
            Parameters::default(),
        );
        self.brain = Some(brain);
        self.streams[UPPER] = None;
        self.save();
    }

    fn controller_stops(&mut self) {
        self.brain = None;
        self.streams[UPPER] = None;
    }

    /// Replaces an aggregator by a new process without state.
    fn restart(&mut self, number: usize) {
        let now = self.at();
        if let Some(stream) = self.streams[number].take() {
            match number {
                UPPER => self
                    .brain
                    .iter_mut()
                    .for_each(|brain| brain.on_close(now, stream)),
                _ => self.zones[UPPER].on_close(now, stream),
            }
        }
        self.processes += 1;
        self.zones[number] = new_zone(self.processes);
        if number == UPPER {
            self.streams[LOWER] = None;
        }
    }

    fn save(&mut self) {
        let Some(brain) = &mut self.brain else { return };
        if let Some((number, durable)) = brain.unsaved() {
            self.durable = durable;
            brain.on_saved(number);
        }
    }

    /// Carries messages in both directions for two seconds. No parent may refuse a report.
    fn settle(&mut self) {
        for _ in 0..20 {
            self.now += 100;
            let now = self.at();
            let unix_s = i64::try_from(self.now / 1_000).unwrap();
            self.brain
                .iter_mut()
                .for_each(|brain| brain.on_tick(now, unix_s));
            self.save();
            self.zones.iter_mut().for_each(|zone| {
                zone.on_tick(now);
            });
            for number in [LOWER, UPPER] {
                if number == UPPER && self.brain.is_none() {
                    continue;
                }
                let stream = match self.streams[number] {
                    Some(stream) => stream,
                    None => {
                        self.processes += 1;
                        self.zones[number].on_open(now);
                        *self.streams[number].insert(StreamId(self.processes))
                    }
                };
                let report = self.zones[number].report(now);
                let message = match number {
                    UPPER => {
                        self.brain()
                            .on_report(now, stream, report)
                            .expect("the controller takes every roll-up");
                        self.save();
                        self.brain().directives(now, stream)
                    }
                    _ => {
                        let upper = &mut self.zones[UPPER];
                        upper
                            .on_report(now, stream, report)
                            .expect("an aggregator takes every roll-up");
                        upper.directives(now, stream)
                    }
                };
                let taken = message.map(|message| self.zones[number].on_directives(now, message));
                assert_eq!(taken.unwrap_or(Ok(())), Ok(()));
            }
        }
    }

    fn peer(&mut self, role: Role) -> Peer {
        self.processes += 1;
        Peer {
            identity: identity(self.processes, role),
            stream: StreamId(self.processes),
            seq: 0,
        }
    }

    /// Lets a new peer of an aggregator make a claim, and carries the consequence everywhere.
    fn claims(&mut self, role: Role, zone: usize, claim: Claim) {
        let (now, mut peer) = (self.at(), self.peer(role));
        let report = peer.report(now, claim);
        self.zones[zone]
            .on_report(now, peer.stream, report)
            .expect("claims reject no stream");
        self.settle();
    }

    /// Makes a claim at the controller, by a new aggregator.
    fn claims_at_controller(&mut self, claim: Claim) {
        let (now, mut peer) = (self.at(), self.peer(Role::Aggregator));
        let report = peer.report(now, claim);
        self.brain()
            .on_report(now, peer.stream, report)
            .expect("claims reject no stream");
        self.settle();
    }

    fn kills(&mut self, scope: &Scope) {
        self.brain().on_kill(scope, command()).unwrap();
        self.settle();
    }

    /// Returns true if there was something to end.
    fn ends_kills(&mut self, scope: &Scope) -> bool {
        let now = self.at();
        let (has_ended, ..) = self.brain().on_kill_ends(now, scope);
        self.settle();
        has_ended
    }

    /// Returns the generations of a scope at the controller, the upper and the lower aggregator.
    fn generations(&self, scope: &Scope) -> [u64; 3] {
        let brain = self
            .brain
            .as_ref()
            .map_or(0, |brain| brain.kills().generation(scope).0);
        let [upper, lower] =
            [UPPER, LOWER].map(|zone| self.zones[zone].kills().generation(scope).0);
        [brain, upper, lower]
    }

    fn drills(&self) -> [u64; 3] {
        let brain = self
            .brain
            .as_ref()
            .map_or(0, |brain| brain.kills().drill().0);
        let [upper, lower] = [UPPER, LOWER].map(|zone| self.zones[zone].kills().drill().0);
        [brain, upper, lower]
    }
}

fn new_zone(instance: u64) -> Zone {
    Zone::new(
        identity(instance, Role::Aggregator),
        Bounds::default(),
        Parameters::default(),
    )
}

const ROLES: [Role; 2] = [Role::Client, Role::Aggregator];

#[test]
fn repeated_claims_cut_no_aggregator_off() {
    for step in [EPOCH_JUMP_MAX, EPOCH_JUMP_MAX - 1] {
        for zone in [UPPER, LOWER] {
            let mut world = World::new();
            let (now, mut liar) = (world.at(), world.peer(Role::Client));
            for times in 1..=4 {
                let report = liar.report(now, fleet(times * step));
                world.zones[zone]
                    .on_report(now, liar.stream, report)
                    .expect("claims reject no stream");
            }
            world.settle();
            assert_eq!(world.generations(&FLEET), [0; 3]);
            // The aggregator starts again, and its earlier clients connect first.
            world.restart(zone);
            world.claims(Role::Client, zone, fleet(4 * step));
            world.settle();
            assert_eq!(
                world.generations(&FLEET),
                [0; 3],
                "the zone follows its controller"
            );
            // A real kill arrives, and its end.
            world.kills(&FLEET);
            assert!(
                world
                    .generations(&FLEET)
                    .iter()
                    .all(|generation| generation % 2 == 1)
            );
        }
    }
}

#[test]
fn invented_bucket_kills_leave_room() {
    let orders = |number: u128| {
        let order = KillOrder {
            generation: KillGeneration(1),
            age: Duration::ZERO,
            ends_held: false,
        };
        let one = |scope| {
            (
                OrderId {
                    scope,
                    given_at: InstanceId(number),
                },
                order,
            )
        };
        let names = (0..2 * KILLED_BUCKETS_MAX).map(|name| alone(&format!("{number}-{name}")));
        Claim {
            orders: names.map(one).collect(),
            ..Claim::default()
        }
    };
    let attacks = [
        ("client", Role::Client, invented(4 * KILLED_BUCKETS_MAX, 1)),
        (
            "client with ends",
            Role::Client,
            invented(4 * KILLED_BUCKETS_MAX, 2),
        ),
        (
            "aggregator",
            Role::Aggregator,
            invented(4 * KILLED_BUCKETS_MAX, 1),
        ),
        ("aggregator with orders", Role::Aggregator, orders(777)),
    ];
    for (name, role, claim) in attacks {
        for led in [true, false] {
            let mut world = World::new();
            if !led {
                world.controller_stops();
                world.restart(LOWER);
                world.restart(UPPER);
            }
            world.claims(role, LOWER, claim.clone());
            world.claims(role, UPPER, claim.clone());
            for zone in [UPPER, LOWER] {
                let (now, scope) = (world.at(), alone(&format!("real-{zone}")));
                assert_eq!(
                    world.zones[zone].order_kill(now, &scope, true),
                    Ok(true),
                    "{name} {led}"
                );
            }
            if !led {
                world.controller_starts();
            }
            world.settle();
            world.kills(&alone("api"));
            let killed = |scope: &str| {
                world
                    .generations(&alone(scope))
                    .map(|generation| generation % 2 == 1)
            };
            assert_eq!(killed("api"), [true; 3], "{name} {led}");
            let real = ["real-0", "real-1"].map(killed);
            assert!(
                real[UPPER][1] && real[LOWER][2],
                "{name} {led}: in the zone where it was ordered"
            );
            // Orders of hostile aggregators can fill the half of the controller's slots that is for orders.
            assert!(
                real == [[true; 3]; 2] || !claim.orders.is_empty(),
                "{name} {led}"
            );
        }
    }
}

#[test]
fn aggregator_drill_numbers_end_no_drill() {
    for zone in [UPPER, LOWER] {
        let mut world = World::new();
        let (now, mut liar) = (world.at(), world.peer(Role::Aggregator));
        for claim in [
            EPOCH_JUMP_MAX,
            2 * EPOCH_JUMP_MAX,
            3 * EPOCH_JUMP_MAX,
            u64::MAX,
        ] {
            let report = liar.report(
                now,
                Claim {
                    drill: claim,
                    ..Claim::default()
                },
            );
            world.zones[zone]
                .on_report(now, liar.stream, report)
                .expect("claims reject no stream");
        }
        world.settle();
        world.controller_stops();
        world.controller_starts();
        world.settle();
        let now = world.at();
        let begun = world.brain().begin_drill(now).0;
        world.settle();
        assert_eq!(world.drills(), [begun; 3], "{zone}");
        let now = world.at();
        let begun = world.zones[LOWER].begin_drill(now).0;
        world.settle();
        assert_eq!(world.drills(), [begun; 3], "{zone}");
    }
}

#[test]
fn clients_carry_a_kill_over_aggregator_restarts() {
    for (zone, killed) in [(UPPER, false), (LOWER, false), (UPPER, true), (LOWER, true)] {
        let mut world = World::new();
        world.controller_stops();
        world.restart(LOWER);
        world.restart(UPPER);
        world.claims(Role::Client, zone, fleet(1));
        let held = world.generations(&FLEET);
        assert_eq!(
            held[1..],
            [1, if zone == LOWER { 1 } else { held[2] }],
            "{held:?}"
        );
        assert!(
            world
                .zones
                .iter()
                .all(|zone| zone.kills().fleet().is_killed()),
            "all children are sent it"
        );
        if killed {
            world.durable.kill = KillGeneration(1);
            world.durable.killed_by_command = Some(command());
        }
        world.controller_starts();
        world.settle();
        // The controller's order wins. An aggregator that was sent the number by its parent is in
        // shadow until an operator passes it.
        let lower = u64::from(killed || zone == UPPER);
        assert_eq!(
            world.generations(&FLEET),
            [u64::from(killed), u64::from(killed), lower],
            "{zone}"
        );
        world.ends_kills(&FLEET);
        assert_eq!(world.generations(&FLEET), [2; 3], "{zone}");
    }
}

#[test]
fn forgetful_controller_learns_kills_from_aggregators() {
    for (lost, learned) in [(true, 1), (false, 0)] {
        let mut world = World::new();
        let saved = world.durable.clone();
        world.kills(&FLEET);
        assert_eq!(world.generations(&FLEET), [1; 3]);
        world.controller_stops();
        // A backup from before the kill is a state anyway.
        world.durable = if lost { DurableState::lost() } else { saved };
        world.controller_starts();
        world.settle();
        assert_eq!(
            world.generations(&FLEET),
            [learned, 1, 1],
            "the zones stay killed"
        );
        world.ends_kills(&FLEET);
        assert_eq!(world.generations(&FLEET), [2; 3]);
    }
}

#[test]
fn ending_a_kill_passes_every_claim() {
    for killed in [false, true] {
        for claim in [1, 2, 7, 8, EPOCH_JUMP_MAX] {
            for zone in [UPPER, LOWER] {
                let mut world = World::new();
                world.claims(Role::Client, zone, fleet(claim));
                if killed {
                    world.kills(&FLEET);
                }
                world.ends_kills(&FLEET);
                let [brain, upper, lower] = world.generations(&FLEET);
                assert!(
                    brain >= claim && brain % 2 == 0,
                    "{killed} {claim}: {brain}"
                );
                assert_eq!([upper, lower], [brain; 2], "{killed} {claim}");
            }
        }
    }
}

/// Random hostile reports without orders, at any tier, between restarts of every tier.
#[test]
fn operator_stays_in_command_despite_claims() {
    const ATTACKS: u64 = 300;
    let mut reports = 0;
    for seed in 0..ATTACKS {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut world = World::new();
        for _ in 0..random.random_range(1..6) {
            match random.random_range(0..8) {
                0 => world.restart(UPPER),
                1 => world.restart(LOWER),
                2 => {
                    world.controller_stops();
                    world.controller_starts();
                }
                _ => {}
            }
            let number = |random: &mut SmallRng| match random.random_range(0..5) {
                0 => u64::MAX - random.random_range(0..3),
                1 => random.random_range(0..4) * EPOCH_JUMP_MAX + random.random_range(0..2),
                _ => random.random_range(0..9),
            };
            let names = random.random_range(0..5);
            let claim = Claim {
                kill: number(&mut random),
                kills: ["api", "b0", "b1", "b2"][..names]
                    .iter()
                    .map(|name| (bucket(name), KillGeneration(number(&mut random))))
                    .collect(),
                drill: number(&mut random),
                ..Claim::default()
            };
            let role = ROLES[random.random_range(0..2)];
            match random.random_range(0..3) {
                2 => world.claims_at_controller(claim),
                zone => world.claims(role, zone, claim),
            }
            reports += 1;
            for scope in [FLEET, alone("api"), alone("b0")] {
                assert_eq!(world.generations(&scope), [0; 3], "{seed} {scope}");
            }
        }
        for scope in [FLEET, alone("api")] {
            world.kills(&scope);
            assert_eq!(
                world.generations(&scope).map(|of| of % 2),
                [1; 3],
                "{seed} {scope}"
            );
            assert!(world.ends_kills(&scope));
            let [brain, upper, lower] = world.generations(&scope);
            assert_eq!(
                ([upper, lower], brain % 2),
                ([brain; 2], 0),
                "{seed} {scope}"
            );
        }
        let now = world.at();
        let begun = world.brain().begin_drill(now).0;
        world.settle();
        assert_eq!(world.drills(), [begun; 3], "{seed}");
    }
    assert!(reports > ATTACKS, "{reports}");
}
