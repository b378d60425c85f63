//! A quota server as a process, with its data in a folder of its own.

use std::net::SocketAddr;

use redis::{Client, Connection, IntoConnectionInfo};
use tempfile::TempDir;

use crate::process::Process;

/// A running quota server.
pub(super) struct Server {
    pub(super) process: Process,
    _data: TempDir,
}

impl Server {
    /// Starts one that keeps balances in memory until it stops.
    pub(super) fn start() -> Self {
        Self::start_with(&["--listen", "127.0.0.1:0", "--durability", "none"])
    }

    /// Starts one with these flags besides those of its data and its admin port.
    pub(super) fn start_with(flags: &[&str]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("data").display().to_string();
        let process =
            Process::start(&[&["quota", "--admin", "127.0.0.1:0", "--data", &path], flags].concat());
        Self { process, _data: data }
    }

    /// The address of the Redis protocol.
    pub(super) fn address(&self) -> SocketAddr {
        self.process.address("listen")
    }

    /// Connects by the client library, with these parameters of its address.
    pub(super) fn connect(&self, parameters: &str) -> Connection {
        let url = format!("redis://{}/{parameters}", self.address());
        Client::open(url.into_connection_info().unwrap()).unwrap().get_connection().unwrap()
    }
}
