//! The real binaries as child processes, so that tests check addresses, log lines and exit codes as
//! operators see them.
//!
//! Every process gets free ports and no `PLIMSOLL_*` variable of the caller's environment. It is
//! killed when its [`Process`] is dropped, also if a test fails.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Debug;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use serde_json::Value;

use crate::fleet::metric;

/// Time until a test stops waiting, far longer than any step takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);
pub const POLL: Duration = Duration::from_millis(20);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

pub const FREE_PORT: &str = "127.0.0.1:0";
/// Flags of a tier that listens on free ports.
pub const FREE: [&str; 4] = ["--listen", FREE_PORT, "--admin", FREE_PORT];
/// Flags of a sidecar that listens on free ports.
pub const FREE_SIDECAR: [&str; 6] = [
    "--rls", FREE_PORT, "--http", FREE_PORT, "--admin", FREE_PORT,
];

pub struct Process {
    child: Child,
    addresses: BTreeMap<String, SocketAddr>,
    log: Arc<Log>,
    stdout: File,
    /// For failures.
    command: String,
}

/// Lines on standard error so far.
#[derive(Default)]
struct Log {
    lines: Mutex<Lines>,
    grown: Condvar,
}

#[derive(Default)]
struct Lines {
    lines: Vec<String>,
    closed: bool,
}

impl Process {
    /// Starts a tier and waits until it logs its addresses. [`Self::address`] then returns them by
    /// name.
    pub fn start<S: AsRef<OsStr>>(args: &[S]) -> Self {
        Self::spawn(args).listening()
    }

