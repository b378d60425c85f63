//! A quota server as a process, with a separate data folder.

use std::net::SocketAddr;

use plimsoll_testing::process::Process;
use redis::{Client, Connection, IntoConnectionInfo};
use tempfile::TempDir;

pub(super) struct Server {
    pub(super) process: Process,
    _data: TempDir,
}

impl Server {
    /// Keeps balances in memory until it stops.
    pub(super) fn start() -> Self {
        Self::start_with(&["--listen", "127.0.0.1:0", "--durability", "none"])
    }

    /// Adds these flags to the flags of its data and its admin port.
    pub(super) fn start_with(flags: &[&str]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("data").display().to_string();
        let process = Process::start(
            &[&["quota", "--admin", "127.0.0.1:0", "--data", &path], flags].concat(),
        );
        Self {
            process,
            _data: data,
        }
    }

    /// Address of the Redis protocol.
    pub(super) fn address(&self) -> SocketAddr {
        self.process.address("listen")
    }

    /// Connects by the client library, with these parameters of its address.
    pub(super) fn connect(&self, parameters: &str) -> Connection {
        let url = format!("redis://{}/{parameters}", self.address());
        Client::open(url.into_connection_info().unwrap())
            .unwrap()
            .get_connection()
            .unwrap()
    }
}
