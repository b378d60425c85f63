//! System calls of a server as `strace` records them, in their order.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_testing::process::{Process, command};
use rustix::process::{Pid, Signal, kill_process};

/// A system call that has returned.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) name: String,
    /// File of its first argument: `/path` or `socket:[1]`.
    pub(super) file: String,
    /// As far as they are recorded.
    pub(super) arguments: String,
    /// Lines of its start and return: if one call returned before the other began, its line is
    /// smaller.
    pub(super) began: usize,
    pub(super) returned: usize,
    pub(super) result: i64,
}

/// Starts a quota server with system calls that `strace` records, or changes, with these flags.
pub(super) fn start_traced(flags: &[&str], arguments: &[String]) -> Process {
    let server = command("plimsoll", arguments);
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-qq", "-e", "signal=none"])
        .args(flags)
        .arg(server.get_program())
        .args(server.get_args());
    for (name, value) in server.get_envs() {
        match value {
            Some(value) => strace.env(name, value),
            None => strace.env_remove(name),
        };
    }
    strace.env("PLIMSOLL_LOG_FORMAT", "json");
    Process::spawn_command(strace).listening()
}

/// Kills a traced server, and waits until `strace` has written its record.
pub(super) fn kill_traced(mut strace: Process) {
    for server in strace.children() {
        kill_process(server, Signal::KILL).unwrap();
    }
    strace.ended();
}

pub(super) fn traced(strace: &mut Process) -> Pid {
    strace.children().into_iter().next().unwrap()
}

/// Reads a record of `strace -f -y -o`.
pub(super) fn calls(record: &str) -> Vec<Call> {
    let mut unfinished = HashMap::<&str, (usize, &str)>::new();
    let mut calls = Vec::new();
    for (at, line) in record.lines().enumerate() {
        let Some((thread, line)) = line.split_once(' ') else {
            continue;
        };
        let line = line.trim_start();
        if let Some(begin) = line.strip_suffix(" <unfinished ...>") {
            unfinished.insert(thread, (at, begin));
        } else if let Some(rest) = line.strip_prefix("<... ") {
            if let (Some((began, begin)), Some((_, end))) =
                (unfinished.remove(thread), rest.split_once(" resumed>"))
            {
                calls.extend(call(&format!("{begin}{end}"), began, at));
            }
        } else {
            calls.extend(call(line, at, at));
        }
    }
    calls
}

/// Parses `name(7</file>, arguments) = result`.
fn call(line: &str, began: usize, returned: usize) -> Option<Call> {
    let (name, rest) = line.split_once('(')?;
    let (arguments, result) = rest.rsplit_once(" = ")?;
    let result = result.split_whitespace().next()?.parse().ok()?;
    let file = arguments
        .split_once('<')
        .and_then(|(_, file)| file.split_once('>'));
    let file = file.map_or("", |(file, _)| file).to_owned();
    Some(Call {
        name: name.to_owned(),
        file,
        arguments: arguments.to_owned(),
        began,
        returned,
        result,
    })
}

impl Call {
    pub(super) fn is_sync(&self) -> bool {
        ["fdatasync", "fsync"].contains(&self.name.as_str()) && self.result == 0
    }

    pub(super) fn is_write(&self) -> bool {
        ["write", "writev", "sendto", "sendmsg", "pwrite64"].contains(&self.name.as_str())
            && self.result > 0
    }

    /// Returns the journal that it concerns.
    pub(super) fn journal(&self) -> Option<PathBuf> {
        let path = Path::new(&self.file);
        path.extension()
            .is_some_and(|end| end == "jnl")
            .then(|| path.to_owned())
    }

    pub(super) fn is_of_socket(&self) -> bool {
        self.file.starts_with("socket:") || self.file.starts_with("TCP:")
    }
}

#[test]
fn record_gives_calls_with_their_order() {
    let record = "11 recvfrom(12<socket:[7]>, \"*1\", 8, 0, NULL, NULL) = 2\n\
        12 fdatasync(9</data/0.jnl> <unfinished ...>\n\
        11 write(9</data/0.jnl>, \"x\", 1) = 1\n\
        12 <... fdatasync resumed>) = 0\n\
        11 recvfrom(12<socket:[7]>, 0x7f, 8, 0, NULL, NULL) = -1 EAGAIN (Resource temporarily unavailable)\n";
    let calls = calls(record);
    let seen: Vec<_> = calls
        .iter()
        .map(|call| (call.name.as_str(), call.began, call.returned, call.result))
        .collect();
    assert_eq!(
        seen,
        [
            ("recvfrom", 0, 0, 2),
            ("write", 2, 2, 1),
            ("fdatasync", 1, 3, 0),
            ("recvfrom", 4, 4, -1)
        ]
    );
    assert!(calls[0].is_of_socket() && calls[2].is_sync() && calls[1].is_write());
    assert_eq!(calls[2].journal(), Some(PathBuf::from("/data/0.jnl")));
}