    pub fn listening(mut self) -> Self {
        let listening = self.wait_for(|line| line["fields"]["listen"].is_string());
        if let Some(fields) = listening["fields"].as_object() {
            let addresses = fields
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.parse().ok()?)));
            self.addresses = addresses.collect();
        }
        self
    }

    /// Starts `plimsoll` without waiting for anything.
    pub fn spawn<S: AsRef<OsStr>>(args: &[S]) -> Self {
        Self::spawn_program("plimsoll", args)
    }

    /// Starts a program of this workspace without waiting for anything.
    pub fn spawn_program<S: AsRef<OsStr>>(program: &str, args: &[S]) -> Self {
        let mut command = command(program, args);
        command.env("PLIMSOLL_LOG_FORMAT", "json");
        Self::spawn_command(command)
    }

    pub fn spawn_command(mut command: Command) -> Self {
        let stdout = tempfile::tempfile().unwrap();
        command
            .stdin(Stdio::null())
            .stdout(stdout.try_clone().unwrap())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stderr = child.stderr.take().unwrap();
        let log = Arc::<Log>::default();
        let reader = Arc::clone(&log);
        thread::spawn(move || reader.follow(stderr));
        Self {
            child,
            addresses: BTreeMap::new(),
            log,
            stdout,
            command: format!("{command:?}"),
        }
    }

    /// Returns the logged address of this name: `listen` or `admin`.
    pub fn address(&self, name: &str) -> SocketAddr {
        let address = self.addresses.get(name);
        *address.unwrap_or_else(|| {
            panic!(
                "{} logged no address {name}: {:?}",
                self.command, self.addresses
            )
        })
    }

    /// Returns the URL of the logged address of this name.
    pub fn url(&self, name: &str) -> String {
        format!("http://{}", self.address(name))
    }

    pub fn metrics(&self, port: &str) -> String {
        http_get(self.address(port), "/metrics").1
    }

    /// Returns a metric on the page of this port, summed over the series with `label` in their labels.
    pub fn metric(&self, port: &str, name: &str, label: &str) -> f64 {
        metric(&self.metrics(port), name, label)
    }

    /// Returns the status of a tier.
    pub fn status(&self) -> Value {
        serde_json::from_str(&http_get(self.address("admin"), "/status").1).unwrap()
    }

    /// Waits for a log line, which may already be written, and returns it.
    pub fn wait_for(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + PATIENCE;
        let mut seen = 0;
        let mut lines = self.log.lock();
        loop {
            for line in &lines.lines[seen..] {
                if let Ok(line) = serde_json::from_str(line)
                    && wanted(&line)
                {
                    return line;
                }
            }
            seen = lines.lines.len();
            let left = end.saturating_duration_since(Instant::now());
            if lines.closed || left.is_zero() {
                let cause = if lines.closed { "it ended" } else { "timeout" };
                panic!("{} did not log the expected line: {cause}", self.command);
            }
            let woken = self.log.grown.wait_timeout(lines, left);
            lines = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sets a limit of this running process; `None` removes it.
    pub fn limit(&self, resource: Resource, limit: Option<u64>) {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        let hard = getrlimit(resource).maximum;
        prlimit(
            pid,
            resource,
            Rlimit {
                current: limit,
                maximum: hard,
            },
        )
        .unwrap();
    }

    pub fn descriptors(&self) -> u64 {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id()))
            .unwrap()
            .count() as u64
    }

    pub fn log(&self) -> Vec<String> {
        self.log.lock().lines.clone()
    }

    /// Kills it without a chance to clean up, as a power cut would.
    pub fn kill_9(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends SIGTERM, and waits for its exit status.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.ended()
    }

    /// Waits for its exit status, and for the end of its log.
    pub fn ended(&mut self) -> ExitStatus {
        let status = until("the process to end", || self.child.try_wait().unwrap());
        until("the end of the log", || {
            self.log.lock().closed.then_some(())
        });
        status
    }

    /// Returns true once it has ended and all its lines are in the log.
    pub fn has_ended(&self) -> bool {
        self.log.lock().closed
    }

    pub fn output(&self) -> String {
        // The process writes at the position of the shared file, which must not be moved here.
        let mut output = vec![0; self.stdout.metadata().unwrap().len() as usize];
        self.stdout.read_exact_at(&mut output, 0).unwrap();
        String::from_utf8(output).unwrap()
    }

    /// Returns the complete lines of its standard output, parsed as JSON.
    pub fn output_lines(&self) -> Vec<Value> {
        let output = self.output();
        let whole = output
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        whole
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Returns the processes that it has started; none once it has ended, because its id may then
    /// be reused.
    pub fn children(&mut self) -> Vec<Pid> {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return Vec::new();
        }
        let pid = self.child.id();
        let listed =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        listed
            .split_whitespace()
            .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
            .collect()
    }

    /// Sends a signal by its name, such as `STOP`.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(pid)
            .status()
            .unwrap();
        assert!(
            sent.success(),
            "{name} could not be sent to {}",
            self.command
        );
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Workers, such as nginx's, outlive a parent that is killed.
        let workers = self.children();
        // Fails if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for worker in workers {
            let _ = kill_process(worker, Signal::KILL);
        }
        if thread::panicking() {
            eprintln!("{} logged:\n{}", self.command, self.log().join("\n"));
        }
    }
}

impl Log {
    fn lock(&self) -> std::sync::MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn follow(&self, stderr: impl Read) {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            self.lock().lines.push(line);
            self.grown.notify_all();
        }
        self.lock().closed = true;
        self.grown.notify_all();
    }
}

pub fn message(line: &Value) -> Option<&str> {
    line["fields"]["message"].as_str()
}

