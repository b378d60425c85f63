//! The kill switch over random traces of the real state machines. Processes die and restart;
//! messages are late, duplicated, reordered or lost; operators kill, end kills and promote at every
//! tier, also at processes without a connection. After every event, no client refuses requests that
//! it must not refuse.
//!
//! The expectation does not use generations. It tracks which process knows which order: the process
//! that received the order, and each process that takes a message of a process that knows it. An
//! operator who promotes a bucket at the controller decides for all orders that are known there,
//! and for all orders given before an operator ended the kills of their scope at the controller. So
//! a client may refuse if such a decision, or the initial one, knew all orders that the client's
//! aggregator has known for two seconds.
//!
//! Of some orders an aggregator knows only that a generation moved: a client reported the
//! generation without the order, or the process that knew the order has died. Another order may
//! have reached the same generation or a later one, so a decision that knew the generation
//! suffices. A generation without its order is evidence only for a process that has lost its state:
//! an aggregator that took it forgets it when a controller sends directives, and all others ignore
//! it.
//!
//! An operator who ends the kills of a scope at a controller that holds none decides as well, for
//! the orders with only reported generations: their enforcement continues.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use plimsoll_aggregator::zone::{Bounds, Zone};
use plimsoll_client::Limiter;
use plimsoll_client::internals::{KeyHandle, Subscription};
use plimsoll_controller::brain::Brain;
use plimsoll_controller::state::{Command, DurableState};
use plimsoll_core::directive::Directives;
use plimsoll_core::exchange::{Child, Parent, StreamId};
use plimsoll_core::kill::{Kill, KillGeneration, Kills, Scope};
use plimsoll_core::law::Parameters;
use plimsoll_core::names::Text;
use plimsoll_core::names::{Bucket, Name, Zone as ZoneName};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Identity, InstanceId, Report, Role};
use plimsoll_policy::{ONE_CLASS_TENANTS, Policy};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::policy_of;

const TRACES: u64 = 1_000;
/// Length of a trace in milliseconds.
const LENGTH: u64 = 16_000;
/// Length of a step in milliseconds.
const STEP: u64 = 50;
/// Time in milliseconds that a client may still refuse after an order has reached its aggregator.
const ALLOWED: u64 = 2_000;
/// Maximum delay of a message in milliseconds, before it would end its stream.
const DELAY: u64 = 1_800;
/// Maximum time in milliseconds that an aggregator is cut off from its parent.
const CUT: u64 = 8_000;
const BUCKETS: [&str; 2] = ["api", "web"];
const ZONES: usize = 3;
const CLIENTS: usize = 5;
/// Child of the aggregator `UPPER`.
const LOWER: usize = 2;
const UPPER: usize = 1;

/// Orders that a process knows, by number.
type Knowledge = BTreeSet<usize>;

#[derive(Clone, Copy)]
struct Known {
    since: u64,
    /// Generation of its scope at this aggregator.
    generation: u64,
    /// The aggregator was sent the order itself, not only a generation.
    certain: bool,
}

/// A decision to enforce a bucket: its time, its known orders, and the generations of the fleet and
/// the bucket.
type Promotion = (u64, Knowledge, [u64; 2]);

/// A message in flight, and the knowledge of its sender.
#[derive(Clone)]
struct InFlight<M> {
    due: u64,
    message: M,
    knows: Knowledge,
    /// Orders among them that are certain.
    certain: Knowledge,
    kills: BTreeMap<Scope, u64>,
}

/// One stream, from the child's end.
struct Stream {
    id: StreamId,
    parent: Option<usize>,
    began: u64,
    up: VecDeque<InFlight<Report>>,
    down: VecDeque<InFlight<Directives>>,
    next_report: u64,
}

struct ZoneLife {
    zone: Zone,
    instance: u128,
    knows: BTreeMap<usize, Known>,
    stream: Option<Stream>,
}

struct ClientLife {
    subscription: Subscription,
    keys: [KeyHandle; 2],
    knows: Knowledge,
    kills: BTreeMap<Scope, u64>,
    stream: Option<Stream>,
    retries: u64,
}

