//! Steps and drift of the wall clock of a running quota server, which `libfaketime` makes: refills
//! take as long as ever, nothing is granted twice, and operators see the steps.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use plimsoll_testing::fleet::metric;
use plimsoll_testing::is_installed;
use plimsoll_testing::process::{FREE, Process, command, message, until_true};
use plimsoll_testing::turns::{IDLE, turn};
use tempfile::TempDir;

use super::super::admin::send;

/// A wall clock that gains 1 %, far more than a synchronised clock.
const DRIFT: &str = "+0 x1.01";
/// Steps as offsets of the wall clock from the true time.
const OFFSETS: [&str; 6] = ["+3600", "-3600", "+34560000", "+0", "-34560000", "+0"];
/// Time for counting refills after each step.
const SPAN: Duration = Duration::from_secs(1);
/// A bucket of one token every millisecond, and one of a token every day.
const FAST: [&str; 4] = ["1000000", "1", "REFILL", "1"];
const SLOW: [&str; 4] = ["100", "86400000", "REFILL", "1"];

/// A quota server with a wall clock that a file sets.
struct Stepped {
    server: Process,
    library: PathBuf,
    place: TempDir,
}

/// A bucket, and the earliest and latest moment of the take that emptied it.
struct Emptied {
    key: String,
    between: (Instant, Instant),
}

impl Stepped {
    /// `None` without the library.
    fn start() -> Option<Self> {
        let library = library()?;
        let place = tempfile::tempdir().unwrap();
        set(place.path(), "+0");
        Some(Self {
            server: serve(place.path(), &library),
            library,
            place,
        })
    }

    fn set(&self, offset: &str) {
        set(self.place.path(), offset);
    }

    /// Kills the server without a chance to save anything, and starts it again.
    fn restart(&mut self) {
        self.server.kill_9();
        self.server = serve(self.place.path(), &self.library);
    }

    fn tokens(&self, command: &str, key: &str, rest: &[&str]) -> u64 {
        let words = [&[command, key], rest].concat();
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let reply = send(self.server.address("listen"), &words);
        reply
            .strip_prefix(':')
            .unwrap_or_else(|| panic!("{words:?}: {reply}"))
            .parse()
            .unwrap()
    }

    fn empty(&self, key: &str) -> Emptied {
        let began = Instant::now();
        assert_eq!(
            self.tokens("RL.PREDUCE", key, &[&FAST[..], &["TAKE", FAST[0]]].concat()),
            1_000_000
        );
        Emptied {
            key: key.to_owned(),
            between: (began, Instant::now()),
        }
    }

    /// Checks that the tokens since a bucket was emptied match the true time, within 1 %.
    fn check(&self, emptied: &Emptied, offset: &str) {
        let least = emptied.between.1.elapsed().as_millis() as f64;
        let tokens = self.tokens("RL.PGET", &emptied.key, &FAST) as f64;
        let most = emptied.between.0.elapsed().as_millis() as f64;
        let key = &emptied.key;
        assert!(
            0.99 * least <= tokens + 1.0 && tokens <= 1.01 * most + 1.0,
            "at an offset of {offset} `{key}` has {tokens} tokens after {least} to {most} ms"
        );
    }
}

fn library() -> Option<PathBuf> {
    let found = Command::new("find")
        .args(["/usr/lib", "-name", "libfaketimeMT.so.1"])
        .output()
        .ok()?;
    String::from_utf8(found.stdout)
        .ok()?
        .lines()
        .next()
        .map(PathBuf::from)
}

fn set(place: &Path, offset: &str) {
    fs::write(place.join("new"), offset).unwrap();
    fs::rename(place.join("new"), place.join("offset")).unwrap();
}

fn serve(place: &Path, library: &Path) -> Process {
    let data = place.join("data").display().to_string();
    let flags = ["quota", "--data", &data, "--durability", "always"];
    let mut server = command("plimsoll", &[&flags[..], &FREE].concat());
    server
        .env("PLIMSOLL_LOG_FORMAT", "json")
        .env("LD_PRELOAD", library)
        .env("FAKETIME_TIMESTAMP_FILE", place.join("offset"))
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    Process::spawn_command(server).listening()
}

#[test]
fn wall_clock_leaves_refills_alone() {
    let _turn = turn(IDLE);
    let test = "quota::clock::wall_clock_leaves_refills_alone";
    if !is_installed("faketime", test) {
        return;
    }
    let mut stepped = Stepped::start().expect("the library beside the program");
    let kept = stepped.empty("kept");
    let slow = [&SLOW[..], &["TAKE", SLOW[0]]].concat();
    assert_eq!(stepped.tokens("RL.PREDUCE", "slow", &slow), 100);
    for (number, offset) in OFFSETS.into_iter().enumerate() {
        stepped.set(offset);
        let new = stepped.empty(&format!("new{number}"));
        until_true("refills after a step", || new.between.0.elapsed() >= SPAN);
        stepped.check(&new, offset);
        stepped.check(&kept, offset);
        assert_eq!(stepped.tokens("RL.PGET", "slow", &SLOW), 0, "at {offset} s");
    }
    stepped.set(DRIFT);
    let drifted = stepped.empty("drifted");
    until_true("refills while the clock drifts", || {
        drifted.between.0.elapsed() >= SPAN
    });
    stepped.check(&drifted, DRIFT);
    stepped.check(&kept, DRIFT);
    let steps = OFFSETS.len() as f64;
    until_true("each step to be counted", || {
        let page = stepped.server.metrics("admin");
        metric(&page, "plimsoll_quota_clock_steps_total", "") == steps
    });
    let logged = stepped.server.log();
    let logged = logged
        .iter()
        .filter_map(|line| serde_json::from_str(line).ok());
    let logged =
        logged.filter(|line| message(line).is_some_and(|text| text.contains("wall clock")));
    assert_eq!(logged.count(), OFFSETS.len());

    for offset in ["+34560000", "-34560000"] {
        stepped.set(offset);
        stepped.restart();
        stepped.check(&kept, offset);
        assert_eq!(
            stepped.tokens("RL.PGET", "slow", &SLOW),
            0,
            "after a restart at {offset} s"
        );
    }
}