pub fn run<S: AsRef<OsStr>>(args: &[S]) -> Output {
    command("plimsoll", args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Runs a command, and returns its exit code and all its output.
pub fn outcome<S: AsRef<OsStr>>(args: &[S]) -> (i32, String) {
    outcome_of(&mut command("plimsoll", args))
}

/// Runs a prepared command, as [`outcome`].
pub fn outcome_of(command: &mut Command) -> (i32, String) {
    let ended = command.stdin(Stdio::null()).output().unwrap();
    let text = [ended.stdout, ended.stderr].concat();
    (
        ended.status.code().unwrap(),
        String::from_utf8(text).unwrap(),
    )
}

/// Runs a command that must succeed, and returns its output.
pub fn succeed<S: AsRef<OsStr> + Debug>(args: &[S]) -> String {
    let ended = run(args);
    let error = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{args:?}: {error}");
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

pub fn command<S: AsRef<OsStr>>(program: &str, args: &[S]) -> Command {
    let mut command = Command::new(binary(program));
    command.args(args);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PLIMSOLL_") {
            command.env_remove(name);
        }
    }
    // A config file of the caller must not decide which controller a test reaches.
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    // Only tests of tokens need more than loopback.
    let is_given = |flag: &str| args.iter().any(|arg| arg.as_ref() == flag);
    if (is_given("controller") || is_given("aggregator")) && !is_given("--tokens") {
        command.env("PLIMSOLL_ADMIN_OPEN_ON_LOOPBACK", "true");
    }
    command
}

/// Adds a token to the file `tokens` in a folder, and returns the path of its own file, which has its name.
pub fn add_token(folder: &Path, name: &str, role: &str) -> String {
    let [tokens, out] = ["tokens", name].map(|file| folder.join(file).display().to_string());
    succeed(&[
        "tokens", "add", name, "--role", role, "--file", &tokens, "--out", &out,
    ]);
    out
}

/// Path of a binary of this workspace: cargo builds it next to the running program, or above the
/// running test.
pub fn binary(name: &str) -> PathBuf {
    let running = std::env::current_exe().unwrap();
    let folder = running.parent().unwrap();
    let folder = if folder.ends_with("deps") {
        folder.parent().unwrap()
    } else {
        folder
    };
    let path = folder.join(name);
    assert!(
        path.exists(),
        "{} is missing: build it with `cargo build --workspace --bins`",
        path.display()
    );
    path
}

/// Returns free ports, each once: tests that run at the same time never share one, as they may if
/// each asks the system. The system gives none of these to outgoing connections, so a port stays
/// free until its server has started, and while it is stopped.
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

pub fn until<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(Instant::now() < end, "timeout while waiting for {what}");
        thread::sleep(POLL);
    }
}

/// Waits until a condition holds.
pub fn until_true(what: &str, mut holds: impl FnMut() -> bool) {
    until(what, || holds().then_some(()));
}

/// Returns the status and the body of the answer to a GET.
pub fn http_get(address: SocketAddr, path: &str) -> (u16, String) {
    http(address, "GET", path, &[])
        .unwrap_or_else(|error| panic!("http://{address}{path}: {error}"))
}

/// Returns the status and the body of the answer to a request.
///
/// # Errors
/// The server is unreachable, or its answer is not HTTP.
pub fn http(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    // HTTP/1.0, so that the end of the body is the end of the connection.
    let headers: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    stream.write_all(
        format!("{method} {path} HTTP/1.0\r\nhost: {address}\r\n{headers}\r\n").as_bytes(),
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let no_answer = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("not an HTTP answer: {answer:?}"),
        )
    };
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(no_answer)?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .ok_or_else(no_answer)?;
    Ok((status, body.to_owned()))
}

/// Returns true if Python has a package. Otherwise notes the skipped test.
pub fn has_python_package(test: &str, package: &str) -> bool {
    let imported = python(&format!("import {package}"), "");
    if let Err(error) = &imported {
        crate::skipped(&format!(
            "{test}: {error}; ./test installs the packages with pip"
        ));
    }
    imported.is_ok()
}

/// Runs a program in Python; returns the last line of its errors.
pub fn python(program: &str, input: &str) -> Result<(), String> {
    let mut stdin = tempfile::tempfile().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    stdin.rewind().unwrap();
    let output = python_command().args(["-c", program]).stdin(stdin).output();
    let output = output.map_err(|error| format!("python3: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(errors.lines().last().unwrap_or("python3 failed").to_owned())
}

/// Returns Python with the packages that `./test` installs.
pub fn python_command() -> Command {
    let binary = std::env::current_exe().unwrap();
    let packages = binary
        .ancestors()
        .map(|folder| folder.join("tools/python"))
        .find(|path| path.is_dir());
    let inherited = std::env::var_os("PYTHONPATH").map(PathBuf::from);
    let path = std::env::join_paths(packages.into_iter().chain(inherited)).unwrap();
    let mut command = Command::new("python3");
    command
        .env("PYTHONPATH", path)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}