struct Order {
    scope: Scope,
    /// The aggregator with the order died before the controller knew the order. Only a generation
    /// remains, which another order may have reached as well.
    ambiguous: bool,
    /// Aggregator and process that received it; `None` for the controller.
    given_at: Option<(usize, u128)>,
}

struct World {
    random: SmallRng,
    /// Rate of operators' actions, as a multiple of the lowest.
    pace: f64,
    now: u64,
    streams: u64,
    processes: u128,
    brain: Option<Brain>,
    durable: DurableState,
    modes: [bool; 2],
    controller_knows: Knowledge,
    saved_knows: Knowledge,
    /// Orders from before an end of their scope at the controller. A later decision there covers
    /// them too, even if the controller learns of them only afterwards.
    ended: Knowledge,
    zones: Vec<Option<ZoneLife>>,
    /// End of each aggregator's disconnection from its parent, across restarts.
    cut_until: [u64; ZONES],
    clients: Vec<ClientLife>,
    orders: Vec<Order>,
    /// Decisions to enforce each bucket, the initial one first.
    promotions: [Vec<Promotion>; 2],
    /// Number of checks with a refusing client.
    refusing: u64,
}

/// The policy with each bucket in enforcement or in shadow. The limit is zero, so that a client
/// refuses if it enforces.
fn policy(modes: [bool; 2]) -> Arc<Policy> {
    static ALL: LazyLock<Vec<Arc<Policy>>> = LazyLock::new(|| {
        let read = |number: usize| {
            let mode = |bit: usize| {
                if number & bit != 0 {
                    "enforce"
                } else {
                    "shadow"
                }
            };
            let text = format!(
                "buckets: {{ api: {{ limit: 0, mode: {} }}, web: {{ limit: 0, mode: {} }} }}\n\
                 rollout: {{ require_gates: false }}\nguardrails: off\n",
                mode(1),
                mode(2)
            );
            policy_of(&text, ONE_CLASS_TENANTS)
        };
        (0..4).map(read).collect()
    });
    Arc::clone(&ALL[usize::from(modes[0]) + 2 * usize::from(modes[1])])
}

fn at(ms: u64) -> MonoTime {
    MonoTime::from_elapsed(Duration::from_millis(ms))
}

fn bucket(name: &str) -> Bucket {
    Bucket::new(name).unwrap()
}

fn scopes() -> [Scope; 3] {
    [
        Scope::Fleet,
        Scope::Bucket(bucket(BUCKETS[0])),
        Scope::Bucket(bucket(BUCKETS[1])),
    ]
}

fn generations(kills: &Kills) -> BTreeMap<Scope, u64> {
    let each = scopes().into_iter();
    each.map(|scope| (scope.clone(), kills.generation(&scope).0))
        .collect()
}

fn concerns(scope: &Scope, of: &str) -> bool {
    scope.bucket().is_none_or(|bucket| bucket.as_str() == of)
}

impl Stream {
    /// Reports keep their order.
    fn send_up(&mut self, sent: InFlight<Report>) {
        let last = self.up.back().map_or(0, |last| last.due);
        let due = last.max(sent.due);
        self.up.push_back(InFlight { due, ..sent });
    }
}

impl ZoneLife {
    /// Enters the orders in a message.
    fn learn(
        &mut self,
        orders: &[Order],
        now: u64,
        taken: Vec<usize>,
        certain: impl Fn(usize) -> bool,
    ) {
        for id in taken {
            let generation = self.zone.kills().generation(&orders[id].scope).0;
            let known = Known {
                since: now,
                generation,
                certain: certain(id),
            };
            let held = self.knows.entry(id).or_insert(known);
            if known.certain && !held.certain {
                *held = known;
            }
        }
    }

    /// Forgets the orders known only by a generation that the aggregator has dropped.
    fn forget_evidence(&mut self, orders: &[Order]) {
        let held = |id: usize| self.zone.kills().generation(&orders[id].scope).0;
        self.knows
            .retain(|id, known| known.certain || held(*id) >= known.generation);
    }

