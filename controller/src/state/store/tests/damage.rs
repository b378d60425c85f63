//! Damaged copies of a state file, drawn by seed: each is read whole or put aside, and the controller begins in
//! shadow; none panics, blocks or takes much memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64;

use super::*;
use crate::brain::tests::policy;

/// A reason, and a way to put something else in the place of the state file.
type Replacement<'a> = (&'a str, &'a dyn Fn(&Path));

/// Draws by seed (SplitMix64).
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn pick(&mut self, all: &[&'static str]) -> &'static str {
        all[self.below(all.len())]
    }

    fn range(&mut self, end: usize) -> Range<usize> {
        let start = self.below(end);
        start..start + 1 + self.below(end - start)
    }
}

fn whole() -> DurableState {
    let entries: String = (0..40)
        .map(|n| format!("  b{n}: {{ limit: {n}, mode: enforce }}\n"))
        .collect();
    let mut state = state(9);
    state.on_policy(&policy(&format!("buckets:\n{entries}")));
    state
}

fn with_checksum(body: &[u8]) -> Vec<u8> {
    let header = format!("plimsoll-state 1 xxh3 {:016x}\n", xxh3_64(body));
    [header.as_bytes(), body].concat()
}

/// Damages the bytes of a file in one of ten ways.
fn damage(bytes: &mut Vec<u8>, draws: &mut Draws) -> &'static str {
    let range = draws.range(bytes.len());
    match draws.below(10) {
        0 => {
            for _ in 0..=draws.below(8) {
                let at = draws.below(bytes.len());
                bytes[at] ^= 1 << draws.below(8);
            }
            "bits"
        }
        1 => {
            bytes.truncate(range.start);
            "cut"
        }
        2 => {
            bytes[range].fill(0);
            "zeros"
        }
        3 => {
            let (from, to) = (range.start, range.end - 1);
            bytes.swap(from, to);
            bytes[from..=to].reverse();
            "swap"
        }
        4 => {
            bytes[range].fill_with(|| draws.next() as u8);
            "random"
        }
        5 => {
            bytes.extend_from_within(range);
            "longer"
        }
        6 => {
            bytes.drain(range);
            "hole"
        }
        7 => {
            let line = bytes.iter().position(|byte| *byte == b'\n').unwrap();
            let version = format!("plimsoll-state {} xxh3 ", 2 + draws.below(9));
            bytes.splice(..line - 16, version.into_bytes());
            "version"
        }
        8 => {
            // Right checksums over wrong content: deep, or of other types.
            let line = bytes.iter().position(|byte| *byte == b'\n').unwrap();
            let mut body = bytes[line + 1..].to_vec();
            match draws.below(3) {
                0 => {
                    let open = draws.pick(&["[", "{\"a\":"]);
                    body = open.repeat(1 + draws.below(100_000)).into_bytes();
                }
                1 => {
                    let all = ["null", "[]", "{\"epoch\":-1}", "1e999", "\"\\ud800\""];
                    body = draws.pick(&all).into();
                }
                _ => {
                    let text = String::from_utf8(body).unwrap();
                    let all = ["\"nine\"", "-9", "9.5", "null", "18446744073709551616"];
                    let other = format!("\"epoch\":{}", draws.pick(&all));
                    body = text.replacen("\"epoch\":9", &other, 1).into_bytes();
                }
            }
            *bytes = with_checksum(&body);
            "content"
        }
        _ => {
            bytes.clear();
            "empty"
        }
    }
}

/// Opens the directory, and checks the outcome: the whole state, or shadow with a message that names both files.
/// Returns true for a loss.
fn open_damaged(directory: &Path, whole: &DurableState, what: &str) -> bool {
    let (store, opened) = Store::open(directory).unwrap();
    let file = directory.join(FILE).display().to_string();
    let Opened { durable, loss } = opened;
    if let Some(loss) = &loss {
        assert_eq!(durable, DurableState::lost(), "{what}");
        let aside = loss
            .rsplit_once(" put aside as ")
            .unwrap_or_else(|| panic!("{what}: {loss}"))
            .1;
        assert!(
            loss.contains(&file) && Path::new(aside).symlink_metadata().is_ok(),
            "{what}: {loss}"
        );
    } else {
        assert_eq!(durable, *whole, "{what}");
    }
    // It saves again, and the next start reads that.
    store.save(&durable).unwrap();
    drop(store);
    assert_eq!(read(directory), durable, "{what}");
    loss.is_some()
}

#[test]
fn damaged_copies_are_read_or_set_aside() {
    let whole = whole();
    let good = file::encode(&whole).unwrap();
    let (mut lost, mut ways) = (0, BTreeMap::<&str, u32>::new());
    for seed in 0..600 {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(MARKER), "").unwrap();
        let mut bytes = good.clone();
        let way = damage(&mut bytes, &mut Draws(seed));
        fs::write(directory.path().join(FILE), bytes).unwrap();
        *ways.entry(way).or_default() += 1;
        let what = format!("seed {seed}, {way}");
        lost += u32::from(open_damaged(directory.path(), &whole, &what));
    }
    assert!(
        ways.len() == 10 && ways.values().all(|count| *count > 20),
        "{ways:?}"
    );
    assert!(lost > 500, "only {lost} copies were damaged");
}

