//! Guarantees that `kill -9` cannot show, because the page cache survives it: under `always` no
//! reply is sent before its debit is synced, and a journal that ends at the last synced byte holds
//! every debit with a reply.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::thread;

use plimsoll_testing::is_installed;
use plimsoll_testing::process::Process;
use plimsoll_testing::quota_crashes::{arguments, connect, take, taken};
use plimsoll_testing::turns::{IDLE, turn};
use tempfile::TempDir;

use super::trace::{Call, calls, kill_traced, start_traced};

/// Number of connections of the load, of takes on each, and of buckets.
const CALLERS: usize = 6;
const TAKES: usize = 40;
const BUCKETS: usize = 10;
/// Number of places to cut the journal.
const CUTS: usize = 6;

/// A take: its bucket, and when its command was read and its reply sent, in lines of the record.
#[derive(Debug)]
struct Taken {
    bucket: usize,
    read: usize,
    replied: usize,
}

/// Data and record of a killed server.
struct Recorded {
    data: TempDir,
    calls: Vec<Call>,
}

#[test]
fn durable_reply_follows_its_debits_sync() {
    let Some(recorded) = record("always", "durable_reply_follows_its_debits_sync") else {
        return;
    };
    let taken = recorded.taken();
    assert!(taken.len() > CALLERS * TAKES / 2, "{taken:?}");
    let syncs = recorded.syncs();
    for take in &taken {
        let waits = take.waits_for(&syncs);
        assert!(waits, "{take:?} without a sync of the journal in between");
    }
}

#[test]
fn interval_replies_wait_for_no_sync() {
    // The reverse, which shows that the test of `always` can fail.
    let Some(recorded) = record("interval:1s", "interval_replies_wait_for_no_sync") else {
        return;
    };
    let taken = recorded.taken();
    let syncs = recorded.syncs();
    let waiting = taken.iter().filter(|take| take.waits_for(&syncs));
    assert!(waiting.count() < taken.len() / 2);
}

#[test]
fn cut_journal_holds_every_acknowledged_debit() {
    let name = "cut_journal_holds_every_acknowledged_debit";
    let Some(recorded) = record("always", name) else {
        return;
    };
    let journal = recorded.journal();
    let syncs = recorded.syncs();
    let replies = recorded.taken();
    let first = syncs
        .iter()
        .position(|sync| recorded.synced_bytes(sync) > 0)
        .unwrap();
    let step = ((syncs.len() - first) / CUTS).max(1);
    for at in (first..syncs.len()).rev().step_by(step) {
        // This sync or an earlier one covered all replies before the next sync returned.
        let next = syncs.get(at + 1).map_or(usize::MAX, |sync| sync.returned);
        let mut granted = BTreeMap::<usize, u64>::new();
        replies
            .iter()
            .filter(|take| take.replied < next)
            .for_each(|take| *granted.entry(take.bucket).or_default() += 1);
        let bytes = recorded.synced_bytes(syncs[at]);
        let following = syncs
            .get(at + 1)
            .map_or(bytes, |sync| recorded.synced_bytes(sync));
        // At the synced byte; as a file with a size allocated before; and in the middle of the next
        // batch.
        for (length, is_filled) in [
            (bytes, false),
            (bytes, true),
            (bytes.midpoint(following), true),
        ] {
            let copy = recorded.copy();
            // The note of the last synced commit is not synced itself: after a power cut it may be
            // older than the journal.
            if at + 1 < syncs.len() {
                fs::remove_file(copy.path().join("data/synced")).unwrap();
            }
            cut(&copy.path().join("data").join(&journal), length, is_filled);
            let server = Process::start(&arguments(
                &copy.path().join("data"),
                &["--durability", "always"],
            ));
            let found = taken(&server, BUCKETS);
            for (bucket, granted) in &granted {
                let found = found.get(bucket).copied().unwrap_or(0);
                assert!(
                    found >= *granted,
                    "sync {at}, cut at {length}, bucket {bucket}: {found} of {granted} taken"
                );
            }
        }
    }
}

