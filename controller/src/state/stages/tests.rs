//! Every transition of a stage by the policy file, promotions, aborts, breaches, kills and
//! restarts, as far as only the durable state decides it. The brain's tests add gates and commands.

use plimsoll_core::kill::{KillGeneration, Scope};
use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::Report;
use plimsoll_policy::{ONE_CLASS_TENANTS, Policy, Source};

use super::*;
use crate::state::{Command, Now};
use Mode::{Canary, Enforce, Shadow};

fn policy(mode: Mode, gates: bool, kill: bool) -> Policy {
    let text = format!(
        "kill_switch: {kill}\nbuckets: {{ b: {{ limit: 1, mode: {mode} }} }}\nrollout: {{ require_gates: {gates} }}\n"
    );
    let source = Source {
        name: "policy.yaml",
        text: &text,
    };
    Policy::read(
        source,
        Source {
            name: "tenants.yaml",
            text: ONE_CLASS_TENANTS,
        },
    )
    .unwrap()
    .0
}

fn at(stage: Mode, file: Mode, pending: Option<Mode>) -> DurableState {
    let mut durable = DurableState::first_start();
    durable.on_policy(&policy(file, false, false));
    let held = durable.stages.get_mut("b").unwrap();
    (held.stage, held.pending) = (stage, pending);
    durable
}

#[derive(Clone, Copy, Debug)]
enum Act {
    /// The policy file gets this mode, with gates required or not.
    File(Mode, bool),
    Held(Mode),
    Enter(Mode, Cause),
    Kill,
    Resume,
    KillAlone,
    Learn,
    Restart,
    /// The controller restarts and cannot read its state.
    Loss,
}

fn act(durable: &mut DurableState, act: Act) {
    let file = durable.stages["b"].file;
    match act {
        Act::File(mode, gates) => durable.on_policy(&policy(mode, gates, false)),
        Act::Held(mode) => durable.on_held(&policy(mode, true, false), &policy(file, true, false)),
        Act::Enter(to, cause) => durable.enter_stage("b", to, cause, Vec::new()),
        Act::Kill => durable.on_policy(&policy(file, true, true)),
        Act::Resume => durable.on_policy(&policy(file, true, false)),
        Act::KillAlone => {
            let alone = Scope::Bucket(Bucket::new("b").unwrap());
            durable
                .on_command(&alone, Command::default(), &policy(file, true, false))
                .unwrap();
        }
        Act::Learn => {
            let kill = KillGeneration(durable.kill.0 + 1).switched(true);
            let report = Report {
                kill,
                ..Report::default()
            };
            let now = Now {
                at: MonoTime::ZERO,
                unix_s: None,
            };
            durable.on_report(&report, true, now, &policy(file, true, false));
        }
        Act::Restart => {
            let text = serde_json::to_string(&*durable).unwrap();
            *durable = serde_json::from_str(&text).unwrap();
            durable.on_policy(&policy(file, true, false));
        }
        Act::Loss => {
            *durable = DurableState::lost();
            durable.on_policy(&policy(file, true, false));
        }
    }
}

