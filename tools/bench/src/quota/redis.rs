//! Redis with the same token bucket as a script.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};

use plimsoll_testing::process::{Process, until};
use tempfile::TempDir;

use super::commands::{Ask, push};
use crate::sidecar::cores::on;

/// Refilled on its phase, by the clock of the server, like `RL.REDUCE`.
const SCRIPT: &str = include_str!("bucket.lua");

pub(super) struct Redis {
    pub(super) process: Process,
    pub(super) address: SocketAddr,
    pub(super) ask: Ask,
    _directory: TempDir,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Persistence {
    Nothing,
    /// An append-only file, synced every second.
    Everysec,
    /// An append-only file, synced before replies.
    Always,
}

impl Redis {
    pub(super) fn start(persistence: Persistence, core: Option<usize>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let mut command = Command::new("redis-server");
        command
            .args([
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--port",
                &port.to_string(),
                "--dir",
            ])
            .arg(directory.path());
        match persistence {
            Persistence::Nothing => command.args(["--appendonly", "no"]),
            Persistence::Everysec => {
                command.args(["--appendonly", "yes", "--appendfsync", "everysec"])
            }
            Persistence::Always => command.args(["--appendonly", "yes", "--appendfsync", "always"]),
        };
        let process = on(core, || Process::spawn_command(command));
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let digest = until("Redis to load the script", || load(address));
        Self {
            process,
            address,
            ask: Ask::Script(digest),
            _directory: directory,
        }
    }
}

/// Loads the script; `None` while Redis does not answer.
fn load(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    let mut command = Vec::new();
    push(&mut command, &["SCRIPT", "LOAD", SCRIPT]);
    stream.write_all(&command).ok()?;
    let mut lines = BufReader::new(stream).lines();
    let _length = lines.next()?.ok().filter(|line| line.starts_with('$'))?;
    lines.next()?.ok()
}

pub(super) fn is_installed() -> bool {
    let version = Command::new("redis-server")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    version.is_ok_and(|status| status.success())
}
