//! Real servers of etcd: one, or a cluster of three, each with a folder of its own in memory.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use crate::process::{PATIENCE, Process};

pub struct EtcdServer {
    pub address: SocketAddr,
    arguments: Vec<String>,
    /// `None` while it is stopped.
    process: Option<Process>,
    folder: TempDir,
}

/// Starts a server with these further arguments. Returns `None`, and notes the skipped test, if etcd
/// is not installed.
pub fn start(test: &str, arguments: &[&str]) -> Option<EtcdServer> {
    let [peer] = free_addresses();
    let mut server = EtcdServer::new("only", peer, &format!("only=http://{peer}"), arguments);
    is_installed(test).then(|| {
        server.start();
        server
    })
}

/// Starts a cluster of three, as [`start`].
pub fn start_cluster(test: &str) -> Option<[EtcdServer; 3]> {
    let peers: [SocketAddr; 3] = free_addresses();
    let names = ["a", "b", "c"];
    let cluster: Vec<String> = names
        .iter()
        .zip(peers)
        .map(|(name, peer)| format!("{name}=http://{peer}"))
        .collect();
    let cluster = cluster.join(",");
    let mut servers = [0, 1, 2].map(|i| EtcdServer::new(names[i], peers[i], &cluster, &[]));
    is_installed(test).then(|| {
        servers.iter_mut().for_each(EtcdServer::start);
        servers
    })
}

fn is_installed(test: &str) -> bool {
    let found = Command::new("etcd").arg("--version").output();
    if found.is_err() {
        crate::skipped(&format!("etcd::{test}: etcd is not installed"));
    }
    found.is_ok()
}

/// Returns free ports, each once. The system gives none of these to outgoing connections, so a port
/// stays free until its server has started, and while it is stopped.
pub fn free_addresses<const N: usize>() -> [SocketAddr; N] {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    [(); N].map(|()| {
        loop {
            // Test binaries that run at the same time begin far from each other.
            let taken = TAKEN.fetch_add(1, Ordering::Relaxed);
            let port = 10_000 + (std::process::id() * 37 + taken) % 20_000;
            let address = SocketAddr::from(([127, 0, 0, 1], port as u16));
            if TcpListener::bind(address).is_ok() {
                return address;
            }
        }
    })
}

impl EtcdServer {
    fn new(name: &str, peer: SocketAddr, cluster: &str, further: &[&str]) -> Self {
        let in_memory = Path::new("/dev/shm");
        let folder = if in_memory.is_dir() {
            tempfile::tempdir_in(in_memory).unwrap()
        } else {
            tempfile::tempdir().unwrap()
        };
        let [address] = free_addresses();
        let is_encrypted = further.contains(&"--cert-file");
        let scheme = if is_encrypted { "https" } else { "http" };
        let client = format!("{scheme}://{address}");
        let peer = format!("http://{peer}");
        let data = folder.path().join("data").display().to_string();
        let arguments = [
            ("--name", name),
            ("--data-dir", &data),
            ("--listen-client-urls", &client),
            ("--advertise-client-urls", &client),
            ("--listen-peer-urls", &peer),
            ("--initial-advertise-peer-urls", &peer),
            ("--initial-cluster", cluster),
            ("--heartbeat-interval", "50"),
            ("--election-timeout", "500"),
            ("--logger", "zap"),
        ];
        let arguments = arguments.iter().flat_map(|(flag, value)| [*flag, *value]);
        Self {
            address,
            arguments: arguments
                .chain(further.iter().copied())
                .map(Into::into)
                .collect(),
            process: None,
            folder,
        }
    }

    pub fn start(&mut self) {
        let mut command = Command::new("etcd");
        command
            .args(&self.arguments)
            .current_dir(self.folder.path());
        self.process = Some(Process::spawn_command(command));
    }

    pub fn stop(&mut self) {
        self.process = None;
    }

    pub fn process(&self) -> &Process {
        self.process.as_ref().unwrap()
    }

    /// Sends a request to the JSON gateway, for what the client has no method for.
    pub fn post(&self, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let len = body.len();
        let head = format!("POST {path} HTTP/1.0\r\ncontent-length: {len}\r\n\r\n");
        stream.write_all((head + body).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(" 200 OK"), "{path}: {answer}");
        answer
    }
}
