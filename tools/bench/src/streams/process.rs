//! The limits and usage of a process as the system reports them: open files, processor time and
//! memory.

use std::fs;
use std::time::Duration;

/// Equal on every current Linux.
const TICKS_PER_SECOND: u64 = 100;
/// Row of `/proc/PID/limits` with the limit of open files.
const MAX_FILES: &str = "Max open files";

/// The limit of open files is too low for the streams.
#[derive(Debug, thiserror::Error)]
#[error(
    "{process} may open {allowed} files, and its streams need {needed}: start it after `ulimit -n {needed}`, or open \
     fewer streams"
)]
pub(crate) struct TooFewFiles {
    process: String,
    allowed: u64,
    needed: u64,
}

/// Checks that a process, or this one, may open `needed` files. A limit that the system does not
/// report passes.
pub(crate) fn check_files(pid: Option<u32>, needed: u64) -> Result<(), TooFewFiles> {
    let folder = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let limits = fs::read_to_string(format!("/proc/{folder}/limits")).unwrap_or_default();
    match field(&limits, MAX_FILES) {
        Some(allowed) if allowed < needed => {
            let process =
                pid.map_or_else(|| "this process".to_owned(), |pid| format!("process {pid}"));
            Err(TooFewFiles {
                process,
                allowed,
                needed,
            })
        }
        _ => Ok(()),
    }
}

pub(crate) fn processor_time(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    processor_ticks(&stat).map(|ticks| Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND))
}

pub(crate) fn resident_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    field(&status, "VmRSS:").map(|kib| kib * 1_024)
}

/// Number of voluntary context switches of the current thread, which is how often it waited.
pub(crate) fn waits_of_this_thread() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    field(&status, "voluntary_ctxt_switches:").unwrap_or_default()
}

fn processor_ticks(stat: &str) -> Option<u64> {
    // The name of the program is in brackets and may contain anything; user and system time are the
    // 12th and 13th field after it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// First number after a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_parsed() {
        let limits = "Limit          Soft Limit  Hard Limit  Units\nMax open files 1024        524288      files\n";
        assert_eq!(field(limits, MAX_FILES), Some(1_024));
        assert_eq!(
            field("Max open files unlimited unlimited files", MAX_FILES),
            None
        );
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 1000 1 1";
        assert_eq!(processor_ticks(stat), Some(300));
        assert_eq!(
            field("VmPeak:  9 kB\nVmRSS:\t  1234 kB\n", "VmRSS:"),
            Some(1_234)
        );
        check_files(None, 1).unwrap();
        let error = check_files(None, u64::MAX).unwrap_err();
        assert!(error.to_string().contains("ulimit -n"), "{error}");
    }
}
