//! Real Redis processes of a test, on free loopback ports, which end with it.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use ::redis::{Client, Connection, FromRedisValue, RedisResult, cmd};

pub(super) struct Server {
    process: Child,
    directory: tempfile::TempDir,
    arguments: Vec<String>,
    pub(super) port: u16,
}

impl Server {
    /// Starts Redis; `None` where it is not installed.
    pub(super) fn start(arguments: &[&str]) -> Option<Self> {
        let free = |listener: TcpListener| listener.local_addr().map(|address| address.port());
        let mut port = TcpListener::bind("127.0.0.1:0").and_then(free).unwrap();
        // A node of a cluster listens at its port plus 10,000, too.
        while port > 55_000 || TcpListener::bind(("127.0.0.1", port + 10_000)).is_err() {
            port = TcpListener::bind("127.0.0.1:0").and_then(free).unwrap();
        }
        let directory = tempfile::tempdir().unwrap();
        let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        let process = spawn(&arguments, port, &directory)?;
        let mut server = Self {
            process,
            directory,
            arguments,
            port,
        };
        server.until_up();
        Some(server)
    }

    pub(super) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(super) fn restart(&mut self) {
        self.process = spawn(&self.arguments, self.port, &self.directory).unwrap();
        self.until_up();
    }

    pub(super) fn connect(&self) -> RedisResult<Connection> {
        Client::open(("127.0.0.1", self.port))?.get_connection()
    }

    /// Runs a command, its words apart by spaces.
    pub(super) fn run<T: FromRedisValue>(&self, words: &str) -> RedisResult<T> {
        let mut words = words.split(' ');
        let mut command = cmd(words.next().unwrap());
        command.arg(words.collect::<Vec<_>>());
        command.query(&mut self.connect()?)
    }

    fn until_up(&mut self) {
        while self.run::<String>("PING").is_err() {
            assert!(
                self.process.try_wait().unwrap().is_none(),
                "redis-server ended"
            );
            std::thread::yield_now();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(arguments: &[String], port: u16, directory: &tempfile::TempDir) -> Option<Child> {
    let port = port.to_string();
    let mut command = Command::new("redis-server");
    command
        .args(arguments)
        .args(["--port", &port, "--bind", "127.0.0.1", "--dir"])
        .arg(directory.path());
    command.args(["--save", "", "--appendonly", "no"]);
    match command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
        Ok(process) => Some(process),
        Err(error) => {
            eprintln!("skipped: redis-server cannot be started: {error}");
            None
        }
    }
}
