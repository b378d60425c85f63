//! Reports of tests that could not run, to `./test`.

use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};

/// Returns true if a program is installed. Otherwise notes the skipped test.
pub fn is_installed(program: &str, test: &str) -> bool {
    let started = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if started.is_err() {
        skipped(&format!("{test}: {program} is not installed"));
    }
    started.is_ok()
}

/// Reports a skipped test with its reason: `NAME: REASON`.
pub fn skipped(line: &str) {
    if let Some(file) = std::env::var_os("PLIMSOLL_SKIPPED") {
        let mut file = File::options()
            .append(true)
            .create(true)
            .open(file)
            .unwrap();
        // In one piece, because tests write at the same time.
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}
