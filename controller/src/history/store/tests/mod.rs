//! The history on real files: restarts, damage, and directories that cannot be used.

mod children;
mod damage;

use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom, Write};

use super::*;
use plimsoll_core::quantity::Rate;
use plimsoll_host::panics::alone;
use plimsoll_policy::learning::{Baseline, Day, Sample};

fn bucket(name: &str) -> Bucket {
    Bucket::new(name).unwrap()
}

fn minute(number: i64, rps: f64) -> MinuteSamples {
    let sample = |rps, clean| Sample { offered: Rate::new(rps).unwrap(), clean };
    let samples = [(bucket("api"), sample(rps, true)), (bucket("shop/a"), sample(rps * 2.0, false))];
    MinuteSamples { minute: Minute(number), samples: samples.into() }
}

fn all(store: &HistoryStore) -> Vec<MinuteSamples> {
    store.range(Minute(i64::MIN), Minute(i64::MAX)).map(Result::unwrap).collect()
}

fn folder(state: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(state).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Returns every file with content below a folder, the journal last.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let all = entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] });
    let mut found: Vec<PathBuf> = all.filter(|path| fs::metadata(path).unwrap().len() > 0).collect();
    found.sort_by_key(|path| (path.extension().is_some_and(|extension| extension == "jnl"), path.clone()));
    found
}

#[test]
fn minutes_are_restored_in_order() {
    let state = tempfile::tempdir().unwrap();
    let (mut store, restored) = HistoryStore::open(state.path()).unwrap();
    assert!(restored.minutes.is_empty() && restored.closed.is_empty() && restored.loss.is_none());
    let written: Vec<MinuteSamples> = [-3, 0, 7, 1_440].map(|at| minute(at, 1.0 + at.abs() as f64)).into();
    for minute in written.iter().rev() {
        store.write(minute).unwrap();
    }
    drop(store);
    let (store, restored) = HistoryStore::open(state.path()).unwrap();
    assert_eq!((&restored.minutes, all(&store)), (&written, written.clone()));
    let some: Vec<i64> = store.range(Minute(0), Minute(1_440)).map(|row| row.unwrap().minute.0).collect();
    assert_eq!(some, [0, 7]);
}

