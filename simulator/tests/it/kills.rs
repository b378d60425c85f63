//! The kill switch over random traces of the real state machines: processes die and come back, messages come late, twice, out
//! of order or never, people kill, end kills and resume wherever they can, also where nobody else hears of it. At every event
//! no client refuses that should not.
//!
//! What should not is worked out apart from generations, by who knows of which order. An order is known where it was given,
//! and to whoever takes up a message of somebody who knows. A person who raises a mode at the controller decides for all
//! orders that are known there. So a client may refuse if such a decision, or the beginning, knew all orders that its
//! aggregator has known for two seconds.
//!
//! Of some orders an aggregator has heard only that a number has moved: from a client, which does not say who gave them, or
//! because whoever could say so has died. There another order may have come to the same number, or to a later one, and a
//! decision that knew of that number is enough.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use plimsoll_aggregator::zone::{Bounds, Zone};
use plimsoll_client::{KeyHandle, Limiter, Subscription};
use plimsoll_controller::brain::Brain;
use plimsoll_controller::durable::{Command, Durable};
use plimsoll_core::bucket::{Bucket, Name, Zone as ZoneName};
use plimsoll_core::directive::Directives;
use plimsoll_core::exchange::{Child, Parent, StreamId};
use plimsoll_core::kill::{Kill, KillGeneration, Scope};
use plimsoll_core::law::Parameters;
use plimsoll_core::policy::{Policy, Source};
use plimsoll_core::report::{Identity, InstanceId, Report, Role};
use plimsoll_core::text::Text;
use plimsoll_core::time::MonoTime;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const TRACES: u64 = 1_000;
/// Milliseconds of each trace, and of one step.
const LASTS: u64 = 16_000;
const STEP: u64 = 50;
/// So long after an order has reached its aggregator a client may still refuse.
const ALLOWED: u64 = 2_000;
/// The longest that a message takes; what takes longer ends a stream.
const DELAY: u64 = 1_800;
/// The longest that an aggregator is cut off from whoever is above it.
const CUT: u64 = 8_000;
const BUCKETS: [&str; 2] = ["api", "web"];
const ZONES: usize = 3;
const CLIENTS: usize = 5;
/// The aggregator that stands below another one, and which.
const LOWER: usize = 2;
const UPPER: usize = 1;

/// All that one process knows of orders, by their numbers.
type Knowledge = BTreeSet<u64>;

/// How an aggregator knows of an order.
#[derive(Clone, Copy)]
struct Known {
    since: u64,
    /// The generation it came to here.
    generation: u64,
    /// It was told of the order itself, not of a number alone.
    firmly: bool,
}

/// A decision to enforce a bucket: when, what it knew, and which generations, of the fleet and the bucket.
type Raise = (u64, Knowledge, [u64; 2]);

/// A message on its way, and what its sender knew.
#[derive(Clone)]
struct Sent<M> {
    due: u64,
    message: M,
    knows: Knowledge,
    /// Those of them that it knows firmly.
    firmly: Knowledge,
    kills: BTreeMap<Scope, u64>,
}

/// One stream, from the child's end.
struct Stream {
    id: StreamId,
    parent: Option<usize>,
    began: u64,
    up: VecDeque<Sent<Report>>,
    down: VecDeque<Sent<Directives>>,
    next_report: u64,
}

struct ZoneLife {
    zone: Zone,
    instance: u128,
    knows: BTreeMap<u64, Known>,
    stream: Option<Stream>,
}

struct ClientLife {
    subscription: Subscription,
    keys: [KeyHandle; 2],
    knows: Knowledge,
    /// The generations it has heard of.
    kills: BTreeMap<Scope, u64>,
    stream: Option<Stream>,
    retries: u64,
}

/// An order, and where it was given.
struct Order {
    scope: Scope,
    /// It died with the aggregator where it was given before the controller knew: what is left of it is a number, which
    /// another order elsewhere may have come to as well.
    faint: bool,
    given_at: Option<(usize, u128)>,
}

struct World {
    random: SmallRng,
    /// How often people do something, as a multiple of the least.
    haste: f64,
    now: u64,
    streams: u64,
    processes: u128,
    brain: Option<Brain>,
    durable: Durable,
    modes: [bool; 2],
    controller_knows: Knowledge,
    saved_knows: Knowledge,
    zones: Vec<Option<ZoneLife>>,
    /// Until when each aggregator is cut off from above, whatever process it is.
    cut_until: [u64; ZONES],
    clients: Vec<ClientLife>,
    orders: Vec<Order>,
    /// What the decision to enforce each bucket knew, and when it was made: that of the beginning first.
    raises: [Vec<Raise>; 2],
    /// Events after which a client was seen to refuse.
    refusing: u64,
}

