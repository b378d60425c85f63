//! Targets for one hostile child among honest ones: regardless of its reports, honest children are
//! served, every parent accepts the roll-ups of the aggregators below it, and no mode changes.
//!
//! The input is a script. The hostile child behaves honestly, except that it adds fields of any
//! value to its reports, restarts its stream, and sees aggregators restart.

mod tree;

use plimsoll_core::exchange::Child;

use crate::schema;
use crate::script::Script;
use tree::{Place, Tree};

use super::tiers;

/// Maximum steps of a script: an input's time stays far below its bar.
const STEPS_MAX: usize = 40;

/// A client among others of its zone. It keeps its identity: without certificates it could be any
/// client's.
pub(super) fn client(data: &[u8]) {
    let (limiter, mut subscription) = tiers::client(100, "zone-a");
    let key = limiter.bucket("checkout").unwrap().key("acme");
    attack(
        data,
        &[Place::ZoneA, Place::Lower],
        &mut subscription,
        &["identity"],
        || {
            let _ = key.check();
        },
    );
}

/// An aggregator next to others. Every aggregator may end enforcement by its own order, so it gives
/// none.
pub(super) fn aggregator(data: &[u8]) {
    let mut zone = tiers::zone(100, "zone-c");
    attack(
        data,
        &[Place::Controller, Place::Upper],
        &mut zone,
        &["identity", "kill_orders"],
        || (),
    );
}

fn attack(
    data: &[u8],
    places: &[Place],
    hostile: &mut impl Child,
    without: &[&str],
    admit: impl Fn(),
) {
    let mut script = Script(data);
    let place = *script.choose(places);
    let mut tree = Tree::new();
    tree.settle();
    let mut stream = tree.open(hostile);
    for _ in 0..STEPS_MAX {
        if script.0.is_empty() {
            break;
        }
        match script.below(16) {
            0 => tree.restart(Place::ZoneA),
            1 => tree.restart(Place::Lower),
            2 => tree.restart(Place::Upper),
            3 => {
                tree.close(place, &stream);
                stream = tree.open(hostile);
            }
            // Time without a report.
            4 => {}
            fields => {
                admit();
                let forged: Vec<u8> = (5..fields)
                    .flat_map(|_| schema::field("Report", without, &mut script))
                    .collect();
                let counts = (script.below(2) == 1).then(|| script.number());
                if !tree.report(place, &mut stream, hostile, &forged, counts) {
                    tree.close(place, &stream);
                    stream = tree.open(hostile);
                }
            }
        }
        tree.step();
    }
    tree.close(place, &stream);
    tree.settle();
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_proto::wire;
    use prost::Message;

    #[test]
    fn claims_of_an_aggregator_change_no_mode() {
        for forged in [
            wire::Report {
                kill_generation: 417_915,
                ..wire::Report::default()
            },
            wire::Report {
                epoch: Some(u64::MAX - 1),
                ..wire::Report::default()
            },
            wire::Report {
                drill: u64::MAX,
                claimed_drill: u64::MAX,
                ..wire::Report::default()
            },
        ] {
            let mut hostile = tiers::zone(100, "zone-c");
            let mut tree = Tree::new();
            tree.settle();
            let mut stream = tree.open(&mut hostile);
            for _ in 0..10 {
                if !tree.report(
                    Place::Controller,
                    &mut stream,
                    &mut hostile,
                    &forged.encode_to_vec(),
                    None,
                ) {
                    stream = tree.open(&mut hostile);
                }
                tree.step();
            }
            tree.settle();
        }
    }

    #[test]
    fn honest_script_breaks_no_rule() {
        for target in [client, aggregator] {
            target(&[0, 5, 5, 3, 5, 4, 4, 0, 5, 1, 5, 2, 5]);
        }
    }
}
