//! The quota server next to Redis with the same token bucket as a script: rate and latency, the
//! cost of durability, and ten million buckets.

mod commands;
mod crash;
mod durable;
mod load;
mod many;
mod redis;
mod shared;
mod speed;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use crate::measure::report::Report;
use crate::sidecar::cores::on;
use commands::Ask;
use plimsoll_testing::process::Process;
use plimsoll_testing::quota_crashes::arguments;

pub(crate) fn measure(report: &mut Report) {
    if redis::is_installed() {
        speed::measure(report);
        durable::measure(report);
        many::measure(report);
    } else {
        report.skip(
            "the quota server beside Redis",
            "none",
            "redis-server is not installed",
        );
    }
    crash::measure(report);
    shared::measure(report);
}

struct Server {
    process: Process,
    /// Core that it runs on; `None` for any.
    core: Option<usize>,
    directory: tempfile::TempDir,
    flags: Vec<String>,
}

impl Server {
    fn start(flags: &[&str], core: Option<usize>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let flags: Vec<String> = flags.iter().map(ToString::to_string).collect();
        let process = Self::process(&directory, &flags, core);
        Self {
            process,
            core,
            directory,
            flags,
        }
    }

    fn process(directory: &tempfile::TempDir, flags: &[String], core: Option<usize>) -> Process {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let args = arguments(&directory.path().join("data"), &flags);
        on(core, || Process::start(&args))
    }
}

fn ask(address: SocketAddr, ask: &Ask, key: u64) -> u64 {
    let mut command = Vec::new();
    ask.push(key, &mut command);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&command).unwrap();
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply).unwrap();
    reply
        .trim()
        .strip_prefix(':')
        .unwrap_or_else(|| panic!("{reply}"))
        .parse()
        .unwrap()
}
