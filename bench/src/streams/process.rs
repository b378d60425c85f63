//! What the system says of a process: how many files it may open, its processor time and its memory.

use std::fs;
use std::time::Duration;

/// Ticks of the clock by which the system counts processor time, per second: the same on every Linux of today.
const TICKS_PER_SECOND: u64 = 100;

/// A process may not open as many files as its streams need.
#[derive(Debug, thiserror::Error)]
#[error(
    "{whose} may open {allowed} files, and {needed} are needed for the streams: start it after `ulimit -n {needed}`, \
     or ask for fewer streams"
)]
pub(crate) struct TooFewFiles {
    whose: String,
    allowed: u64,
    needed: u64,
}

/// Checks that a process may open so many files; `None` is this one. What the system does not tell is no fault.
pub(crate) fn check_files(pid: Option<u32>, needed: u64) -> Result<(), TooFewFiles> {
    let limits = fs::read_to_string(format!("/proc/{}/limits", whose(pid))).unwrap_or_default();
    match files_allowed(&limits) {
        Some(allowed) if allowed < needed => {
            let whose = pid.map_or_else(|| "this process".to_owned(), |pid| format!("process {pid}"));
            Err(TooFewFiles { whose, allowed, needed })
        }
        _ => Ok(()),
    }
}

/// The processor time a process has used since its start.
pub(crate) fn processor_time(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    processor_ticks(&stat).map(|ticks| Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND))
}

/// The memory a process has in use, in bytes.
pub(crate) fn resident_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    field(&status, "VmRSS:").map(|kib| kib * 1_024)
}

/// How often the present thread has given its processor up of its own accord.
pub(crate) fn waits_of_this_thread() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    field(&status, "voluntary_ctxt_switches:").unwrap_or_default()
}

fn whose(pid: Option<u32>) -> String {
    pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string())
}

fn files_allowed(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn processor_ticks(stat: &str) -> Option<u64> {
    // The name of the program stands in brackets and may contain anything; user and system time are the 12th and 13th
    // field after it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_read() {
        let limits =
            "Limit          Soft Limit  Hard Limit  Units\nMax open files 1024        524288      files\n";
        assert_eq!(files_allowed(limits), Some(1_024));
        assert_eq!(files_allowed("Max open files unlimited unlimited files"), None);
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 1000 1 1";
        assert_eq!(processor_ticks(stat), Some(300));
        assert_eq!(field("VmPeak:  9 kB\nVmRSS:\t  1234 kB\n", "VmRSS:"), Some(1_234));
        check_files(None, 1).unwrap();
        let error = check_files(None, u64::MAX).unwrap_err();
        assert!(error.to_string().contains("ulimit -n"), "{error}");
    }
}
