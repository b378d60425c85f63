//! The log of a running controller on disks that work, fail, and work again.

use std::fs;

use tempfile::tempdir;

use super::super::files::{LOG, Snapshot};
use super::super::line::Line;
use super::*;

fn entry(what: &str) -> Entry {
    Entry { what: what.to_owned(), ..Entry::default() }
}

fn gate() -> Actor {
    Actor::controller("gate", "")
}

fn lines(directory: &Path) -> Vec<Record> {
    let mut lines = Vec::new();
    let mut snapshot = Snapshot::open(directory).unwrap();
    snapshot.each_line(|_, line| lines.push(Line::parse(line.trim_ascii_end()).unwrap().record)).unwrap();
    assert!(Snapshot::open(directory).unwrap().verify().unwrap().is_ok());
    lines
}

#[tokio::test]
async fn change_is_on_disk_before_it_is_made() {
    let directory = tempdir().unwrap();
    let log = AuditLog::open(directory.path());
    let task = tokio::spawn(log.clone().run(CancellationToken::new()));
    let logged = log.record(gate(), entry("promote")).await.unwrap();
    assert_eq!(lines(directory.path())[0].what, "promote");
    logged.refused("the gate does not pass");
    let number = log.note(gate(), entry("kill on"));
    log.settled(number).await;
    let lines = lines(directory.path());
    let refused = &lines[1];
    assert_eq!((refused.of, refused.after.as_str()), (Some(1), NOT_MADE));
    assert_eq!((refused.what.as_str(), refused.why.as_str()), ("promote", "the gate does not pass"));
    assert_eq!(lines.len(), 3);
    task.abort();
}

#[tokio::test]
async fn disk_that_fails_refuses_changes_until_it_works_again() {
    let directory = tempdir().unwrap();
    let path = directory.path().join(LOG);
    fs::create_dir(&path).unwrap();
    let log = AuditLog::open(directory.path());
    let task = tokio::spawn(log.clone().run(CancellationToken::new()));
    assert!(log.failure().is_some());
    let error = log.record(gate(), entry("promote")).await.unwrap_err().to_string();
    assert!(error.contains("audit.log") && error.contains("--state-dir"), "{error}");
    let number = log.note(gate(), entry("kill on"));
    log.settled(number).await;
    assert!(log.record_at_start(gate(), entry("policy")).is_err());
    fs::remove_dir(&path).unwrap();
    log.writable().await;
    let lines = lines(directory.path());
    assert_eq!(lines[0].what, "audit log resumed");
    assert_eq!(lines[0].after, "2 entries were not written");
    assert_eq!((lines[1].what.as_str(), lines[1].late), ("kill on", true));
    assert!(log.record(gate(), entry("promote")).await.is_ok());
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn command_does_not_wait_for_a_disk_that_hangs() {
    let directory = tempdir().unwrap();
    let log = AuditLog::open(directory.path());
    // Without its task the log never answers, like a disk that hangs.
    let error = log.record(gate(), entry("promote")).await.unwrap_err();
    assert_eq!(error, NotLogged("no answer from the disk within 2 s".to_owned()));
    log.record_at_start(gate(), entry("policy")).unwrap().continued("held", "a reason".to_owned());
    log.write_batch();
    let lines = lines(directory.path());
    assert_eq!(lines.len(), 2, "the line of a command that gave up is not written: {lines:?}");
    assert_eq!((lines[1].after.as_str(), lines[1].of), ("held", Some(1)));
}
