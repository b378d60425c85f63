//! What coherent coins draw by: one key for the whole fleet, told to those who need it.

use super::*;
use plimsoll_core::decision::coherent::{Coherence, CoinKey};

const KEY: CoinKey = CoinKey::from_bytes([7; 16]);

fn coin(name: &str) -> Arc<Policy> {
    policy(&enforced_with(&format!(", coin: {name}")))
}

fn with_key() -> Durable {
    Durable { coin_key: Some(KEY), ..Durable::first_start() }
}

fn told(fleet: &Fleet) -> Vec<Option<Coherence>> {
    let told = |zone: &Scripted| zone.board.get(&bucket()).unwrap().terms().coherence;
    fleet.zones.iter().map(told).collect()
}

fn salted(salt: u64) -> Option<Coherence> {
    Some(Coherence { key: KEY, salt })
}

#[test]
fn every_zone_is_told_the_fleets_key_and_only_where_a_coin_is_coherent() {
    for (name, due) in [("coherent", salted(1)), ("dithered", None), ("independent", None)] {
        let mut fleet = Fleet::knowing(with_key(), coin(name), two_zones());
        fleet.run(1.0);
        assert_eq!(told(&fleet), [due, due], "{name}");
    }
    let mut fleet = Fleet::new(coin("coherent"), two_zones());
    fleet.run(1.0);
    assert_eq!(told(&fleet), [None, None], "where there is no key, none is told");
}

#[test]
fn a_policy_that_makes_the_coin_coherent_tells_the_key_and_takes_it_back() {
    let mut fleet = Fleet::knowing(with_key(), coin("dithered"), two_zones());
    fleet.run(1.0);
    for (name, due) in [("coherent", salted(1)), ("dithered", None)] {
        fleet.brain.on_policy(coin(name));
        fleet.run(1.0);
        assert_eq!(told(&fleet), [due, due], "{name}");
    }
}

#[test]
fn the_key_outlives_a_restart_and_the_salt_is_the_epoch() {
    let mut fleet = Fleet::knowing(with_key(), coin("coherent"), two_zones());
    fleet.run(1.0);
    fleet.restarts();
    fleet.run(1.0);
    assert_eq!(told(&fleet), [salted(2), salted(2)]);
    // A child has heard of a later reign: this one goes above it, and so does the salt.
    fleet.zones[0].epoch = Some(Epoch(9));
    fleet.run(1.0);
    assert_eq!(fleet.brain.durable().epoch, Epoch(10));
    assert_eq!(told(&fleet), [salted(10), salted(10)]);
}