#[test]
fn every_transition_has_one_result() {
    type State = (Mode, Mode, Option<Mode>);
    let table: [(State, Act, State, Option<Cause>); 41] = [
        // Raising in the file waits for gates, unless none are required.
        (
            (Shadow, Shadow, None),
            Act::File(Canary, true),
            (Shadow, Canary, Some(Canary)),
            None,
        ),
        (
            (Shadow, Shadow, None),
            Act::File(Enforce, true),
            (Shadow, Enforce, Some(Enforce)),
            None,
        ),
        (
            (Canary, Canary, None),
            Act::File(Enforce, true),
            (Canary, Enforce, Some(Enforce)),
            None,
        ),
        (
            (Shadow, Shadow, None),
            Act::File(Enforce, false),
            (Enforce, Enforce, None),
            Some(Cause::File),
        ),
        (
            (Shadow, Canary, Some(Canary)),
            Act::File(Enforce, true),
            (Shadow, Enforce, Some(Enforce)),
            None,
        ),
        (
            (Shadow, Enforce, Some(Enforce)),
            Act::File(Canary, true),
            (Shadow, Canary, Some(Canary)),
            None,
        ),
        // Removing the required gates from the file is an order as well.
        (
            (Shadow, Enforce, Some(Enforce)),
            Act::File(Enforce, false),
            (Enforce, Enforce, None),
            Some(Cause::File),
        ),
        // Lowering takes effect immediately, and withdraws a waiting change.
        (
            (Enforce, Enforce, None),
            Act::File(Canary, true),
            (Canary, Canary, None),
            Some(Cause::File),
        ),
        (
            (Enforce, Enforce, None),
            Act::File(Shadow, true),
            (Shadow, Shadow, None),
            Some(Cause::File),
        ),
        (
            (Canary, Enforce, Some(Enforce)),
            Act::File(Canary, true),
            (Canary, Canary, None),
            None,
        ),
        (
            (Shadow, Enforce, Some(Enforce)),
            Act::File(Shadow, true),
            (Shadow, Shadow, None),
            None,
        ),
        // An entry promoted beyond the mode of the file follows the file once that changes.
        (
            (Enforce, Shadow, None),
            Act::File(Canary, true),
            (Canary, Canary, None),
            Some(Cause::File),
        ),
        (
            (Enforce, Shadow, None),
            Act::File(Enforce, true),
            (Enforce, Enforce, None),
            None,
        ),
        // The same file again is no order.
        (
            (Shadow, Enforce, None),
            Act::File(Enforce, true),
            (Shadow, Enforce, None),
            None,
        ),
        (
            (Shadow, Enforce, None),
            Act::File(Enforce, false),
            (Shadow, Enforce, None),
            None,
        ),
        (
            (Enforce, Shadow, None),
            Act::File(Shadow, false),
            (Enforce, Shadow, None),
            None,
        ),
        // A held policy lowers, and raises nothing.
        (
            (Enforce, Enforce, None),
            Act::Held(Shadow),
            (Shadow, Shadow, None),
            Some(Cause::File),
        ),
        (
            (Enforce, Enforce, None),
            Act::Held(Canary),
            (Canary, Canary, None),
            Some(Cause::File),
        ),
        (
            (Shadow, Shadow, None),
            Act::Held(Enforce),
            (Shadow, Shadow, None),
            None,
        ),
        (
            (Shadow, Enforce, Some(Enforce)),
            Act::Held(Shadow),
            (Shadow, Shadow, None),
            None,
        ),
        (
            (Shadow, Enforce, Some(Enforce)),
            Act::Held(Enforce),
            (Shadow, Enforce, Some(Enforce)),
            None,
        ),
        // On the way up a pending mode stays pending until the stage reaches it.
        (
            (Shadow, Enforce, Some(Enforce)),
            Act::Enter(Canary, Cause::Gate),
            (Canary, Enforce, Some(Enforce)),
            Some(Cause::Gate),
        ),
        (
            (Shadow, Canary, Some(Canary)),
            Act::Enter(Canary, Cause::Gate),
            (Canary, Canary, None),
            Some(Cause::Gate),
        ),
        (
            (Canary, Enforce, Some(Enforce)),
            Act::Enter(Enforce, Cause::Promote),
            (Enforce, Enforce, None),
            Some(Cause::Promote),
        ),
        (
            (Canary, Shadow, None),
            Act::Enter(Enforce, Cause::Forced),
            (Enforce, Shadow, None),
            Some(Cause::Forced),
        ),
        // On the way down nothing stays pending: an operator begins anew.
        (
            (Canary, Enforce, Some(Enforce)),
            Act::Enter(Shadow, Cause::Breach),
            (Shadow, Enforce, None),
            Some(Cause::Breach),
        ),
        (
            (Canary, Enforce, Some(Enforce)),
            Act::Enter(Shadow, Cause::Stale),
            (Shadow, Enforce, None),
            Some(Cause::Stale),
        ),
        (
            (Enforce, Enforce, None),
            Act::Enter(Shadow, Cause::Abort),
            (Shadow, Enforce, None),
            Some(Cause::Abort),
        ),
        (
            (Shadow, Enforce, Some(Enforce)),
            Act::Enter(Shadow, Cause::Abort),
            (Shadow, Enforce, None),
            Some(Cause::Abort),
        ),
        // Every kind of kill leaves shadow behind.
        (
            (Enforce, Enforce, None),
            Act::Kill,
            (Shadow, Enforce, None),
            Some(Cause::Kill),
        ),
        (
            (Canary, Enforce, Some(Enforce)),
            Act::Kill,
            (Shadow, Enforce, None),
            Some(Cause::Kill),
        ),
        (
            (Shadow, Enforce, Some(Enforce)),
            Act::Kill,
            (Shadow, Enforce, None),
            Some(Cause::Kill),
        ),
        (
            (Shadow, Shadow, None),
            Act::Kill,
            (Shadow, Shadow, None),
            None,
        ),
        (
            (Enforce, Shadow, None),
            Act::Learn,
            (Shadow, Shadow, None),
            Some(Cause::Kill),
        ),
        (
            (Enforce, Enforce, None),
            Act::KillAlone,
            (Shadow, Enforce, None),
            Some(Cause::Kill),
        ),
        (
            (Shadow, Enforce, Some(Enforce)),
            Act::KillAlone,
            (Shadow, Enforce, None),
            Some(Cause::Kill),
        ),
        (
            (Shadow, Enforce, None),
            Act::Resume,
            (Shadow, Enforce, None),
            None,
        ),
        // A restart changes nothing, and a loss means shadow.
        (
            (Enforce, Shadow, None),
            Act::Restart,
            (Enforce, Shadow, None),
            None,
        ),
        (
            (Canary, Enforce, Some(Enforce)),
            Act::Restart,
            (Canary, Enforce, Some(Enforce)),
            None,
        ),
        (
            (Shadow, Enforce, None),
            Act::Restart,
            (Shadow, Enforce, None),
            None,
        ),
        (
            (Enforce, Enforce, None),
            Act::Loss,
            (Shadow, Enforce, None),
            Some(Cause::Lost),
        ),
    ];
    for ((stage, file, pending), edge, expected, cause) in table {
        let mut durable = at(stage, file, pending);
        let before = durable.changes;
        act(&mut durable, edge);
        let held = durable.stages["b"];
        let case = format!("{stage} ({file} in the file, {pending:?} waits), {edge:?}");
        assert_eq!((held.stage, held.file, held.pending), expected, "{case}");
        let last = durable
            .history
            .back()
            .filter(|last| cause == Some(Cause::Lost) || last.number > before);
        assert_eq!(last.map(|last| last.cause), cause, "{case}");
        if let Some(last) = last {
            assert_eq!((last.to, held.change), (held.stage, last.number), "{case}");
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