    /// Returns the known orders, and the certain ones among them.
    fn knowledge(&self) -> (Knowledge, Knowledge) {
        let certain = self.knows.iter().filter(|(_, known)| known.certain);
        (
            self.knows.keys().copied().collect(),
            certain.map(|(id, _)| *id).collect(),
        )
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            random: SmallRng::seed_from_u64(seed),
            // At a high pace, processes that know nothing of each other reach the same generations.
            pace: [1.0, 3.0, 10.0][usize::try_from(seed % 3).unwrap()],
            now: 0,
            streams: 0,
            processes: 0,
            brain: None,
            durable: DurableState::first_start(),
            modes: [true; 2],
            controller_knows: Knowledge::new(),
            saved_knows: Knowledge::new(),
            ended: Knowledge::new(),
            zones: Vec::new(),
            cut_until: [0; ZONES],
            clients: Vec::new(),
            orders: Vec::new(),
            promotions: std::array::from_fn(|_| vec![(0, Knowledge::new(), [0, 0])]),
            refusing: 0,
        };
        world.start_controller();
        for number in 0..ZONES {
            let zone = world.zone(number);
            world.zones.push(Some(zone));
        }
        for number in 0..CLIENTS {
            let client = world.client(number);
            world.clients.push(client);
        }
        world
    }

    fn chance(&mut self, of: f64) -> bool {
        self.random.random_bool(of)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.random_range(0..bound)
    }

    fn identity(&mut self, name: &str, role: Role) -> Identity {
        self.processes += 1;
        Identity {
            instance: InstanceId(self.processes),
            name: Name::new(name).unwrap(),
            service: Name::new("x").unwrap(),
            zone: ZoneName::new("z").unwrap(),
            role,
        }
    }

    fn zone(&mut self, number: usize) -> ZoneLife {
        let identity = self.identity(&format!("zone-{number}"), Role::Aggregator);
        let instance = identity.instance.0;
        let zone = Zone::new(identity, Bounds::default(), Parameters::default());
        ZoneLife {
            zone,
            instance,
            knows: BTreeMap::new(),
            stream: None,
        }
    }

    fn client(&mut self, number: usize) -> ClientLife {
        let identity = self.identity(&format!("client-{number}"), Role::Client);
        let (limiter, subscription) = Limiter::without_transport(identity, 16, 0, 1);
        let keys = BUCKETS.map(|name| limiter.bucket(name).unwrap().key("default"));
        let kills = scopes().map(|scope| (scope, 0)).into();
        ClientLife {
            subscription,
            keys,
            knows: Knowledge::new(),
            kills,
            stream: None,
            retries: 0,
        }
    }

    fn start_controller(&mut self) {
        self.processes += 1;
        let instance = InstanceId(self.processes);
        let brain = Brain::new(
            at(self.now),
            instance,
            self.durable.clone(),
            policy(self.modes),
            Parameters::default(),
        );
        self.brain = Some(brain);
        self.controller_knows = self.saved_knows.clone();
        self.save();
    }

    /// Saves the controller's state. It sends nothing before that.
    fn save(&mut self) {
        let Some(brain) = &mut self.brain else { return };
        if let Some((number, durable)) = brain.unsaved() {
            self.durable = durable;
            brain.on_saved(number);
        }
        self.saved_knows = self.controller_knows.clone();
    }

    fn step(&mut self) {
        self.now += STEP;
        self.faults();
        self.operators();
        self.connect();
        self.carry();
        let now = at(self.now);
        if self.now.is_multiple_of(500)
            && let Some(brain) = &mut self.brain
        {
            brain.on_tick(now, i64::try_from(self.now / 1_000).unwrap());
            self.save();
        }
        if self.now.is_multiple_of(100) {
            self.zones.iter_mut().flatten().for_each(|life| {
                life.zone.on_tick(now);
            });
        }
        self.clients
            .iter_mut()
            .for_each(|life| life.subscription.on_tick(now));
        self.send();
        self.check("a step");
    }

    fn faults(&mut self) {
        if self.chance(0.004) && self.brain.take().is_some() {
            for life in self.zones.iter_mut().flatten() {
                life.stream.take_if(|stream| stream.parent.is_none());
            }
            if self.chance(0.1) {
                (self.durable, self.saved_knows) = (DurableState::lost(), Knowledge::new());
                self.ended.clear();
                self.orders
                    .iter_mut()
                    .for_each(|order| order.ambiguous = true);
            }
        }
        if self.brain.is_none() && self.chance(0.02) {
            self.start_controller();
        }
        for number in 0..ZONES {
            if self.zones[number].is_some() && self.chance(0.003) {
                self.kill_zone(number);
            } else if self.zones[number].is_none() && self.chance(0.05) {
                self.zones[number] = Some(self.zone(number));
            }
            if self.chance(0.003) {
                self.break_uplink(number);
                if self.chance(0.5) {
                    self.cut_until[number] = self.now + self.below(CUT);
                }
            }
        }
        for number in 0..CLIENTS {
            if self.chance(0.002) {
                self.close_client(number);
                self.clients[number] = self.client(number);
            } else if self.chance(0.004) {
                self.close_client(number);
            }
        }
    }

    fn kill_zone(&mut self, number: usize) {
        let Some(life) = self.zones[number].take() else {
            return;
        };
        if let Some(Stream { id, parent, .. }) = life.stream {
            self.parent_closes(id, parent);
        }
        for other in self.zones.iter_mut().flatten() {
            other.stream.take_if(|stream| stream.parent == Some(number));
        }
        for client in &mut self.clients {
            client
                .stream
                .take_if(|stream| stream.parent == Some(number));
        }
        let known = &self.saved_knows;
        for (order, id) in self.orders.iter_mut().zip(0..) {
            let given_there = order.given_at == Some((number, life.instance));
            order.ambiguous |= given_there && !known.contains(&id);
        }
    }

    fn break_uplink(&mut self, number: usize) {
        let stream = self.zones[number]
            .as_mut()
            .and_then(|life| life.stream.take());
        if let Some(Stream { id, parent, .. }) = stream {
            self.parent_closes(id, parent);
        }
    }

    fn close_client(&mut self, number: usize) {
        if let Some(Stream { id, parent, .. }) = self.clients[number].stream.take() {
            self.parent_closes(id, parent);
        }
    }

    fn parent_closes(&mut self, stream: StreamId, parent: Option<usize>) {
        let now = at(self.now);
        match parent {
            None => self
                .brain
                .iter_mut()
                .for_each(|brain| brain.on_close(now, stream)),
            Some(number) => {
                self.zones[number]
                    .iter_mut()
                    .for_each(|life| life.zone.on_close(now, stream));
            }
        }
    }

    fn operators(&mut self) {
        if self.chance(0.012 * self.pace) {
            let scope = scopes()[self.random.random_range(0..3)].clone();
            let ttl = self
                .chance(0.3)
                .then(|| i64::try_from(self.now / 1_000).unwrap() + 2);
            let place = self.random.random_range(0..=ZONES);
            self.kill(&scope, place, ttl);
        }
        if self.chance(0.012 * self.pace) {
            let scope = scopes()[self.random.random_range(0..3)].clone();
            let place = self.random.random_range(0..=ZONES);
            let now = at(self.now);
            if let Some(Some(life)) = self.zones.get_mut(place) {
                life.zone.order_kill(now, &scope, false).unwrap();
            } else if let Some(brain) = &mut self.brain {
                let before = brain.durable().generation(&scope);
                brain.on_kill_ends(now, &scope);
                let has_passed_claim =
                    !before.is_killed() && brain.durable().generation(&scope) > before;
                let orders = self
                    .orders
                    .iter()
                    .zip(0..)
                    .filter(|(order, _)| order.scope == scope);
                self.ended.extend(orders.map(|(_, id)| id));
                self.save();
                let concerned =
                    (0..BUCKETS.len()).filter(|number| concerns(&scope, BUCKETS[*number]));
                concerned
                    .filter(|_| has_passed_claim)
                    .for_each(|number| self.decide(number));
            }
        }
        if self.chance(0.02 * self.pace) {
            let number = self.random.random_range(0..2);
            self.promote(number);
        }
    }

    fn kill(&mut self, scope: &Scope, place: usize, until_s: Option<i64>) {
        let now = at(self.now);
        let id = self.orders.len();
        let given_at = if let Some(Some(life)) = self.zones.get_mut(place) {
            life.zone.order_kill(now, scope, true).unwrap();
            let generation = life.zone.kills().generation(scope).0;
            life.knows.insert(
                id,
                Known {
                    since: self.now,
                    generation,
                    certain: true,
                },
            );
            Some((place, life.instance))
        } else if let Some(brain) = &mut self.brain {
            let reason = Some(Text::new("a test").unwrap());
            brain
                .on_kill(
                    scope,
                    Command {
                        reason,
                        until_s,
                        ..Command::default()
                    },
                )
                .unwrap();
            self.controller_knows.insert(id);
            self.save();
            None
        } else {
            return;
        };
        self.orders.push(Order {
            scope: scope.clone(),
            ambiguous: false,
            given_at,
        });
    }

    /// Lowers the mode of a bucket in the policy file and raises it again.
    fn promote(&mut self, number: usize) {
        let Some(brain) = &mut self.brain else { return };
        self.modes[number] = false;
        brain.on_policy(policy(self.modes));
        self.modes[number] = true;
        brain.on_policy(policy(self.modes));
        self.save();
        self.decide(number);
    }

    /// Notes that an operator has decided to enforce a bucket, or to continue.
    fn decide(&mut self, number: usize) {
        let Some(brain) = &self.brain else { return };
        let kill = brain.durable().kill_of(&bucket(BUCKETS[number]));
        // A decision while killed has no effect.
        if !kill.is_on() {
            let generations = [kill.fleet.0, kill.bucket.0];
            let knew = &self.controller_knows | &self.ended;
            self.promotions[number].push((self.now, knew, generations));
        }
    }

    fn stream(&mut self, parent: Option<usize>) -> Stream {
        self.streams += 1;
        Stream {
            id: StreamId(self.streams),
            parent,
            began: self.now,
            up: VecDeque::new(),
            down: VecDeque::new(),
            next_report: self.now,
        }
    }

    /// Opens streams for processes that have none; clients use a random aggregator.
    fn connect(&mut self) {
        let now = at(self.now);
        for number in 0..ZONES {
            let parent = (number == LOWER).then_some(UPPER);
            let parent_runs =
                parent.map_or(self.brain.is_some(), |upper| self.zones[upper].is_some());
            let waits = self.zones[number]
                .as_ref()
                .is_some_and(|life| life.stream.is_none())
                && self.cut_until[number] <= self.now;
            if parent_runs && waits && self.chance(0.1) {
                let stream = self.stream(parent);
                if let Some(life) = &mut self.zones[number] {
                    life.zone.on_open(now);
                    life.stream = Some(stream);
                }
            }
        }
        for number in 0..CLIENTS {
            let zone = self.random.random_range(0..ZONES);
            let client = &self.clients[number];
            if client.stream.is_none() && client.retries <= self.now && self.zones[zone].is_some() {
                let stream = self.stream(Some(zone));
                let client = &mut self.clients[number];
                client.subscription.on_open(now);
                client.stream = Some(stream);
            }
        }
    }

    fn delay(&mut self) -> u64 {
        if self.chance(0.03) {
            self.below(DELAY)
        } else {
            self.below(120)
        }
    }

    fn carry(&mut self) {
        for number in 0..ZONES {
            while let Some((sent, id, parent)) =
                self.arriving_up(|world| world.zones[number].as_mut()?.stream.as_mut())
            {
                if !self.deliver_up(&sent, id, parent) {
                    self.break_uplink(number);
                    break;
                }
            }
            while let Some(sent) =
                self.arriving_down(|world| world.zones[number].as_mut()?.stream.as_mut())
            {
                let (now, ms) = (at(self.now), self.now);
                let Some(life) = &mut self.zones[number] else {
                    break;
                };
                let mut taken = taken(&self.orders, &sent, &BTreeSet::new(), |scope| {
                    life.zone.kills().generation(scope).0
                });
                // A bucket's generation may be in an earlier message that is still on its way.
                taken.retain(|id| {
                    let scope = &self.orders[*id].scope;
                    let carried = match scope {
                        Scope::Fleet => Some(&sent.message.kills.fleet),
                        Scope::Bucket(bucket) => sent.message.kills.buckets.get(bucket),
                    };
                    let held = life.zone.kills().generation(scope);
                    carried.map_or(held, |carried| held.max(*carried)).0 >= sent.kills[scope]
                });
                let certain = sent.certain;
                let _ = life.zone.on_directives(now, sent.message);
                life.learn(&self.orders, ms, taken, |id| certain.contains(&id));
                life.forget_evidence(&self.orders);
                self.check("a directive at an aggregator");
            }
        }
        for number in 0..CLIENTS {
            while let Some((sent, id, parent)) =
                self.arriving_up(|world| world.clients[number].stream.as_mut())
            {
                if !self.deliver_up(&sent, id, parent) {
                    self.close_client(number);
                    self.clients[number].retries = self.now + 500;
                    break;
                }
            }
            while let Some(sent) = self.arriving_down(|world| world.clients[number].stream.as_mut())
            {
                let now = at(self.now);
                let life = &mut self.clients[number];
                life.knows
                    .extend(taken(&self.orders, &sent, &BTreeSet::new(), |scope| {
                        life.kills[scope]
                    }));
                let buckets = sent
                    .message
                    .kills
                    .buckets
                    .iter()
                    .map(|(bucket, kill)| (Scope::Bucket(bucket.clone()), kill.0));
                for (scope, received) in buckets.chain([(Scope::Fleet, sent.message.kills.fleet.0)])
                {
                    life.kills
                        .entry(scope)
                        .and_modify(|held| *held = received.max(*held));
                }
                let _ = life.subscription.on_directives(now, sent.message);
                self.check("a directive at a client");
            }
        }
    }

    /// Removes the next report that is due on a stream. Reports keep their order, since a parent
    /// would end the stream otherwise; rarely one is duplicated.
    fn arriving_up(
        &mut self,
        stream: impl Fn(&mut Self) -> Option<&mut Stream>,
    ) -> Option<(InFlight<Report>, StreamId, Option<usize>)> {
        let now = self.now;
        let twice = self.chance(0.002);
        let stream = stream(self)?;
        let first = stream.up.front().filter(|sent| sent.due <= now)?;
        let sent = if twice {
            first.clone()
        } else {
            stream.up.pop_front()?
        };
        Some((sent, stream.id, stream.parent))
    }

    /// Removes any message of directives that is due, and sometimes plans to repeat it.
    fn arriving_down(
        &mut self,
        stream: impl Fn(&mut Self) -> Option<&mut Stream>,
    ) -> Option<InFlight<Directives>> {
        let now = self.now;
        let (again, later) = (self.chance(0.02), self.below(2_000));
        let stream = stream(self)?;
        let due = stream.down.iter().position(|sent| sent.due <= now)?;
        let sent = stream.down.remove(due)?;
        if again {
            stream.down.push_back(InFlight {
                due: now + STEP + later,
                ..sent.clone()
            });
        }
        Some(sent)
    }

    /// Delivers a report. Returns false if the stream has to end.
    fn deliver_up(&mut self, sent: &InFlight<Report>, id: StreamId, parent: Option<usize>) -> bool {
        let now = at(self.now);
        let report = sent.message.clone();
        let named: BTreeSet<Scope> = report
            .kills
            .orders
            .keys()
            .map(|id| id.scope.clone())
            .collect();
        let entered = match parent {
            None => {
                let Some(brain) = &mut self.brain else {
                    return false;
                };
                let taken = taken(&self.orders, sent, &named, |scope| {
                    brain.durable().generation(scope).0
                });
                let entered = brain.on_report(now, id, report).is_ok();
                let durable = brain.durable();
                let counts = |id: &usize| {
                    entered
                        && counts(
                            &self.orders,
                            sent,
                            &named,
                            |scope| durable.generation(scope).0,
                            *id,
                        )
                };
                self.controller_knows
                    .extend(taken.into_iter().filter(counts));
                self.save();
                entered
            }
            Some(number) => {
                let ms = self.now;
                let Some(life) = &mut self.zones[number] else {
                    return false;
                };
                let taken = taken(&self.orders, sent, &named, |scope| {
                    life.zone.kills().generation(scope).0
                });
                let entered = life.zone.on_report(now, id, report).is_ok();
                if entered {
                    let orders = &self.orders;
                    let zone = &life.zone;
                    let held = |scope: &Scope| zone.kills().generation(scope).0;
                    let taken = taken
                        .into_iter()
                        .filter(|id| counts(orders, sent, &named, held, *id))
                        .collect();
                    let is_named = |id: usize| named.contains(&orders[id].scope);
                    life.learn(orders, ms, taken, |id| {
                        is_named(id) && sent.certain.contains(&id)
                    });
                }
                entered
            }
        };
        self.check("a report");
        entered
    }

    fn send(&mut self) {
        let now = at(self.now);
        for number in 0..ZONES {
            let delay = self.delay();
            let Some(life) = &mut self.zones[number] else {
                continue;
            };
            let (knows, certain) = life.knowledge();
            if let Some(stream) = &mut life.stream
                && stream.next_report <= self.now
            {
                let message = life.zone.report(now);
                let wait = u64::try_from(life.zone.report_interval().as_millis()).unwrap();
                stream.next_report = self.now + wait;
                stream.send_up(InFlight {
                    due: self.now + delay,
                    message,
                    knows,
                    certain,
                    kills: generations(life.zone.kills()),
                });
            }
        }
        for number in 0..CLIENTS {
            let delay = self.delay();
            let life = &mut self.clients[number];
            if let Some(stream) = &mut life.stream
                && stream.next_report <= self.now
            {
                let message = life.subscription.report(now);
                stream.next_report = self.now + 4 * STEP;
                stream.send_up(InFlight {
                    due: self.now + delay,
                    message,
                    knows: life.knows.clone(),
                    certain: Knowledge::new(),
                    kills: life.kills.clone(),
                });
            }
        }
        for child in 0..ZONES + CLIENTS {
            let delay = self.delay();
            let of = |world: &Self| -> Option<(StreamId, Option<usize>)> {
                let stream = match child.checked_sub(ZONES) {
                    None => world.zones[child].as_ref()?.stream.as_ref(),
                    Some(client) => world.clients[client].stream.as_ref(),
                };
                stream.map(|stream| (stream.id, stream.parent))
            };
            let Some((id, parent)) = of(self) else {
                continue;
            };
            let sent = match parent {
                None => self.brain.as_mut().and_then(|brain| {
                    let message = brain.directives(now, id)?;
                    let knows = self.controller_knows.clone();
                    Some((message, generations(brain.kills()), (knows.clone(), knows)))
                }),
                Some(zone) => self.zones[zone].as_mut().and_then(|life| {
                    let message = life.zone.directives(now, id)?;
                    let kills = generations(life.zone.kills());
                    Some((message, kills, life.knowledge()))
                }),
            };
            let Some((message, kills, (knows, certain))) = sent else {
                continue;
            };
            let stream = match child.checked_sub(ZONES) {
                None => self.zones[child]
                    .as_mut()
                    .and_then(|life| life.stream.as_mut()),
                Some(client) => self.clients[client].stream.as_mut(),
            };
            if let Some(stream) = stream {
                stream.down.push_back(InFlight {
                    due: self.now + delay,
                    message,
                    knows,
                    certain,
                    kills,
                });
            }
        }
    }

    /// Checks that no client refuses that must not.
    fn check(&mut self, after: &str) {
        for (number, client) in self.clients.iter().enumerate() {
            let Some(stream) = &client.stream else {
                continue;
            };
            let Some(life) = stream.parent.and_then(|zone| self.zones[zone].as_ref()) else {
                continue;
            };
            for (at, key) in client.keys.iter().enumerate() {
                let peek = key.peek();
                if !(peek.enforced && peek.ratio.as_f64() > 0.0) {
                    continue;
                }
                self.refusing += 1;
                let order = |id: usize| &self.orders[id];
                let is_due = |known: &Known| known.since.max(stream.began) + ALLOWED <= self.now;
                let reached = life.knows.iter().filter(|(_, known)| is_due(known));
                let reached: Vec<(usize, Known)> = reached
                    .map(|(id, known)| (*id, *known))
                    .filter(|(id, _)| concerns(&order(*id).scope, BUCKETS[at]))
                    .collect();
                let covers = |(_, knew, generations): &Promotion| {
                    reached.iter().all(|(id, known)| {
                        let generation =
                            generations[usize::from(order(*id).scope.bucket().is_some())];
                        let by_number = !known.certain || order(*id).ambiguous;
                        knew.contains(id) || by_number && generation >= known.generation
                    })
                };
                assert!(
                    self.promotions[at].iter().any(covers),
                    "at {} ms, after {after}: client {number} refuses {} although orders {:?} have reached its \
                     aggregator {:?} and none of the decisions {:?} knew them; it holds {:?}",
                    self.now,
                    BUCKETS[at],
                    reached.iter().map(|(id, _)| id).collect::<Vec<_>>(),
                    stream.parent,
                    self.promotions[at],
                    life.zone.kills().of(&bucket(BUCKETS[at])),
                );
            }
        }
    }
}

