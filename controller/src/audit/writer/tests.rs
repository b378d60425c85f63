//! Logs that are written, cut by crashes, manipulated between two runs, and rotated.

use std::os::unix::fs::PermissionsExt;

use tempfile::{TempDir, tempdir};

use super::super::files::Snapshot;
use super::super::verify::{Fault, Kind};
use super::*;

fn record(what: &str) -> Record {
    let entry = Entry {
        what: what.to_owned(),
        ..Entry::default()
    };
    Record::new(0, Actor::controller("gate", ""), entry)
}

fn three() -> TempDir {
    let directory = tempdir().unwrap();
    let mut writer = Writer::new(directory.path());
    assert_eq!(writer.append(&[record("a"), record("b")], 0).unwrap(), 1);
    assert_eq!(writer.append(&[record("c")], 0).unwrap(), 3);
    directory
}

fn verify(directory: &TempDir) -> Result<Verified, Fault> {
    Snapshot::open(directory.path()).unwrap().verify().unwrap()
}

fn lines(directory: &TempDir) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    let mut snapshot = Snapshot::open(directory.path()).unwrap();
    let take = |_: &str, line: &[u8]| {
        if let Some(line) = Line::parse(line.trim_ascii_end()) {
            lines.push((line.record.what, line.record.after));
        }
    };
    snapshot.each_line(take).unwrap();
    lines
}

fn restart(directory: &TempDir) {
    Writer::new(directory.path())
        .append(&[record("d")], 0)
        .unwrap();
}

fn edit(path: &Path, edit: impl FnOnce(&mut String)) {
    let mut text = fs::read_to_string(path).unwrap();
    edit(&mut text);
    fs::write(path, text).unwrap();
}

