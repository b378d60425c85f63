//! The log of a running controller on disks that work, fail, and work again.

use std::fs;

use tempfile::tempdir;

use super::super::files::{LOG, Snapshot};
use super::super::line::Line;
use super::*;

fn entry(what: &str) -> Entry {
    Entry {
        what: what.to_owned(),
        ..Entry::default()
    }
}

fn gate() -> Actor {
    Actor::controller("gate", "")
}

fn lines(directory: &Path) -> Vec<Record> {
    let mut lines = Vec::new();
    let mut snapshot = Snapshot::open(directory).unwrap();
    snapshot
        .each_line(|_, line| lines.push(Line::parse(line.trim_ascii_end()).unwrap().record))
        .unwrap();
    assert!(Snapshot::open(directory).unwrap().verify().unwrap().is_ok());
    lines
}

#[tokio::test]
async fn change_is_on_disk_before_it_happens() {
    let directory = tempdir().unwrap();
    let log = AuditLog::open(directory.path(), None);
    let task = tokio::spawn(log.clone().run(CancellationToken::new()));
    let logged = log.record(gate(), entry("promote")).await.unwrap();
    assert_eq!(lines(directory.path())[0].what, "promote");
    logged.refused("the gate does not pass");
    let number = log.note(gate(), entry("kill on"));
    log.settled(number).await;
    let lines = lines(directory.path());
    let refused = &lines[1];
    assert_eq!((refused.of, refused.after.as_str()), (Some(1), NOT_MADE));
    assert_eq!(
        (refused.what.as_str(), refused.why.as_str()),
        ("promote", "the gate does not pass")
    );
    assert_eq!(lines.len(), 3);
    task.abort();
}

#[tokio::test]
async fn failing_disk_refuses_changes() {
    let directory = tempdir().unwrap();
    let path = directory.path().join(LOG);
    fs::create_dir(&path).unwrap();
    let log = AuditLog::open(directory.path(), None);
    let task = tokio::spawn(log.clone().run(CancellationToken::new()));
    assert!(log.is_failing());
    let error = log
        .record(gate(), entry("promote"))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("audit.log") && error.contains("--state-dir"),
        "{error}"
    );
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

#[tokio::test]
async fn barred_change_is_refused_until_it_is_admitted() {
    let directory = tempdir().unwrap();
    let log = AuditLog::open(directory.path(), None);
    log.bar(Some("a reason"));
    let refused = log.record(gate(), entry("promote")).await.unwrap_err();
    assert_eq!(refused, NotLogged::Barred("a reason"));
    assert!(!log.is_writable() && !log.is_failing());
    // What takes refusals away is written all the same.
    log.note(gate(), entry("kill on fleet"));
    log.write(None).unwrap();
    log.bar(None);
    log.writable().await;
    let _logged = log.record(gate(), entry("apply")).await.unwrap();
    let lines = lines(directory.path());
    let texts: Vec<_> = lines.iter().map(|line| line.what.as_str()).collect();
    assert_eq!(texts, ["kill on fleet", "apply"]);
}

#[tokio::test(start_paused = true)]
async fn command_awaits_no_hanging_disk() {
    let directory = tempdir().unwrap();
    let log = AuditLog::open(directory.path(), None);
    let hanging = log.clone();
    let (held, release) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
    let disk = std::thread::spawn(move || {
        let _writer = hanging.inner.writer.lock().unwrap();
        held.0.send(()).unwrap();
        let _ = release.1.recv();
    });
    held.1.recv().unwrap();
    let passes = async {
        tokio::task::yield_now().await;
        tokio::time::advance(LINE_MAX).await;
    };
    let (refused, ()) = tokio::join!(log.record(gate(), entry("promote")), passes);
    assert_eq!(
        refused.unwrap_err(),
        NotLogged::Disk("no answer from the disk within 2 s".to_owned())
    );
    // The next commands do not wait, and take no room.
    for _ in 0..2 * KEPT_MAX {
        assert!(log.record(gate(), entry("apply")).await.is_err());
    }
    assert_eq!(log.state().kept.len(), 0);
    drop(release.0);
    disk.join().unwrap();
    // The line of the command that gave up is written after all, and then denied.
    let given_up = || log.state().noted == 1;
    while !given_up() {
        tokio::task::yield_now().await;
    }
    log.record_at_start(gate(), entry("policy"))
        .unwrap()
        .continued("held", "a reason".to_owned());
    log.write(None).unwrap();
    let lines = lines(directory.path());
    let texts: Vec<_> = lines
        .iter()
        .map(|line| (line.what.as_str(), line.after.as_str(), line.of))
        .collect();
    let resumed = ("audit log resumed", "2000 entries were not written", None);
    let denied = ("promote", NOT_MADE, Some(2));
    assert_eq!(
        texts,
        [
            resumed,
            ("promote", "", None),
            denied,
            ("policy", "", None),
            ("policy", "held", Some(4))
        ]
    );
}

