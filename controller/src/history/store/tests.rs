//! The history on real files: restarts, torn and damaged files, and folders that cannot be used.

use std::os::unix::fs::PermissionsExt;

use super::*;
use plimsoll_core::names::Bucket;
use plimsoll_policy::Learned;
use plimsoll_policy::learning::{Baseline, MINUTES_PER_DAY, Sample};

const DAY: i64 = MINUTES_PER_DAY as i64;

fn bucket(name: &str) -> Bucket {
    Bucket::new(name).unwrap()
}

fn minute(number: i64, rps: f64) -> MinuteSamples {
    let sample = |rps, clean| Sample {
        offered: Rate::new(rps).unwrap(),
        clean,
    };
    let samples = [
        (bucket("api"), sample(rps, true)),
        (bucket("shop/a"), sample(rps * 2.0, false)),
    ];
    MinuteSamples {
        minute: Minute(number),
        samples: samples.into(),
    }
}

fn store() -> (tempfile::TempDir, HistoryStore) {
    let state = tempfile::tempdir().unwrap();
    let store = HistoryStore::new(state.path());
    (state, store)
}

fn all(store: &HistoryStore) -> Vec<MinuteSamples> {
    store
        .days()
        .unwrap()
        .into_iter()
        .flat_map(|day| store.read_day(day).unwrap().0)
        .collect()
}

#[test]
fn minutes_are_restored_in_order() {
    let (_state, store) = store();
    let written = [0, 7, DAY].map(|at| minute(at, 1.0 + at as f64));
    written
        .iter()
        .for_each(|minute| store.write(minute).unwrap());
    let restored = store.open().unwrap();
    assert_eq!(
        (restored.minutes, all(&store)),
        (written.to_vec(), written.to_vec())
    );
    assert_eq!(restored.losses, [""; 0]);
    // The clock was set back: what is older than the row before counts no more.
    store.write(&minute(3, 9.0)).unwrap();
    assert_eq!(all(&store), written);
}

#[test]
fn start_reads_the_rows_of_today_only() {
    let (_state, store) = store();
    let days = 30;
    let mut baseline = Baseline::default();
    for day in 0..=days {
        baseline.turn(Day(day), Some(&Learned::default()));
        for at in 0..100 {
            baseline.record(
                Minute(day * DAY + at),
                Sample {
                    offered: Rate::new(5.0).unwrap(),
                    clean: true,
                },
            );
        }
    }
    assert_eq!(baseline.peaks().len(), 30);
    store.open().unwrap();
    let closed: ClosedDays = (0..1_000)
        .map(|n| (bucket(&format!("api/{n}")), baseline.closed()))
        .collect();
    store.write_closed(&closed).unwrap();
    // The rows of the days before are not read: as they are, they would be losses.
    for day in days - 7..days {
        fs::write(store.file(Day(day)), "this is no row\n").unwrap();
    }
    let today = days * DAY;
    (0..3).for_each(|at| store.write(&minute(today + at, 5.0)).unwrap());
    let restored = store.open().unwrap();
    assert_eq!(restored.losses, [""; 0]);
    assert_eq!(
        (restored.closed.len(), restored.closed == closed),
        (1_000, true)
    );
    assert_eq!(
        restored.minutes,
        [0, 1, 2].map(|at| minute(today + at, 5.0))
    );
}

#[test]
fn torn_line_is_dropped_and_named() {
    let (_state, store) = store();
    store.write(&minute(5, 1.0)).unwrap();
    store.write(&minute(6, 1.0)).unwrap();
    let whole = fs::read_to_string(store.file(Day(0))).unwrap();
    assert_eq!(
        whole,
        "time_utc,bucket,offered_rps,clean\n1970-01-01T00:05:00Z,api,1.000,true\n\
         1970-01-01T00:05:00Z,shop/a,2.000,false\n1970-01-01T00:06:00Z,api,1.000,true\n\
         1970-01-01T00:06:00Z,shop/a,2.000,false\n"
    );
    let rows = |text: &str| {
        text.lines()
            .skip(1)
            .filter(|line| line.ends_with("true") || line.ends_with("false"))
            .count()
    };
    for cut in 0..whole.len() {
        fs::write(store.file(Day(0)), &whole[..cut]).unwrap();
        let is_torn = !(whole[..cut].ends_with('\n')
            || whole[..cut].ends_with("e") && rows(&whole[..cut]) > 0);
        store.write(&minute(7, 3.0)).unwrap();
        let restored = store.open().unwrap();
        let found: usize = restored
            .minutes
            .iter()
            .map(|minute| minute.samples.len())
            .sum();
        assert_eq!(found, rows(&whole[..cut]) + 2, "cut at {cut}");
        assert_eq!(
            restored.minutes.last(),
            Some(&minute(7, 3.0)),
            "cut at {cut}"
        );
        let loss = restored.losses.first().map(String::as_str);
        let named = format!("1970-01-01.csv:{}: dropped", whole[..cut].lines().count());
        let is_header = cut == whole.lines().next().unwrap().len();
        assert_eq!(
            loss.is_some_and(|loss| loss.contains(&named)),
            cut > 0 && is_torn && !is_header,
            "cut at {cut}: {loss:?}"
        );
    }
}