#[test]
fn obstacles_at_the_state_path_are_moved() {
    let whole = whole();
    let makes: [Replacement<'_>; 7] = [
        ("a directory", &|path| fs::create_dir(path).unwrap()),
        ("a FIFO", &|path| {
            assert!(Command::new("mkfifo").arg(path).status().unwrap().success())
        }),
        ("a device", &|path| symlink("/dev/zero", path).unwrap()),
        ("No such file", &|path| symlink("nowhere", path).unwrap()),
        ("symbolic links", &|path| symlink(FILE, path).unwrap()),
        ("larger than", &|path| {
            File::create(path).unwrap().set_len(1 << 40).unwrap()
        }),
        ("header", &|path| {
            fs::write(path, vec![b'x'; 1 << 20]).unwrap()
        }),
    ];
    for (reason, make) in makes {
        let directory = tempfile::tempdir().unwrap();
        let make = || make(&directory.path().join(FILE));
        make();
        let loss = Store::open(directory.path()).unwrap().1.loss.unwrap();
        assert!(loss.contains(reason), "{loss}");
        make();
        assert!(open_damaged(directory.path(), &whole, reason));
    }
    let mode = fs::metadata("/dev/zero").unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o666, "the target of a link is left alone");
}

#[test]
fn unreadable_state_is_lost_to_unprivileged_readers() {
    let (directory, whole) = (tempfile::tempdir().unwrap(), whole());
    let path = directory.path().join(FILE);
    fs::write(&path, file::encode(&whole).unwrap()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    let is_refused = File::open(&path).is_err();
    assert_eq!(
        open_damaged(directory.path(), &whole, "permission"),
        is_refused
    );
}

#[test]
fn another_version_is_told_from_damage() {
    let directory = tempfile::tempdir().unwrap();
    let good = String::from_utf8(file::encode(&whole()).unwrap()).unwrap();
    for (text, reason) in [
        (
            good.replacen(" 1 ", " 2 ", 1),
            "its format is version 2, and this build reads version 1",
        ),
        (good.replacen(" 1 ", " x ", 1), "its header is damaged"),
        (
            good.replacen("\"epoch\":9", "\"epoch\":8", 1),
            "it is damaged: its checksum is wrong",
        ),
        (
            String::from_utf8(with_checksum(b"{\"epoch\":9}")).unwrap(),
            "its checksum is right, but this build cannot read its content",
        ),
    ] {
        fs::write(directory.path().join(FILE), text).unwrap();
        let loss = Store::open(directory.path()).unwrap().1.loss.unwrap();
        assert!(loss.contains(reason), "{loss}");
    }
}

#[test]
fn damaged_state_is_kept_until_disk_works() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE);
    fs::write(&path, "damaged").unwrap();
    // As after a start that could not put it aside.
    let aside = put_aside(&path).unwrap();
    fs::rename(&aside, &path).unwrap();
    let mut claim = Claim {
        lock: None,
        is_damaged: true,
    };
    claim.lock(directory.path()).unwrap();
    let store = Store {
        directory: directory.path().to_owned(),
        claim: Mutex::new(claim),
    };
    store.save(&whole()).unwrap();
    // The first save keeps the damaged state.
    assert_eq!(fs::read_to_string(aside).unwrap(), "damaged");
    store.save(&whole()).unwrap();
    drop(store);
    assert_eq!(read(directory.path()), whole());
}

#[test]
fn unusable_directory_is_retried_each_save() {
    let parent = tempfile::tempdir().unwrap();
    let file = parent.path().join("file");
    fs::write(&file, "").unwrap();
    // No file can be created below a file, not even by root.
    let directory = file.join("state");
    let (store, opened) = Store::open(&directory).unwrap();
    assert_eq!(opened.durable, DurableState::lost());
    let error = store.save(&whole()).unwrap_err().to_string();
    assert!(
        error.contains(directory.to_str().unwrap()) && error.contains("--state-dir"),
        "{error}"
    );
    fs::remove_file(&file).unwrap();
    store.save(&whole()).unwrap();
    // It is locked from now on.
    let in_use = Store::open(&directory);
    assert!(matches!(in_use, Err(StoreError::InUse(_))));
    drop(store);
    assert_eq!(read(&directory), whole());
}

#[test]
fn obstacle_at_the_lock_path_prevents_nothing() {
    let makes: [Replacement<'_>; 3] = [
        ("a FIFO", &|path| {
            assert!(Command::new("mkfifo").arg(path).status().unwrap().success())
        }),
        ("a device", &|path| symlink("/dev/zero", path).unwrap()),
        ("a directory", &|path| fs::create_dir(path).unwrap()),
    ];
    for (what, make) in makes {
        let directory = tempfile::tempdir().unwrap();
        make(&directory.path().join(LOCK));
        let path = directory.path().to_owned();
        let (sender, receiver) = mpsc::channel();
        // In another thread, so that an open that waits forever is a failure of the test.
        thread::spawn(move || drop(sender.send(Store::open(&path).unwrap())));
        let opened = receiver.recv_timeout(Duration::from_secs(60));
        let (store, _) = opened.unwrap_or_else(|_| panic!("{what} blocks"));
        let error = store.save(&whole()).unwrap_err().to_string();
        assert!(error.contains(&format!("it is {what}")), "{error}");
    }
}
