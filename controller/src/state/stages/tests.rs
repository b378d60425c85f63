//! Every transition of a stage by the policy file, promotions, aborts, breaches, kills and
//! restarts, as far as only the durable state decides it. The brain's tests add gates and commands.

use std::sync::Arc;

use plimsoll_core::kill::{KillGeneration, Scope};
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::MonoTime;
use plimsoll_policy::Policy;
use serde::de::DeserializeOwned;

use super::*;
use crate::brain::tests;
use crate::state::tests::rows;
use crate::state::{Command, Now};
use Mode::{Canary, Enforce, Shadow};

fn policy(mode: Mode, gates: bool, kill: bool) -> Arc<Policy> {
    tests::policy(&format!(
        "kill_switch: {kill}\nbuckets: {{ b: {{ limit: 1, mode: {mode} }} }}\nrollout: {{ require_gates: {gates} }}\n"
    ))
}

fn at(stage: Mode, file: Mode, pending: Option<Mode>) -> DurableState {
    let mut durable = DurableState::first_start();
    durable.on_policy(&policy(file, false, false));
    let held = durable.stages.get_mut("b").unwrap();
    (held.stage, held.pending) = (stage, pending);
    durable
}

fn read<T: DeserializeOwned>(word: &str) -> T {
    serde_json::from_value(word.into()).unwrap()
}

fn act(durable: &mut DurableState, act: &str) {
    let words: Vec<&str> = act.split(' ').collect();
    let file = durable.stages["b"].file;
    let same = policy(file, true, false);
    match words[..] {
        ["file", to] => durable.on_policy(&policy(read(to), true, false)),
        ["file", to, "ungated"] => durable.on_policy(&policy(read(to), false, false)),
        ["held", to] => durable.on_held(&policy(read(to), true, false), &same),
        ["enter", to, cause] => durable.enter_stage("b", read(to), read(cause), Vec::new()),
        ["kill"] => durable.on_policy(&policy(file, true, true)),
        ["resume"] => durable.on_policy(&same),
        ["kill-alone"] => {
            let alone = Scope::Bucket(Bucket::new("b").unwrap());
            let killed = durable.on_command(&alone, Command::default(), &same);
            killed.unwrap();
        }
        ["learn"] => {
            let killed = KillGeneration(durable.kill.0 + 1).switched(true);
            let now = Now {
                at: MonoTime::ZERO,
                unix_s: None,
            };
            durable.on_report(&killed.into(), true, now, &same);
        }
        ["restart"] => {
            let text = serde_json::to_string(&*durable).unwrap();
            *durable = serde_json::from_str(&text).unwrap();
            durable.on_policy(&same);
        }
        ["loss"] => {
            *durable = DurableState::lost();
            durable.on_policy(&same);
        }
        _ => panic!("{act}"),
    }
}

/// A stage and the mode of the file, with `?` if that waits for gates; an act; both afterwards; and the cause of the change.
const TABLE: &str = "
    // Raising in the file waits for gates, unless none are required.
    shadow / shadow    | file canary           | shadow / canary?   | -
    shadow / shadow    | file enforce          | shadow / enforce?  | -
    canary / canary    | file enforce          | canary / enforce?  | -
    shadow / shadow    | file enforce ungated  | enforce / enforce  | file
    shadow / canary?   | file enforce          | shadow / enforce?  | -
    shadow / enforce?  | file canary           | shadow / canary?   | -
    // Removing the required gates from the file is an order as well.
    shadow / enforce?  | file enforce ungated  | enforce / enforce  | file
    // Lowering takes effect immediately, and withdraws a waiting change.
    enforce / enforce  | file canary           | canary / canary    | file
    enforce / enforce  | file shadow           | shadow / shadow    | file
    canary / enforce?  | file canary           | canary / canary    | -
    shadow / enforce?  | file shadow           | shadow / shadow    | -
    // An entry promoted beyond the mode of the file follows the file once that changes.
    enforce / shadow   | file canary           | canary / canary    | file
    enforce / shadow   | file enforce          | enforce / enforce  | -
    // The same file again is no order.
    shadow / enforce   | file enforce          | shadow / enforce   | -
    shadow / enforce   | file enforce ungated  | shadow / enforce   | -
    enforce / shadow   | file shadow ungated   | enforce / shadow   | -
    // A held policy lowers, and raises nothing.
    enforce / enforce  | held shadow           | shadow / shadow    | file
    enforce / enforce  | held canary           | canary / canary    | file
    shadow / shadow    | held enforce          | shadow / shadow    | -
    shadow / enforce?  | held shadow           | shadow / shadow    | -
    shadow / enforce?  | held enforce          | shadow / enforce?  | -
    // On the way up a pending mode stays pending until the stage reaches it.
    shadow / enforce?  | enter canary gate     | canary / enforce?  | gate
    shadow / canary?   | enter canary gate     | canary / canary    | gate
    canary / enforce?  | enter enforce promote | enforce / enforce  | promote
    canary / shadow    | enter enforce forced  | enforce / shadow   | forced
    // On the way down nothing stays pending: an operator begins anew.
    canary / enforce?  | enter shadow breach   | shadow / enforce   | breach
    canary / enforce?  | enter shadow stale    | shadow / enforce   | stale
    enforce / enforce  | enter shadow abort    | shadow / enforce   | abort
    shadow / enforce?  | enter shadow abort    | shadow / enforce   | abort
    // Every kind of kill leaves shadow behind.
    enforce / enforce  | kill                  | shadow / enforce   | kill
    canary / enforce?  | kill                  | shadow / enforce   | kill
    shadow / enforce?  | kill                  | shadow / enforce   | kill
    shadow / shadow    | kill                  | shadow / shadow    | -
    enforce / shadow   | learn                 | shadow / shadow    | kill
    enforce / enforce  | kill-alone            | shadow / enforce   | kill
    shadow / enforce?  | kill-alone            | shadow / enforce   | kill
    shadow / enforce   | resume                | shadow / enforce   | -
    // A restart changes nothing, and a loss means shadow.
    enforce / shadow   | restart               | enforce / shadow   | -
    canary / enforce?  | restart               | canary / enforce?  | -
    shadow / enforce   | restart               | shadow / enforce   | -
    enforce / enforce  | loss                  | shadow / enforce   | lost
