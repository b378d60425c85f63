//! A controller, aggregators next to and above each other, and honest clients, which the hostile
//! child must not break.

use plimsoll_aggregator::zone::Zone;
use plimsoll_client::internals::{KeyHandle, Subscription};
use plimsoll_controller::brain::Brain;
use plimsoll_core::exchange::{Child, Parent, StreamId};
use plimsoll_core::quantity::MonoTime;
use plimsoll_proto::{DirectivesDecoder, ReportDecoder, ReportEncoder, wire};
use prost::Message as _;

use crate::targets::tiers::{self, Link, START, later, plain_brain, save};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Controller,
    ZoneA,
    Upper,
    Lower,
}

/// The controller; below it zone A with a client, and an upper aggregator with a lower one. The
/// lower aggregator has a client.
pub(super) struct Tree {
    now: MonoTime,
    brain: Brain,
    /// Zone A, the upper and the lower aggregator.
    zones: [Zone; 3],
    up: [Link; 3],
    clients: [Honest; 2],
    streams: u64,
    /// Each restart has a new instance.
    restarts: u128,
    /// Steps until honest clients must enforce.
    grace: usize,
}

struct Honest {
    subscription: Subscription,
    key: KeyHandle,
    link: Link,
    zone: usize,
}

pub(super) struct Stream {
    id: StreamId,
    encoder: ReportEncoder,
    decoder: ReportDecoder,
    directives: DirectivesDecoder,
}

/// Maximum steps until honest clients are served again after a restart or the end of the attack.
const SETTLE: usize = 60;
const ZONE_NAMES: [&str; 3] = ["zone-a", "zone-b", "zone-b"];

impl Tree {
    pub(super) fn new() -> Self {
        let now = START;
        let mut zones = [0, 1, 2].map(|at| tiers::zone(2 + at as u128, ZONE_NAMES[at]));
        let mut streams = 0;
        let mut next = || {
            streams += 1;
            streams
        };
        let up = zones.each_mut().map(|zone| Link::open(next(), zone, now));
        let clients = [0, 2].map(|zone| Honest::new(10 + zone as u128, zone, next(), now));
        Self {
            now,
            brain: plain_brain(now),
            zones,
            up,
            clients,
            streams,
            restarts: 0,
            grace: usize::MAX,
        }
    }

    /// Lets honest processes work until every client enforces, for at most [`SETTLE`] steps, and a
    /// second more.
    pub(super) fn settle(&mut self) {
        self.grace = SETTLE;
        while !self.clients.iter().all(|client| client.key.peek().enforced) {
            self.step();
        }
        self.grace = 0;
        (0..10).for_each(|_| self.step());
    }

    pub(super) fn step(&mut self) {
        self.now = later(self.now, 100);
        let now = self.now;
        for client in &mut self.clients {
            let _ = client.key.check();
            client.subscription.on_tick(now);
            let zone = &mut self.zones[client.zone];
            let served = client.link.exchange(&mut client.subscription, zone, now);
            served.unwrap_or_else(|error| panic!("an honest client is refused: {error}"));
        }
        let [zone_a, upper, lower] = &mut self.zones;
        let [up_a, up_upper, up_lower] = &mut self.up;
        let brain = &mut self.brain;
        for zone in [&mut *zone_a, &mut *upper, &mut *lower] {
            zone.on_tick(now);
        }
        let refused = |error| panic!("a roll-up is refused: {error}");
        up_lower.exchange(lower, upper, now).unwrap_or_else(refused);
        up_upper.exchange(upper, brain, now).unwrap_or_else(refused);
        up_a.exchange(zone_a, brain, now).unwrap_or_else(refused);
        brain.on_tick(now, 1_800_000_000);
        save(brain);
        self.grace = self.grace.saturating_sub(1);
        for client in &self.clients {
            assert!(
                self.grace > 0 || client.key.peek().enforced,
                "the mode of an honest client changed"
            );
        }
    }