#[test]
#[cfg(unix)]
fn database_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let state = tempfile::tempdir().unwrap();
    fs::set_permissions(state.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let _open = HistoryStore::open(state.path()).unwrap();
    assert_eq!(fs::metadata(state.path().join(FOLDER)).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn minutes_of_summarised_days_are_not_restored() {
    let state = tempfile::tempdir().unwrap();
    let (mut store, _) = HistoryStore::open(state.path()).unwrap();
    let mut baseline = Baseline::default();
    baseline.turn(Day(1), None);
    let closed = baseline.closed();
    for at in [1_439, 1_440, 1_441] {
        store.write(&minute(at, 5.0)).unwrap();
    }
    store.write_closed(&[(bucket("api"), closed.clone()), (bucket("old"), closed.clone())], &[]).unwrap();
    store.write_closed(&[], &[bucket("old")]).unwrap();
    drop(store);
    let (_, restored) = HistoryStore::open(state.path()).unwrap();
    assert_eq!(restored.closed, [(bucket("api"), closed)].into());
    assert_eq!(restored.minutes, [minute(1_440, 5.0), minute(1_441, 5.0)]);
}

#[test]
fn minutes_are_merged_and_the_oldest_are_deleted() {
    let state = tempfile::tempdir().unwrap();
    let (mut store, _) = HistoryStore::open(state.path()).unwrap();
    store.write(&minute(5, 1.0)).unwrap();
    let other = |rps: f64, name: &str| MinuteSamples {
        minute: Minute(5),
        samples: [(bucket(name), Sample { offered: Rate::new(rps).unwrap(), clean: true })].into(),
    };
    store.merge([other(9.0, "api"), other(3.0, "new")], false).unwrap();
    let rate = |store: &HistoryStore, name| all(store)[0].samples[&bucket(name)].offered.per_second();
    assert_eq!((rate(&store, "api"), rate(&store, "new"), rate(&store, "shop/a")), (1.0, 3.0, 2.0));
    store.merge([other(9.0, "api")], true).unwrap();
    assert_eq!((rate(&store, "api"), rate(&store, "new")), (9.0, 3.0));

    let many = (10..10 + MINUTES_MAX as i64).map(|at| minute(at, 1.0));
    store.merge(many, false).unwrap();
    let left = all(&store);
    assert_eq!((left.len(), left[0].minute), (MINUTES_MAX, Minute(10)));
    drop(store);
    let (mut store, _) = HistoryStore::open(state.path()).unwrap();
    store.write(&minute(100_000, 1.0)).unwrap();
    assert_eq!((all(&store).len(), all(&store)[0].minute), (MINUTES_MAX, Minute(11)));
}

#[test]
fn history_opens_whatever_is_damaged() {
    alone(module_path!(), "history_opens_whatever_is_damaged", check_history_opens_whatever_is_damaged)
        .unwrap();
}

fn check_history_opens_whatever_is_damaged() {
    let filled = || {
        let state = tempfile::tempdir().unwrap();
        let (mut store, _) = HistoryStore::open(state.path()).unwrap();
        store.merge((0..50).map(|at| minute(at, 1.0)), false).unwrap();
        store.write_closed(&[(bucket("api"), Closed::default())], &[]).unwrap();
        // Into tables, so that there is more than a journal to damage.
        store.minutes.rotate_memtable_and_wait().unwrap();
        store.write(&minute(50, 1.0)).unwrap();
        state
    };
    let damage: [fn(&Path); 4] = [
        |file| fs::write(file, b"this is no database").unwrap(),
        |file| fs::remove_file(file).unwrap(),
        |file| {
            let half = fs::metadata(file).unwrap().len() / 2;
            OpenOptions::new().write(true).open(file).unwrap().set_len(half).unwrap();
        },
        |file| {
            let mut file = OpenOptions::new().read(true).write(true).open(file).unwrap();
            let mut start = [0; 64];
            let length = file.read(&mut start).unwrap();
            start.iter_mut().for_each(|byte| *byte ^= 0x5a);
            file.seek(SeekFrom::Start(0)).unwrap();
            file.write_all(&start[..length]).unwrap();
        },
    ];
    let count = files(filled().path()).len();
    assert!(count >= 3, "{count}");
    let mut losses = 0;
    for at in 0..count {
        // Each file is damaged in one way, the journal in all of them.
        let ways = if at + 1 == count { 0..damage.len() } else { at % damage.len()..at % damage.len() + 1 };
        for damage in &damage[ways] {
            let state = filled();
            // The database may have merged files in the background since they were counted: the journal is last.
            let mut files = files(state.path());
            let file = files.swap_remove(at.min(files.len() - 1));
            damage(&file);
            let (mut store, restored) = HistoryStore::open(state.path()).unwrap();
            if restored.loss.is_some() {
                losses += 1;
                assert_eq!(folder(state.path()), ["history", "history.unreadable-1"], "{}", file.display());
                assert!(restored.minutes.is_empty() && restored.closed.is_empty());
            }
            store.write(&minute(60, 1.0)).unwrap();
            drop(store);
            let (store, again) = HistoryStore::open(state.path()).unwrap();
            assert!(again.loss.is_none(), "{}: {:?}", file.display(), again.loss);
            assert_eq!(all(&store).last(), Some(&minute(60, 1.0)), "{} {:?}", file.display(), restored.loss);
        }
    }
    assert!(losses >= count / 2, "{losses} of {count} were noticed");
}

#[test]
fn unreadable_rows_are_a_loss() {
    for (keyspace, key, value) in [
        ("minutes", &b"short"[..], &b"\x01"[..]),
        ("minutes", b"12345678", b"\x02"),
        ("minutes", b"12345678", b"\x01\x03api\x7f\xf8\0\0\0\0\0\0\x01"),
        ("minutes", b"12345678", b"\x01\x03api"),
        ("closed", b"api", b"not json"),
        ("closed", b"a b", b"{}"),
        ("closed", b"api", br#"{"open":1,"peaks":[{"day":1,"rate":-1.0}],"limit":null}"#),
    ] {
        let state = tempfile::tempdir().unwrap();
        let (store, _) = HistoryStore::open(state.path()).unwrap();
        let keyspace = if keyspace == "minutes" { &store.minutes } else { &store.closed };
        keyspace.insert(key, value).unwrap();
        drop(store);
        let (_store, restored) = HistoryStore::open(state.path()).unwrap();
        assert!(restored.loss.is_some(), "{value:?}");
        assert_eq!(folder(state.path()), ["history", "history.unreadable-1"]);
    }
}

#[test]
fn unusable_folder_is_an_error_and_no_loss() {
    let state = tempfile::tempdir().unwrap();
    fs::write(state.path().join("history"), "a file").unwrap();
    let error = HistoryStore::open(state.path()).unwrap_err();
    assert!(matches!(error.fault, Fault::Unavailable(_)), "{error}");
    assert_eq!(folder(state.path()), ["history"], "no file is moved");
    fs::remove_file(state.path().join("history")).unwrap();
    let (_held, _) = HistoryStore::open(state.path()).unwrap();
    let error = HistoryStore::open(state.path()).unwrap_err();
    assert!(matches!(error.fault, Fault::Locked), "{error}");
}