";

#[test]
fn every_transition_has_one_result() {
    for row in rows(TABLE) {
        let [before, edge, after, cause] = row.split('|').map(str::trim).collect::<Vec<_>>()[..]
        else {
            panic!("{row}");
        };
        let (stage, file) = before.split_once(" / ").unwrap();
        let mode = read(file.trim_end_matches('?'));
        let mut durable = at(read(stage), mode, file.ends_with('?').then_some(mode));
        let before = durable.changes;
        act(&mut durable, edge);
        let held = durable.stages["b"];
        assert!(held.pending.is_none_or(|waits| waits == held.file), "{row}");
        let waits = if held.pending.is_some() { "?" } else { "" };
        assert_eq!(
            format!("{} / {}{waits}", held.stage, held.file),
            after,
            "{row}"
        );
        let last = durable
            .history
            .back()
            .filter(|last| edge == "loss" || last.number > before);
        assert_eq!(last.map_or("-", |last| last.cause.as_str()), cause, "{row}");
        if let Some(last) = last {
            assert_eq!((last.to, held.change), (held.stage, last.number), "{row}");
        }
    }
}

#[test]
fn return_from_a_held_policy_raises_nothing() {
    let mut durable = at(Enforce, Enforce, None);
    durable.on_held(
        &policy(Shadow, false, false),
        &policy(Enforce, false, false),
    );
    durable.on_recall(&policy(Enforce, false, false));
    assert_eq!(
        (durable.stages["b"].stage, durable.stages["b"].file),
        (Shadow, Enforce)
    );
    durable.on_policy(&policy(Enforce, false, false));
    assert_eq!(durable.stages["b"].stage, Shadow);
}

#[test]
fn restart_with_held_modes_raises_nothing() {
    let in_force = policy(Enforce, false, false);
    let mut durable = at(Enforce, Enforce, None);
    durable.on_policy(&in_force);
    durable.on_held(&policy(Shadow, false, false), &in_force);
    durable.on_policy(&in_force);
    assert_eq!(
        (durable.stages["b"].stage, durable.stages["b"].file),
        (Shadow, Enforce)
    );
}

#[test]
fn history_is_bounded_numbered_and_stamped_once() {
    let mut durable = at(Shadow, Shadow, None);
    assert!(durable.stamp(1_000) && !durable.stamp(2_000));
    for _ in 0..HISTORY_MAX {
        durable.enter_stage("b", Canary, Cause::Gate, Vec::new());
        durable.enter_stage("b", Shadow, Cause::Breach, Vec::new());
    }
    assert_eq!(durable.history.len(), HISTORY_MAX);
    let numbers: Vec<u64> = durable.history.iter().map(|change| change.number).collect();
    assert!(numbers.is_sorted_by(|a, b| a + 1 == *b));
    assert_eq!(numbers.last(), Some(&(2 * HISTORY_MAX as u64 + 1)));
    assert!(durable.stamp(3_000));
    assert!(
        durable
            .history
            .iter()
            .all(|change| change.at_s == Some(3_000))
    );
}

#[test]
fn renewals_leave_kills_in_the_history() {
    let mut durable = at(Enforce, Enforce, None);
    durable.enter_stage("b", Shadow, Cause::Kill, Vec::new());
    for _ in 0..2 * HISTORY_MAX {
        durable.renew_evidence("b", Cause::Drift, Vec::new());
    }
    assert_eq!(durable.history.len(), HISTORY_MAX);
    assert_eq!(
        durable.history.back().map(|change| change.number),
        Some(durable.stages["b"].change)
    );
    assert_eq!(durable.in_shadow_since_kill().collect::<Vec<_>>(), ["b"]);
    // Without an earlier renewal the oldest change is dropped, and never the latest.
    for _ in 0..HISTORY_MAX {
        durable.enter_stage("b", Canary, Cause::Gate, Vec::new());
    }
    durable.renew_evidence("b", Cause::Edit, Vec::new());
    assert_eq!(durable.history.len(), HISTORY_MAX);
    assert_eq!(
        durable.history.back().map(|change| change.cause),
        Some(Cause::Edit)
    );
}