#[test]
fn damaged_lines_cost_themselves_alone() {
    let (_state, store) = store();
    (0..20).for_each(|at| store.write(&minute(at, 1.0)).unwrap());
    let path = store.file(Day(0));
    let mut bytes = fs::read(&path).unwrap();
    let lines: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] == b'\n').collect();
    for (line, byte) in [
        (1, b'"'),
        (5, 0xff),
        (9, b','),
        (13, b'x'),
        (17, 0),
        (21, b'-'),
        (25, b'"'),
    ] {
        bytes[lines[line] + 1] = byte;
    }
    fs::write(&path, bytes).unwrap();
    let restored = store.open().unwrap();
    let found: usize = restored
        .minutes
        .iter()
        .map(|minute| minute.samples.len())
        .sum();
    assert_eq!(found, 40 - 7);
    assert!(
        restored.losses[0].ends_with("lines 3, 7, 11, 15, 19 and 2 more"),
        "{:?}",
        restored.losses
    );
}

#[test]
fn minutes_are_merged_and_old_days_deleted() {
    let (_state, store) = store();
    store.write(&minute(5, 1.0)).unwrap();
    let other = |rps: f64, name: &str| -> BTreeMap<Minute, Samples> {
        let sample = Sample {
            offered: Rate::new(rps).unwrap(),
            clean: true,
        };
        [(Minute(5), [(bucket(name), sample)].into())].into()
    };
    let rate = |name| all(&store)[0].samples[&bucket(name)].offered.per_second();
    store.merge(&other(9.0, "api"), false).unwrap();
    store.merge(&other(3.0, "new"), false).unwrap();
    assert_eq!((rate("api"), rate("new"), rate("shop/a")), (1.0, 3.0, 2.0));
    store.merge(&other(9.0, "api"), true).unwrap();
    assert_eq!((rate("api"), rate("new")), (9.0, 3.0));
    let many = (1..20)
        .map(|day| (Minute(day * DAY), minute(0, 1.0).samples))
        .collect();
    store.merge(&many, false).unwrap();
    store.write(&minute(20 * DAY, 1.0)).unwrap();
    assert_eq!(
        store.days().unwrap(),
        (13..=20).map(Day).collect::<Vec<_>>()
    );
}

#[test]
fn damaged_summaries_are_put_aside() {
    for text in [
        "not json",
        "{\"a b\":{}}",
        "{\"api\":{\"open\":1,\"peaks\":[{\"day\":1,\"rate\":-1.0}],\"limit\":null}}",
    ] {
        let (_state, store) = store();
        store.write(&minute(5, 1.0)).unwrap();
        fs::write(store.folder.join(CLOSED), text).unwrap();
        let restored = store.open().unwrap();
        assert!(
            restored.losses[0].contains("it was put aside as"),
            "{:?}",
            restored.losses
        );
        assert!(store.folder.join("closed.json.unreadable-1").exists());
        assert_eq!(
            restored.minutes,
            [minute(5, 1.0)],
            "the summaries follow from the rows again"
        );
    }
}

#[test]
fn unusable_history_folder_loses_nothing() {
    let (state, store) = store();
    fs::write(state.path().join(FOLDER), "a file").unwrap();
    assert!(store.open().is_err() && store.write(&minute(1, 1.0)).is_err());
    assert_eq!(
        fs::read_to_string(state.path().join(FOLDER)).unwrap(),
        "a file"
    );
}

#[test]
fn files_are_for_their_owner_alone() {
    let (_state, store) = store();
    store.write(&minute(1, 1.0)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(&store.folder), mode(&store.file(Day(0)))),
        (0o700, 0o600)
    );
}

#[test]
fn earlier_database_is_named_with_the_remedy() {
    let (_state, store) = store();
    fs::create_dir_all(store.folder.join(DATABASE)).unwrap();
    let losses = store.open().unwrap().losses;
    assert!(
        losses[0].contains("export it with that version and import"),
        "{losses:?}"
    );
}