#[test]
fn lines_beyond_the_room_are_counted() {
    for fails in [true, false] {
        let directory = tempdir().unwrap();
        let path = directory.path().join(LOG);
        if fails {
            fs::create_dir(&path).unwrap();
        }
        let log = AuditLog::open(directory.path(), None);
        let last = (0..KEPT_MAX + 5)
            .fold(None, |_, _| Some(log.note(gate(), entry("kill on"))))
            .unwrap();
        // A disk that is only slow has failed by now as well.
        assert!(log.is_failing());
        if fails {
            assert!(log.write(None).is_err());
            fs::remove_dir(&path).unwrap();
        }
        log.write(None).unwrap();
        let lines = lines(directory.path());
        assert_eq!(lines[0].after, "5 entries were not written");
        assert!(lines[1..].iter().all(|line| line.late) && lines.len() == KEPT_MAX + 1);
        assert!(!log.is_failing() && log.state().settled >= last);
    }
}

#[test]
fn lines_that_return_from_a_failed_write_keep_to_the_room() {
    let directory = tempdir().unwrap();
    let log = AuditLog::open(directory.path(), None);
    let note = |what| log.note(gate(), entry(what));
    (0..KEPT_MAX).for_each(|_| _ = note("in the write"));
    log.on_failure("full".to_owned(), false);
    let batch = log.state().take_batch(None);
    let last = (0..5).fold(0, |_, _| note("meanwhile"));
    log.state().return_batch(batch);
    log.write(None).unwrap();
    let lines = lines(directory.path());
    assert_eq!(lines[0].after, "5 entries were not written");
    assert!(lines.len() == KEPT_MAX + 1 && lines[KEPT_MAX].what == "in the write");
    assert!(log.state().settled >= last);
}

#[test]
fn line_without_a_head_is_denied() {
    let directory = tempdir().unwrap();
    let log = AuditLog::open(directory.path(), None);
    let beside = directory.path().join("audit.head.new");
    fs::create_dir(&beside).unwrap();
    assert!(log.record_at_start(gate(), entry("promote")).is_err());
    fs::remove_dir(&beside).unwrap();
    log.write(None).unwrap();
    let lines = lines(directory.path());
    assert_eq!(lines[1].after, "0 entries were not written");
    assert_eq!(
        (lines[2].of, lines[2].after.as_str(), lines[2].late),
        (Some(1), NOT_MADE, true)
    );
}

#[test]
fn lines_outlive_a_panic() {
    let directory = tempdir().unwrap();
    let log = AuditLog::open(directory.path(), None);
    log.note(gate(), entry("promote"));
    log.write(None).unwrap();
    let head = directory.path().join("audit.head");
    let right = fs::read(&head).unwrap();
    // No line can follow the greatest number. The file grows, so that its end is read again.
    let text = String::from_utf8(right.clone()).unwrap();
    fs::write(
        &head,
        text.replace("\"seq\":1", &format!("\"seq\":{}", u64::MAX)),
    )
    .unwrap();
    let path = directory.path().join(LOG);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
    let number = log.note(gate(), entry("kill on"));
    let error = log.write(None).unwrap_err();
    assert!(error.contains("the write panicked"), "{error}");
    fs::write(&head, right).unwrap();
    fs::write(&path, whole).unwrap();
    log.write(None).unwrap();
    let lines = lines(directory.path());
    assert!(lines.iter().any(|line| line.what == "kill on"));
    assert!(log.state().settled >= number && !log.is_failing());
}
