//! Whatever children report, the sums of the zone stay such that its parent accepts them.

use plimsoll_core::names::KeyId;
use plimsoll_core::report::Books;
use plimsoll_proto::wire;
use plimsoll_proto::{ReportDecoder, ReportEncoder};
use prost::Message as _;

use super::scripted::CONTROLLER;
use super::*;

/// The books of a controller that is sent every roll-up of a zone.
struct Controller {
    books: Books,
    keys: Vec<Key>,
    /// Requests counted, by key.
    counted: Vec<u64>,
    seq: u64,
}

impl Controller {
    fn new() -> Self {
        Self { books: Books::new(CONTROLLER, 1_000), keys: Vec::new(), counted: Vec::new(), seq: 0 }
    }

    /// Takes a roll-up of the zone and confirms it.
    fn take(&mut self, zone: &mut Zone, now: MonoTime) {
        let report = zone.report(now);
        self.enter(now, &report);
        self.confirm(zone, now, report.seq);
    }

    fn confirm(&mut self, zone: &mut Zone, now: MonoTime, covered: u64) {
        self.seq += 1;
        zone.on_directives(now, Script::nothing().message(self.seq, covered)).unwrap();
    }

    fn enter(&mut self, now: MonoTime, report: &Report) {
        let (keys, counted) = (&mut self.keys, &mut self.counted);
        let intern = |key: &Key| {
            let known = keys.iter().position(|known| known == key);
            Some(KeyId(known.unwrap_or_else(|| {
                keys.push(key.clone());
                counted.push(0);
                keys.len() - 1
            }) as u32))
        };
        let entered = self.books.enter(now, report, intern).expect("the roll-up is accepted");
        for entry in entered.entries {
            self.counted[entry.own.unwrap().index()] += entry.delta.counts.offered;
        }
    }
}

/// A zone that a controller has answered.
fn led() -> (Zone, Controller) {
    let (mut zone, mut controller) = (zone(), Controller::new());
    controller.take(&mut zone, at(0));
    (zone, controller)
}

/// Counts of two clients, each sound, of which the sums exceed 64 bits in different columns.
fn huge(instance: u128) -> Counts {
    let most = u64::MAX / 4 * 3;
    if instance == 1 {
        Counts { offered: most, dropped: most, ..Counts::ZERO }
    } else {
        Counts { offered: most, would_dropped: most, ..Counts::ZERO }
    }
}

#[test]
fn roll_up_is_accepted_after_two_reports_whose_sum_exceeds_64_bits() {
    let (mut zone, mut controller) = led();
    for instance in [1, 2] {
        let mut client = Client::new(instance);
        client.send_report(&mut zone, at(100));
        *client.counts("acme") = huge(instance);
        client.send_report(&mut zone, at(200));
    }
    controller.take(&mut zone, at(500));
    let mut honest = Client::new(3);
    honest.counts("acme").offered = 10;
    honest.send_report(&mut zone, at(600));
    controller.take(&mut zone, at(1_000));
}

/// Passes a report over the wire.
fn over_wire(encoder: &mut ReportEncoder, decoder: &mut ReportDecoder, report: &Report) -> Report {
    let [part] = encoder.encode(report).try_into().unwrap();
    let part = wire::Report::decode(part.encode_to_vec().as_slice()).unwrap();
    decoder.decode(part).unwrap().unwrap()
}

#[test]
fn roll_up_is_accepted_after_two_such_reports_as_bytes() {
    let (mut zone, mut controller) = (zone(), Controller::new());
    let (mut encoder, mut decoder) = (ReportEncoder::default(), ReportDecoder::default());
    let mut roll_up = |zone: &mut Zone, now: MonoTime| {
        let report = over_wire(&mut encoder, &mut decoder, &zone.report(now));
        controller.enter(now, &report);
        controller.confirm(zone, now, report.seq);
    };
    roll_up(&mut zone, at(0));
    for instance in [1, 2] {
        let mut client = Client::new(instance);
        let (mut encoder, mut decoder) = (ReportEncoder::default(), ReportDecoder::default());
        for now in [100, 200] {
            let report = over_wire(&mut encoder, &mut decoder, &client.report(at(now)));
            zone.on_report(at(now), client.stream, report).unwrap();
            *client.counts("acme") = huge(instance);
        }
    }
    roll_up(&mut zone, at(500));
    roll_up(&mut zone, at(1_000));
}

/// A cumulative count may be sound on each report while its increase is not, such as requests that were
/// offered before a tenant had a key of its own and refused afterwards.
#[test]
fn roll_up_is_accepted_after_refusals_of_requests_that_another_key_counted() {
    let bounds = Bounds { tenants_per_bucket_max: 2, ..Bounds::default() };
    let mut zone = Zone::new(identity(Role::Aggregator, 100), bounds, Parameters::default());
    zone.on_open(at(0));
    let mut controller = Controller::new();
    controller.take(&mut zone, at(0));
    let mut client = Client::new(1);
    client.counts("acme").offered = 1;
    client.send_report(&mut zone, at(100));
    // There is no room for a key of this tenant yet.
    client.counts("late").offered = 1_000;
    client.send_report(&mut zone, at(200));
    let late = Key { bucket: bucket(), tenant: tenant("late") };
    assert_eq!(zone.keys.get(&late), None);
    // `acme` is evicted for it.
    let mut now = 200;
    while zone.keys.get(&late).is_none() {
        now += 100;
        assert!(now < 200_000, "the tenant never got a key");
        client.counts("late").offered += 50;
        client.send_report(&mut zone, at(now));
        zone.on_tick(at(now));
        controller.take(&mut zone, at(now));
    }
    let late = client.counts("late");
    late.dropped = late.offered;
    client.send_report(&mut zone, at(now + 100));
    controller.take(&mut zone, at(now + 500));
}
