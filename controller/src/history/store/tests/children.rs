//! The history in a process that is killed, or whose disk is taken away: this very test binary, started once more.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::*;

/// Names the state directory to the child, and tells it that it is one.
const STATE: &str = "CHILD_STATE";

/// A process that writes a minute for each line it is sent, and says how that went.
struct Writer {
    child: Child,
    ask: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Writer {
    fn start(state: &Path) -> Self {
        // A file that grows beyond what is allowed is an error to who ignores the signal.
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
        let ask = child.stdin.take().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, ask, said }
    }

    /// Has it write a minute.
    fn write(&mut self, number: i64) -> String {
        writeln!(self.ask, "{number}").unwrap();
        let said = self.said.by_ref().map(Result::unwrap);
        let mut said = said.filter_map(|line| Some(line.split_once("said: ")?.1.to_owned()));
        said.next().unwrap()
    }
}

/// What the child does; in any other run, nothing.
#[test]
fn child() {
    let Some(state) = std::env::var_os(STATE) else { return };
    let mut store = None;
    for line in std::io::stdin().lines() {
        let number = line.unwrap().parse().unwrap();
        let open = || HistoryStore::open(Path::new(&state)).map_err(|error| error.to_string());
        let said = match store.take().map_or_else(|| open().map(|(store, _)| store), Ok) {
            Ok(mut opened) => match opened.write(&minute(number, 1.0)) {
                Ok(()) => {
                    store = Some(opened);
                    "written".to_owned()
                }
                Err(error) => format!("failed: {error}"),
            },
            Err(error) => format!("closed: {error}"),
        };
        println!("\nsaid: {}", said.replace('\n', " "));
    }
}

#[test]
fn a_process_that_is_killed_has_kept_every_minute_it_wrote() {
    let state = tempfile::tempdir().unwrap();
    let mut number = 0;
    for _ in 0..3 {
        let mut writer = Writer::start(state.path());
        for _ in 0..5 {
            assert_eq!(writer.write(number), "written");
            number += 1;
        }
        // It is in the middle of another one.
        writeln!(writer.ask, "{number}").unwrap();
        number += 1;
        writer.child.kill().unwrap();
        writer.child.wait().unwrap();
    }
    let (_store, kept) = HistoryStore::open(state.path()).unwrap();
    assert_eq!(kept.loss, None);
    let there: Vec<i64> = kept.minutes.iter().map(|minute| minute.minute.0).collect();
    let cut_short = [5, 11, 17];
    let missing: Vec<i64> = (0..number).filter(|number| !there.contains(number)).collect();
    assert!(missing.iter().all(|number| cut_short.contains(number)), "{missing:?} are lost");
}

#[test]
fn a_disk_that_is_full_for_a_while_costs_those_minutes_and_nothing_else() {
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
        let said = writer.write(number);
        assert!(said.starts_with("failed: ") || said.starts_with("closed: "), "{said}");
    }
    assert!(limit(&writer, "unlimited"));
    for number in 8..10 {
        assert_eq!(writer.write(number), "written");
    }
    drop(writer);
    let (_store, kept) = HistoryStore::open(state.path()).unwrap();
    assert_eq!(kept.loss, None);
    assert_eq!(folder(state.path()), ["history"], "nothing was put aside");
    let there: Vec<i64> = kept.minutes.iter().map(|minute| minute.minute.0).collect();
    assert!([0, 1, 2, 3, 4, 8, 9].iter().all(|number| there.contains(number)), "{there:?}");
}
