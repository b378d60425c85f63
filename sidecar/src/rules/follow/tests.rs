//! Real files. The tests do not sleep: each step waits for its state.

use std::fs;
use std::time::Duration;

use plimsoll_client::Limiter;
use tempfile::TempDir;
use tokio::time::timeout;

use super::*;
use crate::rules::Found;

/// Far longer than any step takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn rules(bucket: &str) -> String {
    format!("rls: {{ domains: {{ shop: {{ descriptors: [{{ key: k, bucket: {bucket} }}] }} }} }}\n")
}

fn bucket(limits: &Limits) -> String {
    match limits
        .in_force()
        .rules
        .descriptor("shop", [("k", "v")].into_iter())
    {
        Found::Limited(ask) => ask.bucket.to_owned(),
        other => format!("{other:?}"),
    }
}

/// Renames a complete file over the old one, so that no reader sees half of it.
fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::rename(beside, path).unwrap();
}

async fn until(what: &str, is_reached: impl Fn() -> bool) {
    let reached = async {
        while !is_reached() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, reached)
        .await
        .unwrap_or_else(|_| panic!("not reached: {what}"));
}

fn followed(buckets_max: usize) -> (TempDir, PathBuf, Limits, Arc<Reloads>) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("rules.yaml");
    fs::write(&path, rules("one")).unwrap();
    let file = RulesFile::new(&path);
    let (limiter, _feed) = Limiter::builder("sidecar")
        .buckets_max(buckets_max)
        .build_detached()
        .unwrap();
    let limits = Limits::new(limiter, file.read().unwrap().0).unwrap();
    let reloads = Arc::<Reloads>::default();
    tokio::spawn(file.follow(limits.clone(), reloads.clone()));
    (dir, path, limits, reloads)
}

#[tokio::test]
async fn valid_rules_change_is_activated() {
    let (_dir, path, limits, reloads) = followed(10);
    assert_eq!(bucket(&limits), "one");
    replace(&path, &rules("two"));
    until("two", || bucket(&limits) == "two").await;
    until("counted", || {
        (reloads.accepted(), reloads.refused()) == (1, 0)
    })
    .await;
    assert!(limits.limiter().status().buckets.contains_key("two"));
}

#[tokio::test]
async fn invalid_rules_file_changes_nothing() {
    let (_dir, path, limits, reloads) = followed(10);
    replace(
        &path,
        "rls:\n  domains: { shop: { descriptors: [{ key: k, bucket: 'no name' }] } }\n",
    );
    until("refused", || reloads.refusal().is_some()).await;
    let refusal = reloads.refusal().unwrap();
    assert!(refusal.contains("rules.yaml:2:"), "{refusal}");
    assert_eq!(bucket(&limits), "one");
    fs::remove_file(&path).unwrap();
    until("removed", || reloads.refused() == 2).await;
    assert!(reloads.refusal().unwrap().starts_with("cannot read"));
    assert_eq!(bucket(&limits), "one");
    replace(&path, &rules("three"));
    until("three", || bucket(&limits) == "three").await;
    until("no refusal", || reloads.refusal().is_none()).await;
}

#[tokio::test]
async fn rules_with_excess_buckets_are_refused() {
    let (_dir, path, limits, reloads) = followed(2);
    let names = ["a", "b", "c"]
        .map(|name| format!("{{ key: {name}, bucket: {name} }}"))
        .join(", ");
    replace(
        &path,
        &format!("rls: {{ domains: {{ shop: {{ descriptors: [{names}] }} }} }}"),
    );
    until("refused", || reloads.refusal().is_some()).await;
    let refusal = reloads.refusal().unwrap();
    assert!(
        refusal.contains("the rules do not fit the limiter: bucket `"),
        "{refusal}"
    );
    assert_eq!(bucket(&limits), "one");
}
