//! Logs on disk, read whole and in part.

use super::super::line::{Actor, Entry, Record};
use super::*;

/// Writes a log with these numbers of lines in its files, the present one last, and returns its directory.
fn log(counts: &[usize]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut head = Head::genesis();
    for (at, count) in counts.iter().enumerate() {
        let lines: String = (0..*count)
            .map(|_| head.append(&record()).unwrap())
            .collect();
        let name = if at + 1 == counts.len() {
            LOG.to_owned()
        } else {
            format!("{LOG}.{}", at + 1)
        };
        fs::write(directory.path().join(name), lines).unwrap();
    }
    fs::write(
        directory.path().join(HEAD),
        serde_json::to_string(&head).unwrap(),
    )
    .unwrap();
    directory
}

fn record() -> Record {
    Record::new(
        0,
        Actor::controller("gate", ""),
        Entry {
            why: "x".repeat(900),
            ..Entry::default()
        },
    )
}

fn verify(path: &Path) -> Result<Verified, Fault> {
    Snapshot::open(path).unwrap().verify().unwrap()
}

fn last(path: &Path, count: u64) -> (usize, usize) {
    let mut snapshot = Snapshot::open(path).unwrap();
    snapshot.last(count).unwrap();
    let (mut lines, mut bytes) = (0, 0);
    snapshot
        .each_line(|_, line| lines += usize::from(line.ends_with(b"\n")))
        .unwrap();
    snapshot
        .each_chunk(|chunk| {
            bytes += chunk.len();
            true
        })
        .unwrap();
    (lines, bytes)
}

#[test]
fn audit_files_are_verified_in_number_order() {
    // The tenth arrives after the second.
    let directory = log(&[2, 1, 3, 1, 1, 1, 1, 1, 1, 1, 4]);
    let verified = verify(directory.path()).unwrap();
    assert_eq!((verified.lines, verified.last.seq), (17, 17));
    assert_eq!(verify(&directory.path().join(LOG)), Ok(verified));
    fs::remove_file(directory.path().join("audit.log.2")).unwrap();
    let fault = verify(directory.path()).unwrap_err();
    assert_eq!((fault.kind, fault.line), (Kind::Removed, 1));
    assert!(fault.file.ends_with("audit.log.3"), "{fault}");
    fs::remove_file(directory.path().join(LOG)).unwrap();
    assert_eq!(
        verify(&directory.path().join("audit.log.3")).unwrap().lines,
        3,
        "a rotated file alone"
    );
}

#[test]
fn log_without_head_or_lines_is_truncated() {
    let directory = log(&[2, 3]);
    let head = directory.path().join(HEAD);
    let good = fs::read(&head).unwrap();
    fs::remove_file(&head).unwrap();
    let fault = verify(directory.path()).unwrap_err();
    assert_eq!((fault.kind, fault.line), (Kind::Truncated, 4));
    assert!(fault.file.ends_with(LOG), "{fault}");
    fs::write(&head, "garbage").unwrap();
    let fault = verify(directory.path()).unwrap_err();
    assert!(
        fault.kind == Kind::Edited && fault.file.ends_with(HEAD),
        "{fault}"
    );
    fs::write(&head, good).unwrap();
    fs::remove_file(directory.path().join(LOG)).unwrap();
    assert_eq!(verify(directory.path()).unwrap_err().kind, Kind::Truncated);
    let emptied = log(&[0]);
    fs::remove_file(emptied.path().join(HEAD)).unwrap();
    assert_eq!(
        verify(emptied.path()).unwrap_err().kind,
        Kind::Truncated,
        "the first start writes a line"
    );
    for empty in [tempfile::tempdir().unwrap().path(), Path::new("/nowhere")] {
        assert_eq!(
            Snapshot::open(empty).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }
}

#[test]
fn last_lines_are_from_latest_files() {
    let directory = log(&[100, 1, 150]);
    let path = directory.path();
    let all: u64 = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    let all = (all - fs::metadata(path.join(HEAD)).unwrap().len()) as usize;
    for (count, lines) in [
        (0, 0),
        (1, 1),
        (149, 149),
        (150, 150),
        (151, 151),
        (152, 152),
        (251, 251),
        (999, 251),
    ] {
        let (found, bytes) = last(path, count);
        assert_eq!(found, lines, "of {count}");
        assert_eq!(bytes == all, lines == 251);
        assert_eq!(bytes == 0, lines == 0);
    }
    let mut snapshot = Snapshot::open(path).unwrap();
    snapshot.last(3).unwrap();
    let mut seqs = Vec::new();
    snapshot
        .each_line(|_, line| {
            seqs.push(
                super::super::Line::parse(line.trim_ascii_end())
                    .unwrap()
                    .seq,
            )
        })
        .unwrap();
    assert_eq!(seqs, [249, 250, 251]);
}

#[test]
fn file_rotated_midway_is_read_whole() {
    let directory = log(&[3, 4]);
    let snapshot = Snapshot::open(directory.path()).unwrap();
    fs::rename(
        directory.path().join(LOG),
        directory.path().join("audit.log.2"),
    )
    .unwrap();
    fs::remove_file(directory.path().join("audit.log.1")).unwrap();
    assert_eq!(snapshot.verify().unwrap().unwrap().lines, 7);
}

#[test]
fn copies_by_other_names_are_no_files_of_the_log() {
    let directory = log(&[3, 4]);
    for name in ["01", "001", "+1", "1.bak"] {
        fs::write(directory.path().join(format!("{LOG}.{name}")), "").unwrap();
    }
    let rotated = rotated(&directory.path().join(LOG)).unwrap();
    let names: Vec<_> = rotated
        .values()
        .filter_map(|path| path.file_name())
        .collect();
    assert_eq!(names, ["audit.log.1"]);
}
