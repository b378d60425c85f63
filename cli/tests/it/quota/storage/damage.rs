//! Damaged data: a file that is cut or has a flipped bit is refused with a message that names the
//! data, or the store opens and no bucket has more than it had.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;

use plimsoll_testing::process::{Process, until};
use plimsoll_testing::quota_crashes::{MAX, arguments, connect, left_in, take, taken};
use plimsoll_testing::turns::{ALL, turn};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

use super::journal::copy_all;

/// Number of buckets in the data, and of commits that took from them.
const BUCKETS: usize = 20;
const TAKES: usize = 120;
/// Number of buckets in tables, and of takes in a pipeline.
const OTHERS: usize = 20_000;
const PIPELINE: usize = 500;
/// As little memory as possible.
const FLAGS: [&str; 4] = ["--durability", "always", "--cache-mib", "16"];
/// Flipped bits in each file.
const FLIPS: usize = 6;
/// Servers that run at the same time.
const SIDE_BY_SIDE: usize = 4;

/// A data directory, and the tokens taken from its buckets.
struct Data {
    directory: TempDir,
    taken: BTreeMap<usize, u64>,
    /// For a killed server: the bytes of each file before its last commit, which a power cut may
    /// have torn.
    before_last: Option<BTreeMap<PathBuf, u64>>,
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    /// The file ends here.
    Cut(u64),
    /// Bit of a byte.
    Flip(u64, u8),
    Gone,
}

#[test]
fn damage_to_a_stopped_server_grants_nothing() {
    damage_each_file(&Data::new(false, 0));
}

#[test]
fn damage_to_a_killed_server_grants_nothing() {
    damage_each_file(&Data::new(true, 0));
}

#[test]
fn damage_to_tables_and_journals_grants_nothing() {
    let data = Data::new(true, OTHERS);
    let root = data.directory.path().join("data");
    let tables = files(&root).filter(|path| path.to_string_lossy().contains("/tables/"));
    assert!(tables.count() > 0, "nothing is in a table");
    damage_each_file(&data);
}

#[test]
fn undamaged_data_opens() {
    // Shows that the tests of damage can fail.
    for (is_killed, others) in [(false, 0), (true, 0), (true, OTHERS)] {
        let data = Data::new(is_killed, others);
        let server = Process::start(&arguments(&data.directory.path().join("data"), &FLAGS));
        let mut expected = data.taken.clone();
        if is_killed {
            *expected.get_mut(&0).unwrap() += 1;
        }
        let found = taken(&server, BUCKETS);
        // A take that was refused because the disk was busy may be saved anyway.
        assert!(
            expected
                .iter()
                .all(|(bucket, taken)| found[bucket] >= *taken),
            "{found:?}, {expected:?} expected"
        );
    }
}

fn damage_each_file(data: &Data) {
    let _turn = turn(ALL);
    let root = data.directory.path().join("data");
    let mut rng = SmallRng::seed_from_u64(2);
    let mut damages = Vec::new();
    for path in files(&root) {
        let name = path.strip_prefix(&root).unwrap().to_owned();
        let bytes = data
            .before_last
            .as_ref()
            .and_then(|files| files.get(&name).copied())
            .unwrap_or_else(|| content(&path));
        damages.extend([(name.clone(), Damage::Gone), (name.clone(), Damage::Cut(0))]);
        if bytes > 0 {
            damages.extend(
                [bytes / 3, bytes / 2, bytes - 1].map(|at| (name.clone(), Damage::Cut(at))),
            );
            let flips = (0..FLIPS)
                .map(|_| Damage::Flip(rng.random_range(0..bytes), 1 << rng.random_range(0..8)));
            damages.extend(flips.map(|flip| (name.clone(), flip)));
        }
    }
    assert!(damages.len() > FLIPS, "{damages:?}");
    for some in damages
        .chunks(damages.len().div_ceil(SIDE_BY_SIDE))
        .collect::<Vec<_>>()
        .chunks(SIDE_BY_SIDE)
    {
        thread::scope(|scope| {
            for part in some {
                scope.spawn(|| {
                    part.iter()
                        .for_each(|(name, damage)| data.check(name, *damage))
                });
            }
        });
    }
}

