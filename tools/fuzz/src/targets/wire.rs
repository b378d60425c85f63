//! Targets for messages of peers: bytes through the decoder into a state machine, which must stay a
//! good child of its parent, and a good parent of its other children.

use plimsoll_aggregator::zone::Zone;
use plimsoll_client::Request;
use plimsoll_core::exchange::{Child, Parent, StreamId};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::Role;
use plimsoll_proto::{DirectivesDecoder, MESSAGE_BYTES_MAX, ReportDecoder, wire};
use prost::Message as _;

use crate::mutation::{framed, frames};

use super::tiers::{Link, START, client, identity, later, plain_brain, save, zone};

const FOREIGN: StreamId = StreamId(99);

/// One message, the first on its stream or the second.
pub(super) fn report(data: &[u8]) {
    reports([data].into_iter());
    reports([greeting().as_slice(), data].into_iter());
}

/// Messages on one stream, each after its length as two bytes.
pub(super) fn parts(data: &[u8]) {
    reports(frames(data));
}

/// Messages between an honest client, the zone above it, and their parents.
fn conversations() -> [Link; 2] {
    let mut now = START;
    let (mut zone, mut brain) = (zone(2, "zone-a"), plain_brain(now));
    let (limiter, mut honest) = client(9, "zone-a");
    let bucket = limiter.bucket("checkout").unwrap();
    let mut down = Link::open(1, &mut honest, now);
    let mut up = Link::open(1, &mut zone, now);
    for step in 0..12 {
        now = later(now, 100);
        for tenant in ["default", "acme", "globex"] {
            for _ in 0..step {
                let _ = limiter.check(&Request::new(&bucket, tenant));
            }
        }
        honest.on_tick(now);
        zone.on_tick(now);
        down.exchange(&mut honest, &mut zone, now).unwrap();
        brain.on_tick(now, 1_800_000_000);
        save(&mut brain);
        up.exchange(&mut zone, &mut brain, now).unwrap();
    }
    [down, up]
}

pub(super) fn report_seeds() -> Vec<Vec<u8>> {
    conversations()
        .into_iter()
        .flat_map(|link| link.up.into_iter().take(3))
        .collect()
}

pub(super) fn parts_seeds() -> Vec<Vec<u8>> {
    conversations()
        .iter()
        .map(|link| framed(&link.up))
        .collect()
}

pub(super) fn directives_seeds() -> Vec<Vec<u8>> {
    conversations()
        .iter()
        .map(|link| framed(&link.down))
        .collect()
}

fn greeting() -> Vec<u8> {
    let identity = identity(Role::Client, 9, "zone-a");
    wire::Report {
        seq: 1,
        identity: Some(wire::Identity {
            instance: identity.instance.0.to_be_bytes().to_vec(),
            name: identity.name.to_string(),
            service: identity.service.to_string(),
            zone: identity.zone.to_string(),
            role: wire::Role::Client.into(),
        }),
        ..wire::Report::default()
    }
    .encode_to_vec()
}

fn reports<'a>(messages: impl Iterator<Item = &'a [u8]>) {
    let mut now = START;
    let (mut zone, mut brain) = (zone(2, "zone-a"), plain_brain(now));
    let (limiter, mut honest) = client(3, "zone-a");
    let bucket = limiter.bucket("checkout").unwrap();
    let mut decoder = ReportDecoder::default();
    let mut down = Link::open(1, &mut honest, now);
    let mut up = Link::open(1, &mut zone, now);
    let mut step = |now: &mut MonoTime, zone: &mut Zone| {
        *now = later(*now, 100);
        let _ = limiter.check(&Request::new(&bucket, "default"));
        honest.on_tick(*now);
        zone.on_tick(*now);
        down.exchange(&mut honest, zone, *now)
            .unwrap_or_else(|error| panic!("an honest client: {error}"));
        brain.on_tick(*now, 1_800_000_000);
        save(&mut brain);
        up.exchange(zone, &mut brain, *now)
            .unwrap_or_else(|error| panic!("a roll-up: {error}"));
    };
    step(&mut now, &mut zone);
    for message in messages {
        if message.len() > MESSAGE_BYTES_MAX || !take(&mut zone, &mut decoder, now, message) {
            break;
        }
        let _ = zone.message(now, FOREIGN);
        step(&mut now, &mut zone);
    }
    zone.on_close(now, FOREIGN);
    for _ in 0..3 {
        step(&mut now, &mut zone);
    }
}

/// Returns false if the stream has to end.
fn take(zone: &mut Zone, decoder: &mut ReportDecoder, now: MonoTime, message: &[u8]) -> bool {
    let Ok(part) = wire::Report::decode(message) else {
        return false;
    };
    match decoder.decode(part) {
        Ok(Some(report)) => zone.on_report(now, FOREIGN, report).is_ok(),
        Ok(None) => true,
        Err(_) => false,
    }
}

/// Messages of a parent, each after its length as two bytes, for a client and for an aggregator
/// with a client.
pub(super) fn directives(data: &[u8]) {
    let mut now = START;
    let (limiter, mut leaf) = client(3, "zone-a");
    let (below, mut child) = client(4, "zone-a");
    let mut zone = zone(2, "zone-a");
    let keys = [&limiter, &below].map(|limiter| limiter.bucket("checkout").unwrap().key("default"));
    let mut down = Link::open(1, &mut child, now);
    leaf.on_open(now);
    zone.on_open(now);
    let mut decoders = [DirectivesDecoder::default(), DirectivesDecoder::default()];
    for message in frames(data).filter(|message| message.len() <= MESSAGE_BYTES_MAX) {
        now = later(now, 100);
        let _ = (leaf.report(now), zone.report(now));
        for (at, decoder) in decoders.iter_mut().enumerate() {
            let Ok(part) = wire::Directives::decode(message) else {
                return;
            };
            let Ok(decoded) = decoder.decode(part) else {
                return;
            };
            if let Some(directives) = decoded {
                let _ = if at == 0 {
                    leaf.on_directives(now, directives)
                } else {
                    zone.on_directives(now, directives)
                };
            }
        }
        for key in &keys {
            let _ = (key.check(), key.peek());
        }
        leaf.on_tick(now);
        child.on_tick(now);
        zone.on_tick(now);
        down.exchange(&mut child, &mut zone, now)
            .unwrap_or_else(|error| panic!("a client below: {error}"));
    }
}