    /// Restarts an aggregator, which forgets everything. Its children and its parent see new
    /// streams.
    pub(super) fn restart(&mut self, place: Place) {
        let at = match place {
            Place::Controller => return,
            Place::ZoneA => 0,
            Place::Upper => 1,
            Place::Lower => 2,
        };
        let stream = self.up[at].stream;
        if at == 2 {
            self.zones[1].on_close(self.now, stream);
        } else {
            self.brain.on_close(self.now, stream);
        }
        self.restarts += 1;
        self.zones[at] = tiers::zone(1_000 + self.restarts, ZONE_NAMES[at]);
        self.up[at] = Link::open(self.next_stream(), &mut self.zones[at], self.now);
        if at == 1 {
            self.up[2] = Link::open(self.next_stream(), &mut self.zones[2], self.now);
        }
        for index in 0..self.clients.len() {
            if self.clients[index].zone == at {
                let stream = self.next_stream();
                let client = &mut self.clients[index];
                client.link = Link::open(stream, &mut client.subscription, self.now);
            }
        }
        // Modes may be unknown until the aggregator has a controller again.
        self.grace = SETTLE;
    }

    fn next_stream(&mut self) -> u64 {
        self.streams += 1;
        self.streams
    }

    pub(super) fn open(&mut self, hostile: &mut impl Child) -> Stream {
        hostile.on_open(self.now);
        Stream {
            id: StreamId(self.next_stream()),
            encoder: ReportEncoder::default(),
            decoder: ReportDecoder::default(),
            directives: DirectivesDecoder::default(),
        }
    }

    /// Sends a report of the hostile child with forged fields after its own, and with this number
    /// in place of each of its counts; returns false if its stream has ended.
    pub(super) fn report(
        &mut self,
        place: Place,
        stream: &mut Stream,
        hostile: &mut impl Child,
        forged: &[u8],
        counts: Option<u64>,
    ) -> bool {
        let now = self.now;
        for mut part in stream.encoder.encode(&hostile.report(now)) {
            if let Some((columns, count)) = part.count_deltas.as_mut().zip(counts) {
                columns
                    .offered
                    .iter_mut()
                    .chain(&mut columns.dropped)
                    .for_each(|number| *number = count);
            }
            let mut bytes = part.encode_to_vec();
            if !part.more {
                bytes.extend(forged);
            }
            let Ok(part) = wire::Report::decode(bytes.as_slice()) else {
                return false;
            };
            let taken = match stream.decoder.decode(part) {
                Ok(Some(report)) => self.parent(place).on_report(now, stream.id, report).is_ok(),
                decoded => decoded.is_ok(),
            };
            if !taken {
                return false;
            }
        }
        while let Some(message) = self.parent(place).message(now, stream.id) {
            for part in plimsoll_proto::encode_directives(message) {
                let mut bytes = Vec::new();
                part.encode(&mut bytes);
                let part = wire::Directives::decode(bytes.as_slice()).unwrap();
                if let Ok(Some(directives)) = stream.directives.decode(part) {
                    let _ = hostile.on_directives(now, directives);
                }
            }
        }
        true
    }

    pub(super) fn close(&mut self, place: Place, stream: &Stream) {
        let now = self.now;
        self.parent(place).on_close(now, stream.id);
    }

    fn parent(&mut self, place: Place) -> &mut dyn Parent {
        match place {
            Place::Controller => &mut self.brain,
            Place::ZoneA => &mut self.zones[0],
            Place::Upper => &mut self.zones[1],
            Place::Lower => &mut self.zones[2],
        }
    }
}

impl Honest {
    fn new(instance: u128, zone: usize, stream: u64, now: MonoTime) -> Self {
        let (limiter, mut subscription) = tiers::client(instance, ZONE_NAMES[zone]);
        let key = limiter.bucket("checkout").unwrap().key("default");
        let link = Link::open(stream, &mut subscription, now);
        Self {
            subscription,
            key,
            link,
            zone,
        }
    }
}