#[test]
fn lines_of_several_runs_form_one_chain() {
    let directory = three();
    restart(&directory);
    let verified = verify(&directory).unwrap();
    assert_eq!(
        (verified.lines, verified.after_head, verified.torn_bytes),
        (4, 0, 0)
    );
    for name in [LOG, HEAD] {
        let mode = fs::metadata(directory.path().join(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn new_log_is_only_a_head() {
    let directory = tempdir().unwrap();
    Writer::new(directory.path()).append(&[], 0).unwrap();
    assert_eq!(verify(&directory).unwrap().last, Head::genesis());
    restart(&directory);
    assert_eq!(verify(&directory).unwrap().lines, 1);
}

#[test]
fn crash_before_the_head_is_repaired() {
    let whole = three();
    let text = fs::read(whole.path().join(LOG)).unwrap();
    let ends: Vec<usize> = text
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'\n')
        .map(|(at, _)| at + 1)
        .collect();
    // The head of one line, and a batch of two lines that was written in part.
    let head = {
        let line = Line::parse(&text[..ends[0] - 1]).unwrap();
        serde_json::to_vec(&Head {
            seq: 1,
            hash: line.hash,
            first: 1,
        })
        .unwrap()
    };
    for cut in ends[0]..=ends[2] {
        let directory = tempdir().unwrap();
        fs::write(directory.path().join(LOG), &text[..cut]).unwrap();
        fs::write(directory.path().join(HEAD), &head).unwrap();
        assert!(
            verify(&directory).is_ok(),
            "a crash is no manipulation, cut at {cut}"
        );
        restart(&directory);
        let verified = verify(&directory).unwrap();
        let after_head = ends.iter().filter(|end| **end <= cut).count() - 1;
        let torn = cut - ends[after_head];
        let noted = lines(&directory)
            .iter()
            .find(|(what, _)| what == "audit log repaired")
            .cloned();
        assert_eq!(noted.is_some(), after_head > 0 || torn > 0, "cut at {cut}");
        let text = noted.map(|(_, after)| after).unwrap_or_default();
        assert_eq!(
            text.contains(&format!("{after_head} lines before")),
            after_head > 0,
            "{text}"
        );
        assert_eq!(
            text.contains(&format!("{torn} bytes of an unfinished")),
            torn > 0,
            "{text}"
        );
        assert_eq!(verified.torn_bytes, 0);
        restart(&directory);
        let repairs = lines(&directory)
            .iter()
            .filter(|(what, _)| what == "audit log repaired")
            .count();
        assert!(repairs <= 1, "repaired once");
    }
}

#[test]
fn manipulation_between_runs_is_noted_and_kept() {
    type Manipulate = fn(&mut String);
    let table: [(&str, Manipulate, Kind); 6] = [
        (
            "edited",
            |text| *text = text.replace("\"b\"", "\"x\""),
            Kind::Edited,
        ),
        (
            "removed",
            |text| {
                *text = text
                    .lines()
                    .step_by(2)
                    .map(|line| format!("{line}\n"))
                    .collect()
            },
            Kind::Removed,
        ),
        (
            "reordered",
            |text| *text = text.lines().rev().map(|line| format!("{line}\n")).collect(),
            Kind::Reordered,
        ),
        (
            "truncated",
            |text| text.truncate(text.trim_end().rfind('\n').unwrap() + 1),
            Kind::Truncated,
        ),
        (
            "truncated within a line",
            |text| text.truncate(text.len() - 9),
            Kind::Truncated,
        ),
        ("emptied", String::clear, Kind::Truncated),
    ];
    for (name, manipulate, kind) in table {
        let directory = three();
        edit(&directory.path().join(LOG), manipulate);
        let before = verify(&directory).unwrap_err();
        assert_eq!(before.kind, kind, "{name}: {before}");
        restart(&directory);
        let (what, after) = lines(&directory).into_iter().rev().nth(1).unwrap();
        assert_eq!(what, "audit log damaged", "{name}");
        assert!(after.contains(kind.as_str()), "{name}: {after}");
        assert_eq!(lines(&directory).last().unwrap().0, "d", "{name}");
        let fault = verify(&directory).unwrap_err();
        assert_eq!(
            fault.line, before.line,
            "the damage is still found at its place: {fault}"
        );
        restart(&directory);
    }
}

#[test]
fn missing_and_foreign_heads_are_damage() {
    for head in [None, Some("garbage"), Some("{}")] {
        let directory = three();
        let path = directory.path().join(HEAD);
        match head {
            None => fs::remove_file(&path).unwrap(),
            Some(text) => fs::write(&path, text).unwrap(),
        }
        restart(&directory);
        let lines = lines(&directory);
        assert_eq!(lines[3].0, "audit log damaged");
        assert!(lines[3].1.contains(HEAD), "{lines:?}");
        assert_eq!(
            verify(&directory).unwrap().lines,
            5,
            "the lines are whole, and the line says what was missing"
        );
    }
}

#[test]
fn partial_failed_line_is_removed() {
    let directory = three();
    let mut writer = Writer::new(directory.path());
    writer.append(&[], 0).unwrap();
    let log = directory.path().join(LOG);
    // As after a write that failed half-way and could not be cut off.
    fs::OpenOptions::new()
        .append(true)
        .open(&log)
        .unwrap()
        .write_all(b"{\"seq\":4,")
        .unwrap();
    writer.end = None;
    assert_eq!(writer.append(&[record("d")], 0).unwrap(), 5);
    assert_eq!(verify(&directory).unwrap().lines, 5);
    assert_eq!(lines(&directory)[3].0, "audit log repaired");
}

#[test]
fn stuck_head_keeps_lines_in_the_chain() {
    let directory = three();
    let mut writer = Writer::new(directory.path());
    writer.append(&[], 0).unwrap();
    let beside = directory.path().join("audit.head.new");
    fs::create_dir(&beside).unwrap();
    let error = writer.append(&[record("d")], 0).unwrap_err();
    assert!(error.seq == Some(4), "{error}");
    assert_eq!(verify(&directory).unwrap().after_head, 1);
    fs::remove_dir(&beside).unwrap();
    assert_eq!(writer.append(&[record("e")], 0).unwrap(), 5);
    let verified = verify(&directory).unwrap();
    assert_eq!((verified.lines, verified.after_head), (5, 0));
}

#[test]
fn log_rotates_at_its_size_limit() {
    let directory = tempdir().unwrap();
    let mut writer = Writer {
        rotate_bytes: 1_000,
        rotated_max: 3,
        ..Writer::new(directory.path())
    };
    for _ in 0..40 {
        writer.append(&[record("a")], 0).unwrap();
        assert!(verify(&directory).is_ok());
    }
    let files = rotated(&directory.path().join(LOG)).unwrap();
    assert_eq!(files.len(), 3);
    let verified = verify(&directory).unwrap();
    let first = verified.first.unwrap();
    assert!(first > 1 && verified.last.first == first, "{verified:?}");
    let removed = lines(&directory);
    assert!(
        removed
            .iter()
            .any(|(what, _)| what.starts_with("audit file") && what.ends_with("removed")),
        "{removed:?}"
    );
    let present = fs::metadata(directory.path().join(LOG)).unwrap().len();
    assert!(present < 2_000, "{present}");
    // A crash after the renaming.
    fs::rename(
        directory.path().join(LOG),
        directory.path().join("audit.log.999"),
    )
    .unwrap();
    restart(&directory);
    assert_eq!(verify(&directory).unwrap().last.seq, verified.last.seq + 1);
    fs::remove_file(files.values().next().unwrap()).unwrap();
    assert_eq!(verify(&directory).unwrap_err().kind, Kind::Removed);
}