/// The policy with each of the buckets in enforcement or in shadow; a limit of zero, so that whoever enforces refuses.
fn policy(modes: [bool; 2]) -> Arc<Policy> {
    static ALL: LazyLock<Vec<Arc<Policy>>> = LazyLock::new(|| {
        let read = |number: usize| {
            let mode = |bit: usize| if number & bit != 0 { "enforce" } else { "shadow" };
            let text = format!(
                "buckets: {{ api: {{ limit: 0, mode: {} }}, web: {{ limit: 0, mode: {} }} }}\n\
                 rollout: {{ require_gates: false }}\nguardrails: off\n",
                mode(1),
                mode(2)
            );
            let tenants = Source { name: "tenants.yaml", text: "tenants: { default: { weight: 1 } }\n" };
            Arc::new(Policy::read(Source { name: "policy.yaml", text: &text }, tenants).unwrap().0)
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
    [Scope::Fleet, Scope::Bucket(bucket(BUCKETS[0])), Scope::Bucket(bucket(BUCKETS[1]))]
}

fn concerns(scope: &Scope, of: &str) -> bool {
    scope.bucket().is_none_or(|bucket| bucket.as_str() == of)
}

impl ZoneLife {
    /// Notes the orders that a message has brought.
    fn learn(&mut self, orders: &[Order], now: u64, taken: Vec<u64>, firmly: impl Fn(u64) -> bool) {
        for id in taken {
            let generation = self.zone.kills().generation(&orders[usize::try_from(id).unwrap()].scope).0;
            let known = Known { since: now, generation, firmly: firmly(id) };
            let held = self.knows.entry(id).or_insert(known);
            if known.firmly && !held.firmly {
                *held = known;
            }
        }
    }

    /// All that it knows, and what of it firmly.
    fn knowledge(&self) -> (Knowledge, Knowledge) {
        let firmly = self.knows.iter().filter(|(_, known)| known.firmly);
        (self.knows.keys().copied().collect(), firmly.map(|(id, _)| *id).collect())
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            random: SmallRng::seed_from_u64(seed),
            // Where they hurry, two who know nothing of each other come to the same numbers.
            haste: [1.0, 3.0, 10.0][usize::try_from(seed % 3).unwrap()],
            now: 0,
            streams: 0,
            processes: 0,
            brain: None,
            durable: Durable::first_start(),
            modes: [true; 2],
            controller_knows: Knowledge::new(),
            saved_knows: Knowledge::new(),
            zones: Vec::new(),
            cut_until: [0; ZONES],
            clients: Vec::new(),
            orders: Vec::new(),
            raises: std::array::from_fn(|_| vec![(0, Knowledge::new(), [0, 0])]),
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
        ZoneLife { zone, instance, knows: BTreeMap::new(), stream: None }
    }

    fn client(&mut self, number: usize) -> ClientLife {
        let identity = self.identity(&format!("client-{number}"), Role::Client);
        let (limiter, subscription) = Limiter::detached(identity, 16, 0, 1);
        let keys = BUCKETS.map(|name| limiter.bucket(name).unwrap().key("default"));
        let kills = scopes().map(|scope| (scope, 0)).into();
        ClientLife { subscription, keys, knows: Knowledge::new(), kills, stream: None, retries: 0 }
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

    /// What was decided is written down before anybody hears of it.
    fn save(&mut self) {
        let Some(brain) = &mut self.brain else { return };
        if let Some((number, durable)) = brain.unsaved() {
            self.durable = durable;
            brain.on_saved(number);
        }
        self.saved_knows = self.controller_knows.clone();
    }

    /// One step of time.
    fn step(&mut self) {
        self.now += STEP;
        self.faults();
        self.people();
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
        self.clients.iter_mut().for_each(|life| life.subscription.on_tick(now));
        self.tell();
        self.check("a step");
    }

    /// Processes die and come back, streams break.
    fn faults(&mut self) {
        if self.chance(0.004) && self.brain.take().is_some() {
            let above_all = |parent: Option<usize>| parent.is_none();
            for life in self.zones.iter_mut().flatten() {
                life.stream.take_if(|stream| above_all(stream.parent));
            }
            if self.chance(0.1) {
                (self.durable, self.saved_knows) = (Durable::lost(), Knowledge::new());
                self.orders.iter_mut().for_each(|order| order.faint = true);
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
        let Some(life) = self.zones[number].take() else { return };
        if let Some(Stream { id, parent, .. }) = life.stream {
            self.parent_closes(id, parent);
        }
        for other in self.zones.iter_mut().flatten() {
            other.stream.take_if(|stream| stream.parent == Some(number));
        }
        for client in &mut self.clients {
            client.stream.take_if(|stream| stream.parent == Some(number));
        }
        let known = &self.saved_knows;
        for (order, id) in self.orders.iter_mut().zip(0..) {
            let given_there = order.given_at == Some((number, life.instance));
            order.faint |= given_there && !known.contains(&id);
        }
    }

    fn break_uplink(&mut self, number: usize) {
        let stream = self.zones[number].as_mut().and_then(|life| life.stream.take());
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
            None => self.brain.iter_mut().for_each(|brain| brain.on_close(now, stream)),
            Some(number) => {
                self.zones[number].iter_mut().for_each(|life| life.zone.on_close(now, stream));
            }
        }
    }

    /// People kill, end kills, and resume.
    fn people(&mut self) {
        if self.chance(0.012 * self.haste) {
            let scope = scopes()[self.random.random_range(0..3)].clone();
            let ttl = self.chance(0.3).then(|| i64::try_from(self.now / 1_000).unwrap() + 2);
            let place = self.random.random_range(0..=ZONES);
            self.kill(&scope, place, ttl);
        }
        if self.chance(0.012 * self.haste) {
            let scope = scopes()[self.random.random_range(0..3)].clone();
            let place = self.random.random_range(0..=ZONES);
            let now = at(self.now);
            if let Some(Some(life)) = self.zones.get_mut(place) {
                life.zone.turn(now, &scope, false).unwrap();
            } else if let Some(brain) = &mut self.brain {
                brain.on_kill_ends(&scope);
                self.save();
            }
        }
        if self.chance(0.02 * self.haste) {
            let number = self.random.random_range(0..2);
            self.resume(number);
        }
    }

    fn kill(&mut self, scope: &Scope, place: usize, until_s: Option<i64>) {
        let now = at(self.now);
        let id = self.orders.len() as u64;
        let given_at = if let Some(Some(life)) = self.zones.get_mut(place) {
            life.zone.turn(now, scope, true).unwrap();
            let generation = life.zone.kills().generation(scope).0;
            life.knows.insert(id, Known { since: self.now, generation, firmly: true });
            Some((place, life.instance))
        } else if let Some(brain) = &mut self.brain {
            let reason = Some(Text::new("a test").unwrap());
            brain.on_kill(scope, Command { reason, until_s, ..Command::default() }).unwrap();
            self.controller_knows.insert(id);
            self.save();
            None
        } else {
            return;
        };
        self.orders.push(Order { scope: scope.clone(), faint: false, given_at });
    }

    /// Somebody lowers the mode of a bucket in the file, and raises it again.
    fn resume(&mut self, number: usize) {
        let Some(brain) = &mut self.brain else { return };
        self.modes[number] = false;
        brain.on_policy(policy(self.modes));
        self.modes[number] = true;
        brain.on_policy(policy(self.modes));
        let kill = brain.durable().kill_of(&bucket(BUCKETS[number]));
        self.save();
        // While killed it is no decision.
        if !kill.is_on() {
            let generations = [kill.fleet.0, kill.bucket.0];
            self.raises[number].push((self.now, self.controller_knows.clone(), generations));
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

    /// Whoever has no stream begins one, clients to any aggregator.
    fn connect(&mut self) {
        let now = at(self.now);
        for number in 0..ZONES {
            let parent = (number == LOWER).then_some(UPPER);
            let is_there = parent.map_or(self.brain.is_some(), |upper| self.zones[upper].is_some());
            let waits = self.zones[number].as_ref().is_some_and(|life| life.stream.is_none())
                && self.cut_until[number] <= self.now;
            if is_there && waits && self.chance(0.1) {
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

    /// How long a message takes.
    fn delay(&mut self) -> u64 {
        if self.chance(0.03) { self.below(DELAY) } else { self.below(120) }
    }

    /// Messages that are due arrive.
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
            while let Some(sent) = self.arriving_down(|world| world.zones[number].as_mut()?.stream.as_mut()) {
                let (now, ms) = (at(self.now), self.now);
                let Some(life) = &mut self.zones[number] else { break };
                let taken = taken(&self.orders, &sent, &BTreeSet::new(), |scope| {
                    life.zone.kills().generation(scope).0
                });
                let firmly = sent.firmly;
                let _ = life.zone.on_directives(now, sent.message);
                life.learn(&self.orders, ms, taken, |id| firmly.contains(&id));
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
            while let Some(sent) = self.arriving_down(|world| world.clients[number].stream.as_mut()) {
                let now = at(self.now);
                let life = &mut self.clients[number];
                life.knows.extend(taken(&self.orders, &sent, &BTreeSet::new(), |scope| life.kills[scope]));
                let buckets =
                    sent.message.kills.iter().map(|(bucket, kill)| (Scope::Bucket(bucket.clone()), kill.0));
                for (scope, told) in buckets.chain([(Scope::Fleet, sent.message.kill.0)]) {
                    life.kills.entry(scope).and_modify(|held| *held = told.max(*held));
                }
                let _ = life.subscription.on_directives(now, sent.message);
                self.check("a directive at a client");
            }
        }
    }

    /// The next report that is due on a stream. Its order is kept: what does not keep it ends a stream.
    fn arriving_up(
        &mut self,
        stream: impl Fn(&mut Self) -> Option<&mut Stream>,
    ) -> Option<(Sent<Report>, StreamId, Option<usize>)> {
        let now = self.now;
        let twice = self.chance(0.002);
        let stream = stream(self)?;
        let first = stream.up.front().filter(|sent| sent.due <= now)?;
        let sent = if twice { first.clone() } else { stream.up.pop_front()? };
        Some((sent, stream.id, stream.parent))
    }

    /// Any directive that is due, and sometimes one that came before again.
    fn arriving_down(
        &mut self,
        stream: impl Fn(&mut Self) -> Option<&mut Stream>,
    ) -> Option<Sent<Directives>> {
        let now = self.now;
        let (again, later) = (self.chance(0.02), self.below(2_000));
        let stream = stream(self)?;
        let due = stream.down.iter().position(|sent| sent.due <= now)?;
        let sent = stream.down.remove(due)?;
        if again {
            stream.down.push_back(Sent { due: now + STEP + later, ..sent.clone() });
        }
        Some(sent)
    }

    /// A report arrives; false if the stream has to end.
    fn deliver_up(&mut self, sent: &Sent<Report>, id: StreamId, parent: Option<usize>) -> bool {
        let now = at(self.now);
        let report = sent.message.clone();
        let apart: BTreeSet<Scope> = report.ordered.union(&report.ended).cloned().collect();
        let entered = match parent {
            None => {
                let Some(brain) = &mut self.brain else { return false };
                let taken = taken(&self.orders, sent, &apart, |scope| brain.durable().generation(scope).0);
                let entered = brain.on_report(now, id, report).is_ok();
                self.controller_knows.extend(taken.into_iter().filter(|_| entered));
                self.save();
                entered
            }
            Some(number) => {
                let ms = self.now;
                let Some(life) = &mut self.zones[number] else { return false };
                let taken = taken(&self.orders, sent, &apart, |scope| life.zone.kills().generation(scope).0);
                let entered = life.zone.on_report(now, id, report).is_ok();
                if entered {
                    let orders = &self.orders;
                    let is_told = |id| apart.contains(&orders[usize::try_from(id).unwrap()].scope);
                    life.learn(orders, ms, taken, |id| is_told(id) && sent.firmly.contains(&id));
                }
                entered
            }
        };
        self.check("a report");
        entered
    }

    /// Everybody says what there is to say.
    fn tell(&mut self) {
        let now = at(self.now);
        for number in 0..ZONES {
            let delay = self.delay();
            let Some(life) = &mut self.zones[number] else { continue };
            let (knows, firmly) = life.knowledge();
            if let Some(stream) = &mut life.stream
                && stream.next_report <= self.now
            {
                let message = life.zone.report(now);
                let wait = u64::try_from(life.zone.report_interval().as_millis()).unwrap();
                stream.next_report = self.now + wait;
                let kills =
                    scopes().map(|scope| (scope.clone(), life.zone.kills().generation(&scope).0)).into();
                let due = stream.up.back().map_or(0, |last| last.due).max(self.now + delay);
                stream.up.push_back(Sent { due, message, knows, firmly, kills });
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
                let kills = life.kills.clone();
                let due = stream.up.back().map_or(0, |last| last.due).max(self.now + delay);
                let (knows, firmly) = (life.knows.clone(), Knowledge::new());
                stream.up.push_back(Sent { due, message, knows, firmly, kills });
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
            let Some((id, parent)) = of(self) else { continue };
            let said = match parent {
                None => self.brain.as_mut().and_then(|brain| {
                    let message = brain.directives(now, id)?;
                    let kills =
                        scopes().map(|scope| (scope.clone(), brain.kills().generation(&scope).0)).into();
                    Some((message, kills, (self.controller_knows.clone(), self.controller_knows.clone())))
                }),
                Some(zone) => self.zones[zone].as_mut().and_then(|life| {
                    let message = life.zone.directives(now, id)?;
                    let kills =
                        scopes().map(|scope| (scope.clone(), life.zone.kills().generation(&scope).0)).into();
                    Some((message, kills, life.knowledge()))
                }),
            };
            let Some((message, kills, (knows, firmly))) = said else { continue };
            let stream = match child.checked_sub(ZONES) {
                None => self.zones[child].as_mut().and_then(|life| life.stream.as_mut()),
                Some(client) => self.clients[client].stream.as_mut(),
            };
            if let Some(stream) = stream {
                stream.down.push_back(Sent { due: self.now + delay, message, knows, firmly, kills });
            }
        }
    }

    /// Whether anybody refuses who should not.
    fn check(&mut self, after: &str) {
        for (number, client) in self.clients.iter().enumerate() {
            let Some(stream) = &client.stream else { continue };
            let Some(life) = stream.parent.and_then(|zone| self.zones[zone].as_ref()) else { continue };
            for (at, key) in client.keys.iter().enumerate() {
                let outlook = key.peek();
                if !(outlook.enforced && outlook.ratio.as_f64() > 0.0) {
                    continue;
                }
                self.refusing += 1;
                let order = |id: u64| &self.orders[usize::try_from(id).unwrap()];
                let is_due = |known: &Known| known.since.max(stream.began) + ALLOWED <= self.now;
                let reached = life.knows.iter().filter(|(_, known)| is_due(known));
                let reached: Vec<(u64, Known)> = reached
                    .map(|(id, known)| (*id, *known))
                    .filter(|(id, _)| concerns(&order(*id).scope, BUCKETS[at]))
                    .collect();
                let covers = |(_, knew, generations): &Raise| {
                    reached.iter().all(|(id, known)| {
                        let generation = generations[usize::from(order(*id).scope.bucket().is_some())];
                        let by_number = !known.firmly || order(*id).faint;
                        knew.contains(id) || by_number && generation >= known.generation
                    })
                };
                assert!(
                    self.raises[at].iter().any(covers),
                    "at {} ms, after {after}: client {number} refuses {} although orders {:?} have reached its \
                     aggregator {:?} and none of the decisions {:?} knew of them; it holds {:?}",
                    self.now,
                    BUCKETS[at],
                    reached.iter().map(|(id, _)| id).collect::<Vec<_>>(),
                    stream.parent,
                    self.raises[at],
                    life.zone.kills().of(&bucket(BUCKETS[at])),
                );
            }
        }
    }
}

/// The orders that the receiver of a message takes up: of those its sender knew, the ones whose generation it does not hold a
/// later one of, or of which it is told that they were given apart.
fn taken<M>(
    orders: &[Order],
    sent: &Sent<M>,
    apart: &BTreeSet<Scope>,
    held: impl Fn(&Scope) -> u64,
) -> Vec<u64> {
    let takes = |id: &&u64| {
        let scope = &orders[usize::try_from(**id).unwrap()].scope;
        sent.kills[scope] >= held(scope) || apart.contains(scope)
    };
    sent.knows.iter().filter(takes).copied().collect()
}

#[test]
fn nobody_refuses_what_was_killed_whatever_happens() {
    let mut refusing = 0;
    let (mut orders, mut resumed) = (0, 0);
    for seed in 0..TRACES {
        let mut world = World::new(seed);
        while world.now < LASTS {
            world.step();
        }
        refusing += world.refusing;
        orders += world.orders.len();
        resumed += world.raises.iter().map(Vec::len).sum::<usize>() - 2;
    }
    // The traces have shown something: refusals between kills, kills, and people who resume.
    assert!(refusing > 100_000 && orders > 1_000 && resumed > 1_000, "{refusing} {orders} {resumed}");
}

/// The check itself finds a client that goes by an earlier word.
#[test]
#[should_panic(expected = "none of the decisions")]
fn a_client_that_forgets_a_kill_is_found() {
    for seed in 0..50 {
        let mut world = World::new(seed);
        while world.now < LASTS {
            // Everybody forgets in which knowledge modes were decided, and that anything was ever killed.
            for stream in world.clients.iter_mut().filter_map(|client| client.stream.as_mut()) {
                for Sent { message, .. } in &mut stream.down {
                    (message.kill, message.kills) = (KillGeneration(0), BTreeMap::new());
                    for directive in &mut message.buckets {
                        directive.terms.kill = Kill::default();
                        directive.terms.mode = plimsoll_core::rollout::Mode::Enforce;
                    }
                }
            }
            world.step();
        }
    }
}
