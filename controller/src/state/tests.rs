//! First start and loss, the key, and kills and modes of the file.

use plimsoll_core::decision::Mode;

use super::*;
use crate::brain::tests;

fn policy(kill: bool, mode: &str, gates: bool) -> Arc<Policy> {
    tests::policy(&format!(
        "kill_switch: {kill}\nbuckets:\n  b: {{ limit: 1, mode: {mode} }}\n  \"p/*\": {{ limit: 1, mode: enforce }}\n\
         rollout: {{ require_gates: {gates} }}\n"
    ))
}

/// The rows of a table: its lines without blank ones and comments.
pub(super) fn rows(table: &str) -> impl Iterator<Item = &str> {
    let lines = table.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with("//"))
}

fn stage(durable: &DurableState) -> Mode {
    durable.stages["b"].stage
}

#[test]
fn first_start_follows_the_file_mode() {
    let mut durable = DurableState::first_start();
    durable.on_policy(&policy(false, "enforce", true));
    assert_eq!(
        (stage(&durable), durable.stages["p/*"].stage),
        (Mode::Enforce, Mode::Enforce)
    );

    let mut durable = DurableState::lost();
    durable.on_policy(&policy(false, "enforce", false));
    assert_eq!(
        (stage(&durable), durable.stages["p/*"].stage),
        (Mode::Shadow, Mode::Shadow)
    );
    // The same file again is no order.
    durable.on_policy(&policy(false, "enforce", false));
    assert_eq!(stage(&durable), Mode::Shadow);
}

#[test]
fn key_survives_a_save_and_is_not_printed() {
    let with_key = DurableState {
        coin_key: Some(CoinKey::from_bytes([0xfe; 16])),
        ..DurableState::first_start()
    };
    let text = serde_json::to_string(&with_key).unwrap();
    assert_eq!(
        serde_json::from_str::<DurableState>(&text).unwrap(),
        with_key
    );
    assert!(
        !format!("{with_key:?}").contains("254"),
        "the key is not printed"
    );
    assert_eq!(DurableState::lost().coherence(), None);
}

#[test]
fn kill_leaves_shadow_until_the_file_changes() {
    let mut durable = DurableState::first_start();
    durable.on_policy(&policy(false, "enforce", false));
    durable.on_policy(&policy(true, "enforce", false));
    assert!(durable.kill.is_killed());
    assert_eq!(stage(&durable), Mode::Shadow);
    let killed = durable.kill;
    durable.on_policy(&policy(true, "enforce", false));
    assert_eq!(durable.kill, killed, "no change, no new generation");

    durable.on_policy(&policy(false, "enforce", false));
    assert!(!durable.kill.is_killed() && durable.kill > killed);
    assert_eq!(stage(&durable), Mode::Shadow);

    durable.on_policy(&policy(false, "shadow", false));
    durable.on_policy(&policy(false, "enforce", false));
    assert_eq!(stage(&durable), Mode::Enforce);
    assert_eq!(
        durable.stages["p/*"].stage,
        Mode::Shadow,
        "only the changed entry resumes"
    );
}

#[test]
fn mode_raised_during_a_kill_is_lost() {
    let mut durable = DurableState::first_start();
    durable.on_policy(&policy(true, "shadow", false));
    durable.on_policy(&policy(true, "enforce", false));
    assert_eq!(stage(&durable), Mode::Shadow);
    durable.on_policy(&policy(false, "enforce", false));
    assert_eq!(stage(&durable), Mode::Shadow);
}

#[test]
fn stats_of_another_build_begin_anew() {
    let stats = BTreeMap::from([(
        "api".to_owned(),
        SavedStageStats {
            change: 4,
            ..SavedStageStats::default()
        },
    )]);
    let state = DurableState {
        epoch: Epoch(3),
        stage_stats: stats,
        ..DurableState::default()
    };
    let mut saved = serde_json::to_value(&state).unwrap();
    assert_eq!(
        serde_json::from_value::<DurableState>(saved.clone()).unwrap(),
        state
    );
    saved["stage_stats"]["api"] =
        serde_json::json!({ "change": 4, "cycles": 22, "tick_ms": 500, "slots": [] });
    let read: DurableState = serde_json::from_value(saved).unwrap();
    assert_eq!(
        read,
        DurableState {
            epoch: Epoch(3),
            ..DurableState::default()
        }
    );
}
