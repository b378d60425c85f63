//! Real servers of etcd: one, or a cluster of three, each with a folder of its own in memory.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use plimsoll_etcd::{Client, Options, StoreAddress};
use plimsoll_testing::process::{PATIENCE, Process};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    arguments: Vec<String>,
    /// `None` while it is stopped.
    process: Option<Process>,
    folder: TempDir,
}

/// Starts a server with these further arguments. Returns `None`, and notes the skipped test, if etcd
/// is not installed.
pub(crate) fn start(test: &str, arguments: &[&str]) -> Option<Server> {
    let [peer] = free_addresses();
    let mut server = Server::new("only", peer, &format!("only=http://{peer}"), arguments);
    is_installed(test).then(|| {
        server.start();
        server
    })
}

/// Starts a cluster of three, as [`start`].
pub(crate) fn start_cluster(test: &str) -> Option<[Server; 3]> {
    let peers: [SocketAddr; 3] = free_addresses();
    let names = ["a", "b", "c"];
    let cluster: Vec<String> = names
        .iter()
        .zip(peers)
        .map(|(name, peer)| format!("{name}=http://{peer}"))
        .collect();
    let cluster = cluster.join(",");
    let mut servers = [0, 1, 2].map(|i| Server::new(names[i], peers[i], &cluster, &[]));
    is_installed(test).then(|| {
        servers.iter_mut().for_each(Server::start);
        servers
    })
}

fn is_installed(test: &str) -> bool {
    let found = Command::new("etcd").arg("--version").output();
    if found.is_err() {
        plimsoll_testing::skipped(&format!("etcd::{test}: etcd is not installed"));
    }
    found.is_ok()
}

/// Returns free ports, each once. The system gives none of these to outgoing connections, so a port
/// stays free until its server has started, and while it is stopped.
pub(crate) fn free_addresses<const N: usize>() -> [SocketAddr; N] {
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

impl Server {
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

    pub(crate) fn start(&mut self) {
        let mut command = Command::new("etcd");
        command
            .args(&self.arguments)
            .current_dir(self.folder.path());
        self.process = Some(Process::spawn_command(command));
    }

    pub(crate) fn stop(&mut self) {
        self.process = None;
    }

    pub(crate) fn process(&self) -> &Process {
        self.process.as_ref().unwrap()
    }

    /// Sends a request to the JSON gateway, for what the client has no method for.
    pub(crate) fn post(&self, path: &str, body: &str) -> String {
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

    /// Returns a client of this server, once it answers.
    pub(crate) async fn client(&self) -> Client {
        let client = connect(&[self.address], Options::default());
        ready(&client).await;
        client
    }
}

pub(crate) fn connect(endpoints: &[SocketAddr], options: Options) -> Client {
    let scheme = if options.tls.is_some() {
        "etcds"
    } else {
        "etcd"
    };
    let endpoints: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
    let address = format!("{scheme}://{}/plimsoll", endpoints.join(","));
    Client::connect(&address.parse::<StoreAddress>().unwrap(), options).unwrap()
}

/// Waits until a store answers.
pub(crate) async fn ready(client: &Client) {
    let end = Instant::now() + PATIENCE;
    while let Err(error) = client.get("ready").await {
        assert!(Instant::now() < end, "{error}");
        sleep(Duration::from_millis(20)).await;
    }
}
