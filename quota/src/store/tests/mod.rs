//! The store on real files: restarts, damage, directories that cannot be used, and rows that expire.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_core::quota::{Balance, QuotaRate};

mod cuts;

use super::expiry::FULL_MS;
use super::*;

const SIZES: Sizes = Sizes {
    blocks: 1 << 20,
    memtable: 1 << 20,
    log: 1 << 20,
};

fn open(data: &Path) -> Result<(DatabaseStore, u64), OpenError> {
    DatabaseStore::open(data, Arc::default(), SIZES)
}

fn key(number: u64) -> RowKey {
    Kind::Tokens(QuotaRate::new(10, 1, 100).unwrap()).row_key(format!("key-{number:06}").as_bytes())
}

fn row(tokens: u64, full_at_ms: u64) -> Row {
    let state = State::Tokens(Balance {
        tokens,
        refilled_at_ms: 1,
        session_start_ms: 2,
    });
    Row { state, full_at_ms }
}

fn commit(store: &DatabaseStore, number: u64, keys: std::ops::Range<u64>, row: Row) -> Rows {
    let mut rows = Rows::default();
    for number in keys {
        rows.push(&key(number), Some(&row));
    }
    rows.sort();
    store.commit(number, &rows, &mut || {}).unwrap();
    rows
}

fn write(store: &DatabaseStore, number: u64, keys: std::ops::Range<u64>, row: Row) {
    let rows = commit(store, number, keys, row);
    store.settle(&rows).unwrap();
    store.forget(number).unwrap();
}

fn journals(data: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(data.join("store"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut journals: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|extension| extension == "jnl"))
        .collect();
    journals.sort();
    journals
}

/// Returns the bytes of a journal without zeros at its end: it is allocated before it is written.
fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1
}

fn refusal(data: &Path) -> String {
    open(data)
        .map(|(_, number)| number)
        .unwrap_err()
        .to_string()
}

#[test]
fn data_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let _open = open(&data).unwrap();
    for path in [data.clone(), data.join("store")] {
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o700,
            "{path:?}"
        );
    }
}

#[test]
fn commits_survive_an_abrupt_restart() {
    let data = tempfile::tempdir().unwrap();
    let (store, number) = open(data.path()).unwrap();
    assert_eq!(number, 0);
    write(&store, 1, 0..3, row(5, 7));
    write(&store, 4, 1..2, row(6, 8));
    drop(store);
    let (store, number) = open(data.path()).unwrap();
    assert_eq!(number, 4);
    assert_eq!(store.get(&key(0)).unwrap(), Some(row(5, 7)));
    assert_eq!(store.get(&key(1)).unwrap(), Some(row(6, 8)));
    assert_eq!(store.get(&key(9)).unwrap(), None);
    let found = store.scan(b"key-", None, 10).unwrap();
    assert_eq!(
        found.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(),
        [key(0), key(1), key(2)]
    );
}

#[test]
fn logged_changes_keep_order_after_restart() {
    let data = tempfile::tempdir().unwrap();
    let (store, _) = open(data.path()).unwrap();
    write(&store, 1, 0..3, row(9, 1));
    commit(&store, 2, 1..3, row(8, 1));
    let rows = commit(&store, 3, 2..3, row(7, 1));
    assert_eq!(
        store.get(&key(2)).unwrap(),
        Some(row(9, 1)),
        "not settled yet"
    );
    // A row may be settled before the log drops the changes up to it.
    store.settle(&rows).unwrap();
    store.forget(2).unwrap();
    drop(store);
    let (store, number) = open(data.path()).unwrap();
    assert_eq!(number, 3);
    let found = (0..3)
        .map(|number| store.get(&key(number)).unwrap())
        .collect::<Vec<_>>();
    // The change of the second was dropped before it was settled.
    assert_eq!(found, [Some(row(9, 1)), Some(row(9, 1)), Some(row(7, 1))]);
}

