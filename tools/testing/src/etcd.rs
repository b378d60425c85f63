//! Real servers of etcd: one, or a cluster of three, each with a folder of its own in memory.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::is_installed;
use crate::process::{Process, free_addresses, until};

pub struct EtcdServer {
    pub address: SocketAddr,
    name: &'static str,
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
    is_installed("etcd", test).then(|| {
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
    is_installed("etcd", test).then(|| {
        servers.iter_mut().for_each(EtcdServer::start);
        servers
    })
}

/// Replaces a server that is lost for good: removes it from its cluster, and adds another one with an empty folder at
/// addresses of its own. A survivor takes both changes.
pub fn replace(servers: &mut [EtcdServer; 3], lost: usize) {
    servers[lost].stop();
    let survivor = &servers[(lost + 1) % servers.len()];
    let members = survivor.ask("/v3/cluster/member/list", &json!({}));
    let members = members["members"].as_array().unwrap();
    let id = |name: &str| members.iter().find(|it| it["name"] == name).unwrap()["ID"].clone();
    let name = servers[lost].name;
    survivor.change(
        "/v3/cluster/member/remove",
        &json!({ "ID": id(name) }),
        "member not found",
    );
    let [peer] = free_addresses();
    let url = format!("http://{peer}");
    survivor.change(
        "/v3/cluster/member/add",
        &json!({ "peerURLs": [url] }),
        "Peer URLs already exists",
    );
    let others = members.iter().filter(|it| it["name"] != name);
    let others = others.map(|it| {
        let [name, url] = [&it["name"], &it["peerURLs"][0]].map(|text| text.as_str().unwrap());
        format!("{name}={url},")
    });
    let cluster = format!("{}next={url}", others.collect::<String>());
    let joins = ["--initial-cluster-state", "existing"];
    servers[lost] = EtcdServer::new("next", peer, &cluster, &joins);
    servers[lost].start();
}

impl EtcdServer {
    fn new(name: &'static str, peer: SocketAddr, cluster: &str, further: &[&str]) -> Self {
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
            name,
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
        let answer = self.try_post(path, body).unwrap();
        assert!(answer.contains(" 200 OK"), "{path}: {answer}");
        answer
    }

    fn try_post(&self, path: &str, body: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(self.address)?;
        // A request during an election may never be answered.
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let len = body.len();
        let head = format!("POST {path} HTTP/1.0\r\ncontent-length: {len}\r\n\r\n");
        stream.write_all((head + body).as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// As [`Self::post`], in JSON. Repeats the request until the server, which may have no leader yet, takes it.
    pub fn ask(&self, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let answer = until(path, || {
            let answer = self.try_post(path, &body).ok()?;
            answer.contains(" 200 OK").then_some(answer)
        });
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    }

    /// Repeats a change until it is made; `done` is the error of one that was made although its answer was lost.
    fn change(&self, path: &str, body: &Value, done: &str) {
        let body = body.to_string();
        until(path, || {
            let answer = self.try_post(path, &body).ok()?;
            (answer.contains(" 200 OK") || answer.contains(done)).then_some(())
        });
    }

    /// Deletes the history up to now.
    pub fn compact(&self) {
        let read = self.ask("/v3/kv/range", &json!({ "key": "AA==" }));
        let revision = &read["header"]["revision"];
        self.ask(
            "/v3/kv/compaction",
            &json!({ "revision": revision, "physical": true }),
        );
    }
}
