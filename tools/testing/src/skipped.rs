//! Reports of tests that could not run, to `./test`.

use std::fs::File;
use std::io::Write;

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
