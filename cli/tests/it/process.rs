//! The real binary as a child process, so that tests see what an operator sees: addresses, log lines and exit codes.
//!
//! Every process gets free ports, none of the `PLIMSOLL_*` variables of whoever runs the tests, and is killed when
//! its [`Process`] is dropped, also when a test fails.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Far beyond what any step takes, even on a machine that has other things to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How often something is asked for again that nobody announces.
pub(crate) const POLL: Duration = Duration::from_millis(20);
/// How long an HTTP answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A running `plimsoll`.
pub(crate) struct Process {
    child: Child,
    addresses: BTreeMap<String, SocketAddr>,
    log: Arc<Log>,
    stdout: File,
    /// What was asked for, to name it in failures.
    command: String,
}

/// What a process has written on standard error so far.
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

// === impl Process ===

impl Process {
    /// Starts a tier and waits until it serves; the addresses it then logs are known by their names.
    pub(crate) fn start<S: AsRef<OsStr>>(args: &[S]) -> Self {
        let mut process = Self::spawn(args);
        let serves =
            process.wait_for(|line| message(line).is_some_and(|message| message.ends_with(" serves")));
        if let Some(fields) = serves["fields"].as_object() {
            let addresses =
                fields.iter().filter_map(|(name, value)| Some((name.clone(), value.as_str()?.parse().ok()?)));
            process.addresses = addresses.collect();
        }
        process
    }

    /// Starts a command that says nothing when it is ready.
    pub(crate) fn spawn<S: AsRef<OsStr>>(args: &[S]) -> Self {
        let mut command = plimsoll(args);
        command.env("PLIMSOLL_LOG_FORMAT", "json");
        let stdout = tempfile::tempfile().unwrap();
        command.stdin(Stdio::null()).stdout(stdout.try_clone().unwrap()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let log = Arc::<Log>::default();
        let reader = Arc::clone(&log);
        thread::spawn(move || reader.follow(stderr));
        Self { child, addresses: BTreeMap::new(), log, stdout, command: format!("{command:?}") }
    }

    /// Where it serves, by the name it logs the address under: `listen` or `admin`.
    pub(crate) fn address(&self, name: &str) -> SocketAddr {
        let address = self.addresses.get(name);
        *address.unwrap_or_else(|| panic!("{} names no address {name}: {:?}", self.command, self.addresses))
    }

    /// Waits for a log line, among those already written too, and yields it.
    pub(crate) fn wait_for(&self, wanted: impl Fn(&Value) -> bool) -> Value {
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
                let what = if lines.closed { "it ended" } else { "time is up" };
                panic!("{} did not log what was waited for: {what}", self.command);
            }
            let woken = self.log.grown.wait_timeout(lines, left);
            lines = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// By what the system knows it.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Every line it has logged so far, as it was written.
    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().lines.clone()
    }

    /// Ends it as a power cut would.
    pub(crate) fn kill_9(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end in good order, waits until it has, and yields how it ended.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.ended()
    }

    /// Waits until it has ended, and yields how.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        until("the process to end", || self.child.try_wait().unwrap())
    }

    /// What it has written on standard output so far.
    pub(crate) fn output(&self) -> String {
        // The process writes where the file's one position is, which therefore must not be moved here.
        let mut output = vec![0; self.stdout.metadata().unwrap().len() as usize];
        self.stdout.read_exact_at(&mut output, 0).unwrap();
        String::from_utf8(output).unwrap()
    }

    /// Every line of JSON that it has written there.
    pub(crate) fn output_lines(&self) -> Vec<Value> {
        let output = self.output();
        let whole = output.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        whole.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Sends a signal by its name, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").arg(format!("-{name}")).arg(pid).status().unwrap();
        assert!(sent.success(), "{name} could not be sent to {}", self.command);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails when it has ended already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("{} logged:\n{}", self.command, self.log().join("\n"));
        }
    }
}

// === impl Log ===

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

/// The message of a log line.
pub(crate) fn message(line: &Value) -> Option<&str> {
    line["fields"]["message"].as_str()
}

/// Runs a command to its end.
pub(crate) fn run<S: AsRef<OsStr>>(args: &[S]) -> Output {
    plimsoll(args).stdin(Stdio::null()).output().unwrap()
}

fn plimsoll<S: AsRef<OsStr>>(args: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(args);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PLIMSOLL_") {
            command.env_remove(name);
        }
    }
    command
}

/// Asks again and again until there is an answer.
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "waited in vain for {what}");
        thread::sleep(POLL);
    }
}

/// The status and the body of an answer to a plain GET.
pub(crate) fn http_get(address: SocketAddr, path: &str) -> (u16, String) {
    http(address, "GET", path, &[]).unwrap_or_else(|error| panic!("http://{address}{path}: {error}"))
}

/// The same for any method and headers, and for whoever may be away.
pub(crate) fn http(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    // HTTP/1.0, so that the end of the body is the end of the connection.
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    stream.write_all(format!("{method} {path} HTTP/1.0\r\nhost: {address}\r\n{headers}\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let no_answer = || io::Error::new(io::ErrorKind::InvalidData, format!("not an answer: {answer:?}"));
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(no_answer)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(no_answer)?;
    Ok((status, body.to_owned()))
}