/// Returns the sender's known orders that the receiver of a message learns: orders for scopes
/// without a later generation at the receiver, and for scopes in the message.
fn taken<M>(
    orders: &[Order],
    sent: &InFlight<M>,
    named: &BTreeSet<Scope>,
    held: impl Fn(&Scope) -> u64,
) -> Vec<usize> {
    let takes = |id: &&usize| {
        let scope = &orders[**id].scope;
        sent.kills[scope] >= held(scope) || named.contains(scope)
    };
    sent.knows.iter().filter(takes).copied().collect()
}

/// Returns true if an order counted at the receiver of a report: the report names it, or the
/// receiver holds its generation now.
fn counts(
    orders: &[Order],
    sent: &InFlight<Report>,
    named: &BTreeSet<Scope>,
    held: impl Fn(&Scope) -> u64,
    id: usize,
) -> bool {
    let scope = &orders[id].scope;
    named.contains(scope) || held(scope) >= sent.kills[scope]
}

#[test]
fn no_client_refuses_after_a_kill() {
    let mut refusing = 0;
    let (mut orders, mut promoted) = (0, 0);
    for seed in 0..TRACES {
        let mut world = World::new(seed);
        while world.now < LENGTH {
            world.step();
        }
        refusing += world.refusing;
        orders += world.orders.len();
        promoted += world.promotions.iter().map(Vec::len).sum::<usize>() - 2;
    }
    // The traces must have refusals between kills, kills and promotions, or the checks prove nothing.
    assert!(
        refusing > 100_000 && orders > 1_000 && promoted > 1_000,
        "{refusing} {orders} {promoted}"
    );
}

/// Proves that the check fails for a client that enforces by an earlier decision.
#[test]
#[should_panic(expected = "none of the decisions")]
fn client_that_forgets_a_kill_is_detected() {
    for seed in 0..50 {
        let mut world = World::new(seed);
        while world.now < LENGTH {
            // Clients are sent neither the generations nor the knowledge of the decisions.
            for stream in world
                .clients
                .iter_mut()
                .filter_map(|client| client.stream.as_mut())
            {
                for InFlight { message, .. } in &mut stream.down {
                    (message.kills.fleet, message.kills.buckets) =
                        (KillGeneration(0), BTreeMap::new());
                    for directive in &mut message.buckets {
                        directive.terms.kill = Kill::default();
                        directive.terms.mode = plimsoll_core::decision::Mode::Enforce;
                    }
                }
            }
            world.step();
        }
    }
}
