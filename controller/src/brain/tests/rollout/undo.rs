//! Undone policies: they stay held back over restarts until their files change.

use super::*;
use crate::brain::UndoError;

const WHY: &str = "undone by ann: too many refusals";

fn undone() -> (Fleet, [Arc<Policy>; 2]) {
    let policies = ["limit: 1000, mode: enforce", "limit: 600, mode: shadow"]
        .map(|api| two_buckets(api, 9, "guardrails: off\n"));
    let [before, after] = &policies;
    let mut fleet = settled(Arc::clone(before));
    assert!(matches!(fleet.brain.undoable(), Err(UndoError::Nothing)));
    assert_eq!(fleet.brain.offer(Arc::clone(after)), Offer::Taken);
    let undone = fleet.brain.undo(Arc::clone(before), WHY.to_owned());
    undone.unwrap();
    (fleet, policies)
}

#[test]
fn undone_policy_is_held_over_restarts() {
    let (mut fleet, [before, after]) = undone();
    for _ in 0..2 {
        assert_eq!(fleet.brain.policy().hash(), before.hash());
        assert_eq!(held(&fleet), [WHY]);
        // Guardrails are off, and its mode is no order any more.
        assert_eq!(fleet.brain.durable().stages["api"].file, Mode::Enforce);
        fleet.restarts();
        assert_eq!(fleet.brain.offer(Arc::clone(&after)), Offer::Held);
    }
    assert!(matches!(fleet.brain.undoable(), Err(UndoError::Nothing)));
    let hash = after.hash();
    assert_eq!(fleet.brain.acknowledge(&hash.to_string(), hash), Ok(hash));
    fleet.restarts();
    assert_eq!(fleet.brain.offer(after), Offer::Taken);
}

#[test]
fn another_file_ends_the_hold_of_an_undo() {
    let (mut fleet, [before, after]) = undone();
    assert_eq!(fleet.brain.offer(Arc::clone(&before)), Offer::Taken);
    assert!(fleet.brain.policies.held.is_none());
    assert_eq!(fleet.brain.offer(after), Offer::Taken);
}

#[test]
fn undo_ends_no_kill_and_follows_no_later_change() {
    let kills = |on: bool| {
        policy(&format!(
            "kill_switch: {on}\nbuckets: {{ api: {{ limit: 1 }} }}\n"
        ))
    };
    let mut fleet = settled(kills(false));
    fleet.brain.offer(kills(true));
    assert!(matches!(fleet.brain.undoable(), Err(UndoError::Kill)));
    fleet.brain.offer(of("enforce", ""));
    let late = fleet.brain.undo(kills(false), WHY.to_owned());
    assert!(matches!(late, Err(UndoError::Changed)));
}