/// Records a server under load until it is killed; `None` without strace.
fn record(durability: &str, test: &str) -> Option<Recorded> {
    if !is_installed("strace", test) {
        return None;
    }
    let _turn = turn(IDLE);
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join("record");
    let traced = "trace=fdatasync,fsync,write,writev,pwrite64,sendto,sendmsg,read,recvfrom";
    let out = path.display().to_string();
    let server = start_traced(
        &["-y", "-s", "128", "-o", &out, "-e", traced],
        &arguments(&data.path().join("data"), &["--durability", durability]),
    );
    let address = server.address("listen");
    thread::scope(|scope| {
        for caller in 0..CALLERS {
            scope.spawn(move || {
                let mut connection = connect(address);
                for nth in 0..TAKES {
                    // The disk may be slower than the deadline: that is not a grant.
                    drop(take(&mut connection, (caller + nth) % BUCKETS));
                }
            });
        }
    });
    kill_traced(server);
    let calls = calls(&fs::read_to_string(path).unwrap());
    Some(Recorded { data, calls })
}

impl Taken {
    /// Returns true if the reply follows a sync that follows the command.
    fn waits_for(&self, syncs: &[&Call]) -> bool {
        let mut syncs = syncs.iter();
        syncs.any(|sync| self.read < sync.began && sync.returned < self.replied)
    }
}

impl Recorded {
    /// Returns the syncs of the journal.
    fn syncs(&self) -> Vec<&Call> {
        let syncs = self.calls.iter().filter(|call| call.is_sync());
        syncs.filter(|call| call.journal().is_some()).collect()
    }

    /// Returns the grants in the record. Each connection has at most one at a time.
    fn taken(&self) -> Vec<Taken> {
        let mut read = BTreeMap::<&str, (usize, usize)>::new();
        let mut taken = Vec::new();
        for call in self
            .calls
            .iter()
            .filter(|call| call.is_of_socket() && call.result > 0)
        {
            if call.is_write() {
                if let Some((bucket, read)) = read.remove(call.file.as_str())
                    && call.arguments.contains("\":")
                {
                    taken.push(Taken {
                        bucket,
                        read,
                        replied: call.began,
                    });
                }
            } else if let Some((_, key)) = call.arguments.split_once("{tenant-") {
                let bucket = key.split_once('}').unwrap().0.parse().unwrap();
                read.insert(&call.file, (bucket, call.returned));
            }
        }
        taken
    }

    /// Path of the only journal, below the data directory. It is created in a directory that is
    /// renamed.
    fn journal(&self) -> PathBuf {
        let journals: BTreeSet<_> = self
            .calls
            .iter()
            .filter_map(|call| call.journal()?.file_name().map(ToOwned::to_owned))
            .collect();
        assert_eq!(journals.len(), 1, "{journals:?}");
        Path::new("store").join(journals.first().unwrap())
    }

    /// Returns the bytes of the journal that are on disk when a sync returns: the bytes written
    /// before it began.
    fn synced_bytes(&self, sync: &Call) -> u64 {
        let before = self.calls.iter().filter(|call| call.returned < sync.began);
        let written = before.filter(|call| call.is_write() && call.journal().is_some());
        written.map(|call| call.result.unsigned_abs()).sum()
    }

    fn copy(&self) -> TempDir {
        let copy = tempfile::tempdir().unwrap();
        copy_all(&self.data.path().join("data"), &copy.path().join("data"));
        copy
    }
}

/// Cuts a file, and fills it with zeros up to its old size.
fn cut(path: &Path, length: u64, is_filled: bool) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    let whole = file.metadata().unwrap().len();
    assert!(length <= whole, "{length} of {whole} bytes");
    file.set_len(length).unwrap();
    if is_filled {
        file.set_len(whole).unwrap();
    }
}

pub(super) fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_all(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}