impl Data {
    /// Makes the data of a server that was stopped, or killed. With others, they exceed the memory
    /// of the database.
    fn new(is_killed: bool, others: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("data");
        let mut server = Process::start(&arguments(&root, &FLAGS));
        let mut connection = connect(server.address("listen"));
        for half in [0..TAKES / 2, TAKES / 2..TAKES] {
            for nth in half {
                until("a take", || take(&mut connection, nth % BUCKETS).ok());
            }
            for from in (0..others).step_by(PIPELINE) {
                let mut pipe = redis::pipe();
                (from..from + PIPELINE).for_each(|other| {
                    pipe.cmd("RL.REDUCE")
                        .arg(format!("other-{other}"))
                        .arg(9)
                        .arg(900);
                });
                // Some may be refused because the disk is busy.
                let _ = pipe.query::<Vec<u64>>(&mut connection);
            }
        }
        let mut before_last = None;
        let taken = if is_killed {
            let taken = taken(&server, BUCKETS);
            before_last = Some(
                files(&root)
                    .map(|path| (path.strip_prefix(&root).unwrap().to_owned(), content(&path)))
                    .collect(),
            );
            until("a take", || take(&mut connection, 0).ok());
            server.kill_9();
            taken
        } else {
            let taken = taken(&server, BUCKETS);
            assert!(server.terminate().success());
            taken
        };
        Self {
            directory,
            taken,
            before_last,
        }
    }

    fn check(&self, name: &Path, damage: Damage) {
        let copy = tempfile::tempdir().unwrap();
        let root = copy.path().join("data");
        copy_all(&self.directory.path().join("data"), &root);
        apply(&root.join(name), damage);
        let mut server = Process::spawn(&arguments(&root, &FLAGS));
        let what = format!("{}, {damage:?}", name.display());
        let is_open = until(&what, || {
            let is_listening = server.log().iter().any(|line| line.contains("\"listen\":"));
            let is_ended = || server.has_ended();
            if is_listening {
                Some(true)
            } else {
                is_ended().then_some(false)
            }
        });
        if is_open {
            let server = server.listening();
            let mut connection = connect(server.address("listen"));
            for (bucket, taken) in &self.taken {
                // A bucket that cannot be read grants nothing.
                let found = left_in(&mut connection, *bucket).map_or(MAX, |left| MAX - left);
                assert!(
                    found >= *taken,
                    "{what}: bucket {bucket} has {} tokens more: {:?}",
                    taken - found,
                    server.log()
                );
            }
        } else {
            let status = server.ended();
            let log = server.log().join("\n");
            assert!(
                !status.success() && log.contains("error: "),
                "{what}: {status}: {log}"
            );
            assert!(
                log.contains(&root.display().to_string()),
                "{what}: the message names the data: {log}"
            );
            assert!(status.code().is_some(), "{what}: it aborted: {log}");
        }
    }
}

/// Returns all non-empty files below a directory.
fn files(root: &Path) -> impl Iterator<Item = PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path)
            } else {
                files.push(path)
            }
        }
    }
    files.sort();
    files.into_iter().filter(|path| content(path) > 0)
}

/// Returns the bytes of a file without zeros at its end: journals are allocated before they are
/// written. 0 for a file that a running server has removed.
fn content(path: &Path) -> u64 {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return 0,
        read => read.unwrap(),
    };
    bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at as u64 + 1)
}

fn apply(path: &Path, damage: Damage) {
    match damage {
        Damage::Cut(length) => OpenOptions::new()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(length)
            .unwrap(),
        Damage::Flip(at, bit) => {
            let mut byte = [0];
            File::open(path)
                .unwrap()
                .read_exact_at(&mut byte, at)
                .unwrap();
            OpenOptions::new()
                .write(true)
                .open(path)
                .unwrap()
                .write_all_at(&[byte[0] ^ bit], at)
                .unwrap();
        }
        Damage::Gone => fs::remove_file(path).unwrap(),
    }
}
