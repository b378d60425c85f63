//! Manipulations of logs, by table and by chance: each is found, named, and placed.

use proptest::prelude::*;

use super::super::line::{Actor, Entry, Record};
use super::*;

#[derive(Clone, Debug)]
struct Log {
    lines: Vec<String>,
    rotated: usize,
    head: Option<Head>,
}

fn record(what: &str) -> Record {
    let actor = Actor::controller("gate", "");
    Record::new(
        1_000,
        actor,
        Entry {
            what: what.to_owned(),
            ..Entry::default()
        },
    )
}

fn verify(files: &[(&str, impl AsRef<[u8]>)], head: Option<Head>) -> Result<Verified, Fault> {
    let mut verifier = Verifier::new(head);
    for (name, bytes) in files {
        verifier.file(name);
        bytes
            .as_ref()
            .split_inclusive(|byte| *byte == b'\n')
            .for_each(|line| verifier.line(line));
    }
    verifier.finish()
}

fn log(lines: usize, rotated: usize) -> Log {
    let mut head = Head::genesis();
    let lines = (0..lines)
        .map(|n| head.append(&record(&format!("change {n}"))).unwrap())
        .collect();
    Log {
        lines,
        rotated,
        head: Some(head),
    }
}

impl Log {
    fn verify(&self) -> Result<Verified, Fault> {
        let (rotated, present) = self.lines.split_at(self.rotated.min(self.lines.len()));
        verify(
            &[
                ("audit.log.1", rotated.concat()),
                ("audit.log", present.concat()),
            ],
            self.head.clone(),
        )
    }

    /// The place and the kind of the fault.
    fn fault(&self) -> String {
        let text = self.verify().unwrap_err().to_string();
        text.splitn(3, ": ").take(2).collect::<Vec<_>>().join(": ")
    }

    /// Replaces a line by one with another content and a right hash, as a forger without the head would.
    fn forge(&mut self, at: usize) {
        let line = Line::parse(self.lines[at].trim_end().as_bytes()).unwrap();
        let mut before = Head {
            seq: line.seq - 1,
            hash: line.prev,
            first: 1,
        };
        self.lines[at] = before.append(&record("forged")).unwrap();
    }
}

#[test]
fn manipulated_line_is_found_and_named() {
    type Manipulation = fn(&mut Log);
    let table: [(Manipulation, &str); 21] = [
        // Edited.
        (
            |log| log.lines[1] = log.lines[1].replace("change", "chance"),
            "audit.log.1, line 2: edited",
        ),
        (|log| log.forge(1), "audit.log.1, line 2: edited"),
        (|log| log.forge(0), "audit.log.1, line 1: edited"),
        (|log| log.forge(2), "audit.log.1, line 3: edited"),
        (|log| log.forge(5), "audit.log, line 3: edited"),
        // Emptied, joined with the next, and one inserted.
        (
            |log| log.lines[1] = "\n".to_owned(),
            "audit.log.1, line 2: edited",
        ),
        (
            |log| log.lines[1].truncate(9),
            "audit.log.1, line 2: edited",
        ),
        (
            |log| log.lines.insert(1, "{}\n".to_owned()),
            "audit.log.1, line 2: edited",
        ),
        // Removed.
        (
            |log| drop(log.lines.remove(4)),
            "audit.log, line 2: removed",
        ),
        (
            |log| drop(log.lines.remove(0)),
            "audit.log.1, line 1: removed",
        ),
        (
            |log| drop(log.lines.drain(3..5)),
            "audit.log, line 1: removed",
        ),
        (
            |log| drop(log.lines.drain(..3)),
            "audit.log.1, line 1: removed",
        ),
        // Doubled, swapped, and moved to the end.
        (
            |log| log.lines.insert(4, log.lines[3].clone()),
            "audit.log, line 2: reordered",
        ),
        (|log| log.lines.swap(3, 4), "audit.log, line 1: reordered"),
        (|log| log.lines.swap(0, 5), "audit.log.1, line 1: reordered"),
        (
            |log| log.lines[1..].rotate_left(1),
            "audit.log.1, line 2: reordered",
        ),
        // Another log, cut after a line, emptied, and cut within the last line.
        (
            |log| log.lines = super::tests::log(5, 3).lines,
            "audit.log, line 3: truncated",
        ),
        (|log| log.lines.truncate(5), "audit.log, line 3: truncated"),
        (|log| log.lines.clear(), "audit.log, line 1: truncated"),
        (
            |log| log.lines[5].truncate(20),
            "audit.log, line 3: truncated",
        ),
        (
            |log| assert_eq!(log.lines[5].pop(), Some('\n')),
            "audit.log, line 3: truncated",
        ),
    ];
    for (manipulate, fault) in table {
        let mut log = log(6, 3);
        manipulate(&mut log);
        assert_eq!(log.fault(), fault, "{:?}", log.verify());
    }
}

#[test]
fn rotated_file_missing_a_newline_is_truncated() {
    let mut log = log(6, 3);
    log.lines[2].pop();
    assert_eq!(log.fault(), "audit.log.1, line 3: truncated");
}

#[test]
fn head_of_another_log_is_noticed() {
    let mut log = log(6, 3);
    log.head.as_mut().unwrap().hash = "0".repeat(64);
    assert_eq!(log.fault(), "audit.log, line 3: edited");
}

#[test]
fn lines_beyond_the_head_are_no_manipulation() {
    let mut log = log(6, 3);
    log.head = Some(super::tests::log(4, 3).head.unwrap());
    log.lines[5].truncate(30);
    let verified = log.verify().unwrap();
    assert_eq!(
        (verified.lines, verified.after_head, verified.torn_bytes),
        (5, 1, 30)
    );
    // They are part of the chain anyway.
    log.lines[4] = log.lines[4].replace("change", "chance");
    assert_eq!(log.fault(), "audit.log, line 2: edited");
}

#[test]
fn removed_files_are_named_by_the_head() {
    let mut log = log(6, 3);
    log.head.as_mut().unwrap().first = 3;
    assert!(log.verify().is_ok(), "an archive may be added");
    log.lines.drain(..2);
    assert_eq!(log.verify().unwrap().first, Some(3));
    log.lines.remove(0);
    assert!(log.fault().ends_with(": removed"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_log_manipulation_is_found(
        texts in prop::collection::vec(("\\PC{0,12}", "\\PC{0,12}", any::<bool>()), 1..12),
        how in 0..6_u8,
        (at, other) in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        byte in any::<u8>(),
    ) {
        let mut head = Head::genesis();
        let lines: Vec<String> = texts
            .iter()
            .map(|(what, why, late)| head.append(&Record { why: why.clone(), late: *late, ..record(what) }).unwrap())
            .collect();
        let good = lines.concat().into_bytes();
        let is_good = |bytes: &[u8]| verify(&[("audit.log", bytes)], Some(head.clone())).is_ok();
        prop_assert!(is_good(&good));
        let mut bytes = good.clone();
        let (line, other_line) = (at.index(lines.len()), other.index(lines.len()));
        match how {
            0 => bytes[at.index(good.len())] = byte,
            1 => drop(bytes.remove(at.index(good.len()))),
            2 => bytes.insert(at.index(good.len()), byte),
            3 => bytes.truncate(at.index(good.len())),
            4 => {
                let mut lines = lines.clone();
                lines.remove(line);
                bytes = lines.concat().into_bytes();
            }
            _ => {
                let mut lines = lines.clone();
                lines.swap(line, other_line);
                bytes = lines.concat().into_bytes();
            }
        }
        prop_assert_eq!(is_good(&bytes), bytes == good);
    }
}
