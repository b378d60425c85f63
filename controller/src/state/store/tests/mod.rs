//! The store on real directories: restarts, damaged files, permissions and a disk that refuses.

mod damage;
pub(crate) mod etcd;

use plimsoll_core::directive::Epoch;

use super::*;

fn open(directory: &Path) -> (Store, Opened) {
    Store::open(directory).unwrap()
}

/// Opens a directory without a loss, and returns its state.
fn read(directory: &Path) -> DurableState {
    let (_, opened) = open(directory);
    assert_eq!(opened.loss, None);
    opened.durable
}

fn state(epoch: u64) -> DurableState {
    DurableState {
        epoch: Epoch(epoch),
        ..DurableState::first_start()
    }
}

#[test]
fn saved_state_is_read_from_locked_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b");
    assert_eq!(read(&path), DurableState::first_start());
    let (store, _) = open(&path);
    store.save(&state(40)).unwrap();
    store.save(&state(41)).unwrap();
    assert!(matches!(Store::open(&path), Err(StoreError::InUse(_))));
    drop(store);
    assert_eq!(read(&path), state(41));
}

#[test]
#[cfg(unix)]
fn state_file_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(FILE);
    let mode = || fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    let set = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    let (store, _) = open(directory.path());
    store.save(&state(1)).unwrap();
    assert_eq!(mode(), 0o600);
    drop(store);
    set(&file);
    let (store, _) = open(directory.path());
    assert_eq!(
        mode(),
        0o600,
        "a file of an earlier build is restricted at the next start"
    );
    // A crash left this one, and it may come from anywhere.
    let beside = directory.path().join("controller.state.new");
    fs::write(&beside, "half").unwrap();
    set(&beside);
    store.save(&state(2)).unwrap();
    assert_eq!(mode(), 0o600);
}

#[test]
fn crash_before_rename_keeps_the_former_state() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    store.save(&state(9)).unwrap();
    drop(store);
    let beside = directory.path().join("controller.state.new");
    fs::write(&beside, "plimsoll-state 1 xx").unwrap();
    assert_eq!(read(directory.path()), state(9));
    open(directory.path()).0.save(&state(10)).unwrap();
    assert!(!beside.exists());
}

#[test]
fn failed_save_keeps_the_former_state() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    store.save(&state(9)).unwrap();
    // A directory of that name refuses the write, regardless of the user who runs the test.
    let beside = directory.path().join("controller.state.new");
    fs::create_dir(&beside).unwrap();
    let refused = store.save(&state(10));
    assert!(matches!(refused, Err(StoreError::Write { .. })));
    let left = file::read(&directory.path().join(FILE)).unwrap();
    assert_eq!(left, Some(state(9)));
    fs::remove_dir(&beside).unwrap();
    store.save(&state(11)).unwrap();
    drop(store);
    assert_eq!(read(directory.path()), state(11));
}

#[cfg(unix)]
#[test]
fn deleted_lock_lets_one_controller_save() {
    let directory = tempfile::tempdir().unwrap();
    let (first, _) = open(directory.path());
    first.save(&state(1)).unwrap();
    fs::remove_file(directory.path().join(LOCK)).unwrap();
    let (second, _) = open(directory.path());
    second.save(&state(2)).unwrap();
    assert!(matches!(first.save(&state(1)), Err(StoreError::InUse(_))));
    drop(second);
    assert_eq!(read(directory.path()), state(2));
}

#[cfg(unix)]
#[test]
fn recreated_directory_is_locked_again() {
    let directory = tempfile::tempdir().unwrap();
    let state_directory = directory.path().join("state");
    let (store, _) = open(&state_directory);
    store.save(&state(1)).unwrap();
    fs::remove_dir_all(&state_directory).unwrap();
    store.save(&state(2)).unwrap();
    let in_use = Store::open(&state_directory);
    assert!(matches!(in_use, Err(StoreError::InUse(_))));
    drop(store);
    assert_eq!(read(&state_directory), state(2));
}
