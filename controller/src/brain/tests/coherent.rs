//! The coin key of the fleet, which is sent to zones with coherent coins.

use super::*;
use plimsoll_core::decision::coherent::{Coherence, CoinKey};

const KEY: CoinKey = CoinKey::from_bytes([7; 16]);

fn coin(name: &str) -> Arc<Policy> {
    policy(&enforced_with(&format!(", coin: {name}")))
}

fn with_key() -> DurableState {
    DurableState {
        coin_key: Some(KEY),
        ..DurableState::first_start()
    }
}

fn sent(fleet: &Fleet) -> Vec<Option<Coherence>> {
    let sent = |zone: &Scripted| zone.board.get(&bucket()).unwrap().terms().coherence;
    fleet.zones.iter().map(sent).collect()
}

fn salted(salt: u64) -> Option<Coherence> {
    Some(Coherence { key: KEY, salt })
}

#[test]
fn only_coherent_coins_are_sent_the_key() {
    for (name, due) in [("coherent", salted(1)), ("dithered", None)] {
        let mut fleet = Fleet::restored(with_key(), coin(name), two_zones());
        fleet.run(1.0);
        assert_eq!(sent(&fleet), [due, due], "{name}");
    }
    let mut fleet = Fleet::new(coin("coherent"), two_zones());
    fleet.run(1.0);
    assert_eq!(sent(&fleet), [None, None], "without a key none is sent");
}

#[test]
fn key_follows_a_change_of_coins() {
    let mut fleet = Fleet::restored(with_key(), coin("dithered"), two_zones());
    fleet.run(1.0);
    for (name, due) in [("coherent", salted(1)), ("dithered", None)] {
        fleet.brain.on_policy(coin(name));
        fleet.run(1.0);
        assert_eq!(sent(&fleet), [due, due], "{name}");
    }
}
