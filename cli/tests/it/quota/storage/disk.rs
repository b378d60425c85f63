//! Disks that fail, hang or are full: operations are refused within their deadline, the process
//! survives and reports that it is not ready, it serves again when the disk does, and no token was
//! granted that a restart grants again.

use std::process::{Command, Stdio};
use std::thread;

use plimsoll_testing::is_installed;
use plimsoll_testing::process::{Process, binary, http, until_true};
use plimsoll_testing::quota_crashes::{arguments, connect, take, taken};
use plimsoll_testing::turns::{IDLE, turn};
use redis::ErrorKind;
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use tempfile::TempDir;

use super::trace::{kill_traced, start_traced, traced};

/// Far longer than a caller's deadline, and shorter than the patience of a test: an operation that
/// waited for the sync would be granted, not refused.
const HANG: &str = "inject=fdatasync:delay_enter=5s:when=20";
/// Simultaneous connections.
const CALLERS: usize = 8;

/// A server with a disk that can fail, and the demands on its one bucket.
struct Scene {
    strace: Process,
    data: TempDir,
    granted: u64,
    asked: u64,
}

#[test]
fn failed_syncs_refuse_until_disk_works() {
    let name = "failed_syncs_refuse_until_disk_works";
    // Only in the thread that saves balances: it syncs the journal by fdatasync.
    let inject = "inject=fdatasync:error=EIO:when=20..30";
    let Some(mut scene) = Scene::start("always", inject, name) else {
        return;
    };
    scene.until_refused();
    scene.until_granted();
    scene.restart_and_audit();
}

#[test]
fn hanging_sync_delays_no_operation() {
    let name = "hanging_sync_delays_no_operation";
    let Some(mut scene) = Scene::start("always", HANG, name) else {
        return;
    };
    scene.until_refused();
    scene.until_granted();
    scene.restart_and_audit();
}

#[test]
fn hang_refuses_before_losing_an_interval() {
    let name = "hang_refuses_before_losing_an_interval";
    let Some(mut scene) = Scene::start("interval:50ms", HANG, name) else {
        return;
    };
    scene.until_refused();
    scene.until_granted();
}

#[test]
fn full_disk_refuses_operations_until_freed() {
    let name = "full_disk_refuses_operations_until_freed";
    let Some(mut scene) = Scene::start("always", "trace=none", name) else {
        return;
    };
    scene.until_granted();
    scene.limit_files(Some(0));
    scene.until_refused();
    assert!(scene.shown("plimsoll_quota_store_errors_total") >= 1.0);
    scene.limit_files(None);
    scene.until_granted();
    assert_eq!(scene.shown("plimsoll_quota_ready"), 1.0);
    scene.restart_and_audit();
}

#[test]
fn full_disk_at_start_means_no_damage() {
    let data = tempfile::tempdir().unwrap();
    let arguments = arguments(&data.path().join("data"), &["--durability", "always"]);
    let mut server = Process::start(&arguments);
    for _ in 0..3 {
        take(&mut connect(server.address("listen")), 0).unwrap();
    }
    server.kill_9();
    // Changes in the log are moved at a start, which writes.
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\""])
        .arg(binary("plimsoll"))
        .args(&arguments);
    let refused = limited.stdin(Stdio::null()).output().unwrap();
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && message.contains("File too large"),
        "{message}"
    );
    assert!(
        message.contains("--data") && !message.contains("backup"),
        "{message}"
    );
    let server = Process::start(&arguments);
    assert_eq!(taken(&server, 1)[&0], 3);
}

impl Scene {
    /// Starts a server with system calls that strace changes; `None` without strace.
    fn start(durability: &str, inject: &str, test: &str) -> Option<Self> {
        if !is_installed("strace", test) {
            return None;
        }
        let _turn = turn(IDLE);
        let data = tempfile::tempdir().unwrap();
        let arguments = arguments(&data.path().join("data"), &["--durability", durability]);
        let trace = if inject.starts_with("inject") {
            "trace=fdatasync,fsync"
        } else {
            inject
        };
        let strace = start_traced(&["-o", "/dev/null", "-e", trace, "-e", inject], &arguments);
        Some(Self {
            strace,
            data,
            granted: 0,
            asked: 0,
        })
    }

    /// Takes over all connections; returns the grants and the refusals.
    fn ask(&mut self) -> (u64, u64) {
        let address = self.strace.address("listen");
        let asking = || take(&mut connect(address), 0);
        let results = thread::scope(|scope| {
            let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(asking)).collect();
            callers
                .into_iter()
                .map(|caller| caller.join().unwrap())
                .collect::<Vec<_>>()
        });
        let mut refused = 0;
        for result in results {
            self.asked += 1;
            match result {
                Ok(_) => self.granted += 1,
                Err(error) => {
                    assert!(
                        matches!(error.kind(), ErrorKind::Extension) && error.code().is_some(),
                        "{error:?}"
                    );
                    assert!(
                        ["UNAVAILABLE", "BUSY"].contains(&error.code().unwrap()),
                        "{error}"
                    );
                    refused += 1;
                }
            }
        }
        (self.granted, refused)
    }

    /// Takes until all are refused, and the server is not ready.
    fn until_refused(&mut self) {
        until_true("operations to be refused", || {
            self.ask().1 == CALLERS as u64
        });
        until_true("the server not to be ready", || {
            let is_away = self.ready() == 503 && self.shown("plimsoll_quota_ready") == 0.0;
            is_away || self.ask().1 == 0
        });
    }

    /// Takes until all are granted, and the server is ready.
    fn until_granted(&mut self) {
        until_true("operations to be granted", || self.ask().1 == 0);
        until_true("the server to be ready", || self.ready() == 200);
    }

    /// Returns the status of the readiness check.
    fn ready(&self) -> u16 {
        http(self.strace.address("admin"), "GET", "/readyz", &[])
            .unwrap()
            .0
    }

    /// Returns a metric of the server.
    fn shown(&self, name: &str) -> f64 {
        self.strace.metric("admin", name, "")
    }

    /// Limits the size of files that the server may write to, as a full disk does.
    fn limit_files(&mut self, limit: Option<u64>) {
        let maximum = getrlimit(Resource::Fsize).maximum;
        prlimit(
            Some(traced(&mut self.strace)),
            Resource::Fsize,
            Rlimit {
                current: limit,
                maximum,
            },
        )
        .unwrap();
    }

    /// Kills the server, and starts one with a disk that works on the same data.
    fn restart_and_audit(self) {
        let Self {
            strace,
            data,
            granted,
            asked,
        } = self;
        kill_traced(strace);
        let server = Process::start(&arguments(
            &data.path().join("data"),
            &["--durability", "always"],
        ));
        let found = taken(&server, 1)[&0];
        assert!(
            granted <= found && found <= asked,
            "{found} taken, {granted} granted of {asked} asked"
        );
    }
}
