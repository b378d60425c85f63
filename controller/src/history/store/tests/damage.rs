//! Damaged copies of a history, drawn by seed: each is opened, or put aside with a message.

use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use super::*;
use plimsoll_host::panics::alone;

/// Copies a folder with everything in it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to)
        } else {
            assert!(fs::copy(entry.path(), to).is_ok())
        }
    }
}

/// A history with tables and a journal.
fn whole() -> tempfile::TempDir {
    let state = tempfile::tempdir().unwrap();
    let (mut store, _) = HistoryStore::open(state.path()).unwrap();
    store.merge((0..300).map(|at| minute(at, 1.0)), false).unwrap();
    store.write_closed(&[(bucket("api"), Closed::default())], &[]).unwrap();
    store.write_answer("http://p", "up", Rate::new(3.0).unwrap()).unwrap();
    store.minutes.rotate_memtable_and_wait().unwrap();
    (300..400).for_each(|at| store.write(&minute(at, 1.0)).unwrap());
    state
}

/// Opens the history in another thread, so that one that blocks is a failure of the test.
fn open_in_time(state: &Path, what: &str) -> Restored {
    let (sender, receiver) = mpsc::channel();
    let state = state.to_owned();
    thread::spawn(move || {
        let opened = HistoryStore::open(&state).map(|(mut store, restored)| {
            store.write(&minute(1_000, 1.0)).unwrap();
            restored
        });
        sender.send(opened.map_err(|error| error.to_string()))
    });
    let opened = receiver.recv_timeout(Duration::from_secs(120));
    opened.unwrap_or_else(|error| panic!("{what}: {error}")).unwrap_or_else(|error| panic!("{what}: {error}"))
}

#[test]
fn damaged_copies_are_opened_or_put_aside() {
    alone(
        module_path!(),
        "damaged_copies_are_opened_or_put_aside",
        check_damaged_copies_are_opened_or_put_aside,
    )
    .unwrap();
}

fn check_damaged_copies_are_opened_or_put_aside() {
    let whole = whole();
    let (mut lost, count) = (0, 160);
    for seed in 0..count {
        let state = tempfile::tempdir().unwrap();
        copy(&whole.path().join(FOLDER), &state.path().join(FOLDER));
        let mut mixed = (seed + 1_usize).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut draw = |end: usize| {
            mixed ^= mixed << 13;
            mixed ^= mixed >> 7;
            mixed ^= mixed << 17;
            mixed % end
        };
        let files = files(&state.path().join(FOLDER));
        let file = &files[draw(files.len())];
        let mut bytes = fs::read(file).unwrap();
        // Most of a journal is room for later rows.
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
        let (from, way) = (draw(used), draw(5));
        let to = from + 1 + draw(used - from);
        match way {
            0 => bytes[from] ^= 1 << draw(8),
            1 => bytes.truncate(from),
            2 => bytes[from..to].fill(0),
            3 => bytes[from..to].fill_with(|| draw(256) as u8),
            _ => bytes[from..to].reverse(),
        }
        fs::write(file, bytes).unwrap();
        let what = format!("seed {seed}, way {way}, {}", file.display());
        let restored = open_in_time(state.path(), &what);
        if let Some(loss) = restored.loss {
            lost += 1;
            assert!(loss.contains("it was put aside as "), "{what}: {loss}");
            assert!(folder(state.path()).contains(&"history.unreadable-1".to_owned()), "{what}");
        }
    }
    assert!(lost > count / 10, "only {lost} of {count} copies were damaged");
}

#[test]
fn something_else_in_the_place_of_the_files_blocks_nothing() {
    alone(
        module_path!(),
        "something_else_in_the_place_of_the_files_blocks_nothing",
        check_something_else_in_the_place_of_the_files_blocks_nothing,
    )
    .unwrap();
}

fn check_something_else_in_the_place_of_the_files_blocks_nothing() {
    let whole = whole();
    let makes: [fn(&Path); 4] = [
        |path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
        |path| symlink("nowhere", path).unwrap(),
        |path| symlink("/dev/zero", path).unwrap(),
        |path| fs::create_dir(path).unwrap(),
    ];
    for (number, make) in makes.iter().enumerate() {
        for name in files(&whole.path().join(FOLDER)) {
            let state = tempfile::tempdir().unwrap();
            copy(&whole.path().join(FOLDER), &state.path().join(FOLDER));
            let path = state.path().join(name.strip_prefix(whole.path()).unwrap());
            fs::remove_file(&path).unwrap();
            make(&path);
            let what = format!("thing {number} at {}", path.display());
            open_in_time(state.path(), &what);
        }
    }
}

#[test]
fn files_that_are_read_as_a_whole_take_no_memory_whatever_their_size() {
    alone(
        module_path!(),
        "files_that_are_read_as_a_whole_take_no_memory_whatever_their_size",
        check_files_that_are_read_as_a_whole_take_no_memory_whatever_their_size,
    )
    .unwrap();
}

fn check_files_that_are_read_as_a_whole_take_no_memory_whatever_their_size() {
    let whole = whole();
    for name in files(&whole.path().join(FOLDER)).iter().filter(|name| is_read_whole(name)) {
        let state = tempfile::tempdir().unwrap();
        copy(&whole.path().join(FOLDER), &state.path().join(FOLDER));
        let name = name.strip_prefix(whole.path()).unwrap();
        // Reading a terabyte would end the process.
        OpenOptions::new().write(true).open(state.path().join(name)).unwrap().set_len(1 << 40).unwrap();
        let loss = open_in_time(state.path(), &name.display().to_string()).loss.unwrap();
        assert!(loss.contains("is larger than"), "{loss}");
    }
}