#[test]
fn removal_in_the_log_removes_the_row() {
    let data = tempfile::tempdir().unwrap();
    let (store, _) = open(data.path()).unwrap();
    write(&store, 1, 0..2, row(9, 1));
    let mut rows = Rows::default();
    rows.push(&key(0), None);
    store.commit(2, &rows, &mut || {}).unwrap();
    drop(store);
    let (store, _) = open(data.path()).unwrap();
    assert_eq!(
        [store.get(&key(0)).unwrap(), store.get(&key(1)).unwrap()],
        [None, Some(row(9, 1))]
    );
}

#[test]
fn foreign_formats_and_second_servers_are_refused() {
    let data = tempfile::tempdir().unwrap();
    let (store, _) = open(data.path()).unwrap();
    assert!(refusal(data.path()).contains("another quota server uses this directory"));
    drop(store);
    fs::write(data.path().join("format"), "2\n").unwrap();
    assert!(refusal(data.path()).contains("its format is 2, and this version reads 1"));
    fs::write(data.path().join("format"), "?").unwrap();
    assert!(refusal(data.path()).contains("it must hold the format"));
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("holiday.jpg"), "").unwrap();
    assert!(refusal(other.path()).contains("no data directory of a quota server"));
}

#[test]
fn cut_creation_begins_again() {
    let data = tempfile::tempdir().unwrap();
    drop(open(data.path()).unwrap());
    fs::write(data.path().join("creating"), "").unwrap();
    fs::remove_file(data.path().join("store/version")).unwrap();
    let (store, number) = open(data.path()).unwrap();
    assert_eq!(number, 0);
    write(&store, 1, 0..1, row(1, 1));
    drop(store);
    assert_eq!(open(data.path()).unwrap().1, 1);
}

#[test]
fn journal_that_lost_a_commit_is_refused() {
    let filled = tempfile::tempdir().unwrap();
    let (store, _) = open(filled.path()).unwrap();
    for number in 1..=20 {
        commit(&store, number, number..number + 5, row(1, 1));
    }
    drop(store);
    let journal = journals(filled.path()).remove(0);
    let whole = fs::read(&journal).unwrap();
    let used = used(&whole);
    for share in 1..16 {
        let at = used * share / 16;
        for is_cut in [true, false] {
            let file = fs::OpenOptions::new().write(true).open(&journal).unwrap();
            if is_cut {
                file.set_len(at as u64).unwrap();
            } else {
                file.write_all_at(&[whole[at] ^ 0x10], at as u64).unwrap();
            }
            let refused = refusal(filled.path());
            assert!(
                refused.contains("are missing") || refused.contains("restore the directory"),
                "{share}/16, cut: {is_cut}: {refused}"
            );
            file.write_all_at(&whole[..used], 0).unwrap();
            file.set_len(whole.len() as u64).unwrap();
        }
    }
    assert!(open(filled.path()).is_ok(), "nothing else was damaged");
    fs::remove_file(journals(filled.path()).remove(0)).unwrap();
    assert!(refusal(filled.path()).contains("commits 1 to 20, which were on disk, are missing"));
    fs::remove_dir_all(filled.path().join("store")).unwrap();
    assert!(refusal(filled.path()).contains("commits 1 to 20, which were on disk, are missing"));
}

#[test]
fn unreadable_journal_is_no_damage() {
    let data = tempfile::tempdir().unwrap();
    let (store, _) = open(data.path()).unwrap();
    write(&store, 1, 0..5, row(1, 1));
    drop(store);
    fs::create_dir(journals(data.path()).remove(0).with_file_name("9.jnl")).unwrap();
    assert!(
        matches!(open(data.path()), Err(OpenError::Io { .. })),
        "{}",
        refusal(data.path())
    );
}

#[test]
fn bytes_after_the_last_commit_are_dropped() {
    let data = tempfile::tempdir().unwrap();
    let (store, _) = open(data.path()).unwrap();
    write(&store, 1, 0..5, row(1, 1));
    drop(store);
    let journal = journals(data.path()).remove(0);
    let mut bytes = fs::read(&journal).unwrap();
    let used = used(&bytes);
    // The beginning of an incomplete batch.
    bytes.splice(used..used + 13, [1, 9, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0]);
    fs::write(&journal, bytes).unwrap();
    let (store, number) = open(data.path()).unwrap();
    assert_eq!((number, store.get(&key(4)).unwrap()), (1, Some(row(1, 1))));
}

