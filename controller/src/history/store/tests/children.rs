//! The history in a process that is killed, or has its disk taken away: this test binary, started as a child.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::*;

/// The variable with the state directory; it makes a run of the test binary a child.
const STATE: &str = "CHILD_STATE";

/// A child that writes a minute for each line it receives, and answers with the result.
struct Writer {
    child: Child,
    to_child: ChildStdin,
    results: Lines<BufReader<ChildStdout>>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Writer {
    fn start(state: &Path) -> Self {
        // With the signal ignored, a file that grows beyond its limit is an error of the write.
        let mut child = Command::new("sh")
            .args([
                "-c",
                "trap '' XFSZ; exec \"$0\" --exact --nocapture history::store::tests::children::child",
            ])
            .arg(std::env::current_exe().unwrap())
            .env(STATE, state)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let to_child = child.stdin.take().unwrap();
        let results = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, to_child, results }
    }

    /// Sends a minute, and returns the result.
    fn write(&mut self, number: i64) -> String {
        writeln!(self.to_child, "{number}").unwrap();
        let lines = self.results.by_ref().map(Result::unwrap);
        let mut results = lines.filter_map(|line| Some(line.split_once("result: ")?.1.to_owned()));
        results.next().unwrap()
    }
}

/// The main loop of the child; does nothing in any other run.
#[test]
fn child() {
    let Some(state) = std::env::var_os(STATE) else { return };
    let mut store = None;
    for line in std::io::stdin().lines() {
        let number = line.unwrap().parse().unwrap();
        let open = || HistoryStore::open(Path::new(&state)).map_err(|error| error.to_string());
        let result = match store.take().map_or_else(|| open().map(|(store, _)| store), Ok) {
            Ok(mut opened) => match opened.write(&minute(number, 1.0)) {
                Ok(()) => {
                    store = Some(opened);
                    "written".to_owned()
                }
                Err(error) => format!("failed: {error}"),
            },
            Err(error) => format!("closed: {error}"),
        };
        println!("\nresult: {}", result.replace('\n', " "));
    }
}

#[test]
fn killed_process_has_saved_every_minute_it_confirmed() {
    let state = tempfile::tempdir().unwrap();
    let mut number = 0;
    for _ in 0..3 {
        let mut writer = Writer::start(state.path());
        for _ in 0..5 {
            assert_eq!(writer.write(number), "written");
            number += 1;
        }
        // The child is killed in the middle of the next one.
        writeln!(writer.to_child, "{number}").unwrap();
        number += 1;
        writer.child.kill().unwrap();
        writer.child.wait().unwrap();
    }
    let (_store, restored) = HistoryStore::open(state.path()).unwrap();
    assert_eq!(restored.loss, None);
    let there: Vec<i64> = restored.minutes.iter().map(|minute| minute.minute.0).collect();
    let cut_short = [5, 11, 17];
    let missing: Vec<i64> = (0..number).filter(|number| !there.contains(number)).collect();
    assert!(missing.iter().all(|number| cut_short.contains(number)), "{missing:?} are lost");
}

#[test]
fn full_disk_costs_its_minutes_and_nothing_else() {
    let state = tempfile::tempdir().unwrap();
    let mut writer = Writer::start(state.path());
    let limit = |writer: &Writer, fsize: &str| {
        let set = Command::new("prlimit")
            .arg(format!("--pid={}", writer.child.id()))
            .arg(format!("--fsize={fsize}:"))
            .status();
        set.is_ok_and(|set| set.success())
    };
    for number in 0..5 {
        assert_eq!(writer.write(number), "written");
    }
    if !limit(&writer, "1") {
        if let Some(skipped) = std::env::var_os("PLIMSOLL_SKIPPED") {
            let mut file = OpenOptions::new().append(true).open(skipped).unwrap();
            writeln!(file, "history::store::a_disk_that_is_full_for_a_while: prlimit is not here").unwrap();
        }
        return;
    }
    for number in 5..8 {
        let result = writer.write(number);
        assert!(result.starts_with("failed: ") || result.starts_with("closed: "), "{result}");
    }
    assert!(limit(&writer, "unlimited"));
    for number in 8..10 {
        assert_eq!(writer.write(number), "written");
    }
    drop(writer);
    let (_store, restored) = HistoryStore::open(state.path()).unwrap();
    assert_eq!(restored.loss, None);
    assert_eq!(folder(state.path()), ["history"], "nothing was put aside");
    let there: Vec<i64> = restored.minutes.iter().map(|minute| minute.minute.0).collect();
    assert!([0, 1, 2, 3, 4, 8, 9].iter().all(|number| there.contains(number)), "{there:?}");
}