#[test]
fn gap_between_journals_is_noticed() {
    let data = tempfile::tempdir().unwrap();
    let (store, _) = open(data.path()).unwrap();
    write(&store, 1, 0..5, row(1, 1));
    let first = fs::read(journals(data.path()).remove(0)).unwrap();
    for number in 2..4 {
        write(&store, number, 0..5, row(1, 1));
    }
    drop(store);
    let store = data.path().join("store");
    let all = journals::check(&store).unwrap();
    assert_eq!((all.before, all.last), (0, Some(3)));
    // As if the rest of the first journal, and the first commits of the second one, were lost.
    let other = tempfile::tempdir().unwrap();
    let (second, _) = open(other.path()).unwrap();
    write(&second, 3, 0..5, row(1, 1));
    write(&second, 4, 0..5, row(1, 1));
    drop(second);
    let journal = journals(data.path()).remove(0);
    fs::copy(
        journals(other.path()).remove(0),
        journal.with_file_name("9.jnl"),
    )
    .unwrap();
    fs::write(&journal, first).unwrap();
    assert!(refusal(data.path()).contains("are missing in or before it"));
}

#[test]
fn full_buckets_are_removed_and_no_others() {
    let data = tempfile::tempdir().unwrap();
    let clock = Arc::new(AtomicU64::new(0));
    let (store, _) = DatabaseStore::open(data.path(), clock.clone(), SIZES).unwrap();
    let count = 40_000;
    write(&store, 1, 0..count, row(1, 1_000_000));
    write(&store, 2, 0..100, row(2, 2_000_000));
    store.flush(false).unwrap();
    store.sweep().unwrap();
    assert_eq!(
        store.scan(b"", None, usize::MAX).unwrap().len(),
        count as usize
    );
    let before = store.disk_bytes();
    clock.store(1_000_000 + FULL_MS - 1, Ordering::Relaxed);
    store.sweep().unwrap();
    assert_eq!(
        store.scan(b"", None, usize::MAX).unwrap().len(),
        count as usize,
        "not yet"
    );
    clock.store(1_000_000 + FULL_MS, Ordering::Relaxed);
    store.sweep().unwrap();
    assert_eq!(store.scan(b"", None, usize::MAX).unwrap().len(), 100);
    assert_eq!(store.get(&key(99)).unwrap(), Some(row(2, 2_000_000)));
    assert_eq!(store.get(&key(100)).unwrap(), None);
    let after = store.tables_bytes();
    assert!(after < 100_000, "{after} of {before} bytes");
    drop(store);
    let (store, number) = open(data.path()).unwrap();
    assert_eq!(
        (number, store.get(&key(5)).unwrap()),
        (2, Some(row(2, 2_000_000)))
    );
}

#[test]
fn reopened_store_has_all_commits() {
    let data = tempfile::tempdir().unwrap();
    let (store, _) = open(data.path()).unwrap();
    write(&store, 1, 0..5, row(1, 1));
    store.reopen().unwrap();
    assert_eq!(store.get(&key(4)).unwrap(), Some(row(1, 1)));
    write(&store, 3, 4..5, row(0, 1));
    drop(store);
    let (store, number) = open(data.path()).unwrap();
    assert_eq!((number, store.get(&key(4)).unwrap()), (3, Some(row(0, 1))));
}

proptest::proptest! {
    #[test]
    fn rows_are_sorted_by_their_keys(keys in proptest::collection::vec("(ab){0,6}[a-d\0]{0,12}", 0..40)) {
        let mut rows = Rows::default();
        keys.iter().for_each(|key| rows.push(key.as_bytes(), None));
        rows.sort();
        let mut sorted: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
        sorted.sort_unstable();
        proptest::prop_assert_eq!(rows.iter().map(|(key, _)| key).collect::<Vec<_>>(), sorted);
    }
}
