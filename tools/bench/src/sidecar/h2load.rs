//! Load by `h2load`, a program of nghttp2: as many requests as the server answers, or a fixed rate.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use prost::Message;
use tempfile::TempDir;

use super::cores::{LOAD, on_core};

const WARM_UP: Duration = Duration::from_secs(1);
pub(super) const SHOULD_RATE_LIMIT: &str =
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Request to the rate limit service of Envoy, with the fields that are sent.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RateLimitRequest {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<Descriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<Entry>,
}

#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, Debug)]
pub(super) struct Requests {
    path: &'static str,
    /// Connections, and requests of each at a time.
    connections: usize,
    at_a_time: usize,
    flags: Vec<String>,
    body: Option<PathBuf>,
}

/// Answers of a run with a log, within the measured time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Answers {
    pub(super) per_second: f64,
    pub(super) p99_us: f64,
    /// Answers with a status except 200, 204, 403 and 429, and requests without an answer.
    pub(super) failed: usize,
}

/// Answers of a run without a log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Throughput {
    pub(super) per_second: f64,
    /// Requests without an answer, and answers with a server error.
    pub(super) failed: f64,
}

impl Requests {
    /// Requests to the rate limit service: one descriptor with a bucket and a tenant, on 4
    /// connections with 64 streams.
    pub(super) fn rls(directory: &TempDir, bucket: &str) -> Self {
        let entry = |key: &str, value: &str| Entry {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        let entries = vec![entry("bucket", bucket), entry("tenant", "acme")];
        let request = RateLimitRequest {
            domain: "measured".to_owned(),
            descriptors: vec![Descriptor { entries }],
        };
        let message = request.encode_to_vec();
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        let body = directory.path().join(format!("rls-{bucket}"));
        fs::write(&body, [&[0], &length[..], &message].concat()).unwrap();
        let headers = ["content-type: application/grpc", "te: trailers"];
        let flags = headers
            .iter()
            .flat_map(|header| ["-H".to_owned(), (*header).to_owned()])
            .collect();
        Self {
            path: SHOULD_RATE_LIMIT,
            connections: 4,
            at_a_time: 64,
            flags,
            body: Some(body),
        }
    }

    pub(super) fn check(directory: &TempDir, bucket: &str) -> Self {
        let body = directory.path().join(format!("check-{bucket}"));
        fs::write(&body, format!(r#"{{"bucket":"{bucket}","tenant":"acme"}}"#)).unwrap();
        let flags = vec![
            "--h1".to_owned(),
            "-H".to_owned(),
            "content-type: application/json".to_owned(),
        ];
        Self {
            path: "/v1/check",
            connections: 32,
            at_a_time: 1,
            flags,
            body: Some(body),
        }
    }

    pub(super) fn nginx(bucket: &str) -> Self {
        let headers = [
            format!("x-plimsoll-bucket: {bucket}"),
            "x-plimsoll-tenant: acme".to_owned(),
            "x-original-method: GET".to_owned(),
            "x-original-uri: /orders/7".to_owned(),
        ];
        let headers = headers
            .into_iter()
            .flat_map(|header| ["-H".to_owned(), header]);
        let flags = ["--h1".to_owned()].into_iter().chain(headers).collect();
        Self {
            path: "/nginx",
            connections: 32,
            at_a_time: 1,
            flags,
            body: None,
        }
    }

    /// Sends as many requests as the server answers, for some time. Only the load runs on its core.
    pub(super) fn send(&self, to: SocketAddr, during: Duration) -> Throughput {
        let output = on_core(LOAD, || self.command(to, during).output()).unwrap();
        Throughput::of(&String::from_utf8_lossy(&output.stdout)).unwrap()
    }

    /// Sends and logs each answer, which costs the load about as much as the request.
    pub(super) fn send_and_log(&self, to: SocketAddr, during: Duration) -> Answers {
        self.send_with(to, during, &[])
    }

    pub(super) fn send_at(&self, rate: usize, to: SocketAddr, during: Duration) -> Answers {
        self.send_with(
            to,
            during,
            &["--rps".to_owned(), (rate / self.connections).to_string()],
        )
    }

    fn send_with(&self, to: SocketAddr, during: Duration, more: &[String]) -> Answers {
        // In memory where the machine has such a folder.
        let directory = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        let log = directory.path().join("log");
        let mut command = self.command(to, during);
        command.args(more).arg("--log-file").arg(&log);
        let output = on_core(LOAD, || command.output()).unwrap();
        assert!(output.status.success(), "{command:?}: {}", output.status);
        Answers::of(&fs::read_to_string(&log).unwrap(), during)
    }

    fn command(&self, to: SocketAddr, during: Duration) -> Command {
        let mut command = Command::new("h2load");
        command.args([
            "-t",
            "1",
            "-c",
            &self.connections.to_string(),
            "-m",
            &self.at_a_time.to_string(),
        ]);
        command.args([
            "-D",
            &during.as_secs().to_string(),
            "--warm-up-time",
            &WARM_UP.as_secs().to_string(),
        ]);
        command.args(&self.flags);
        if let Some(body) = &self.body {
            command.arg("-d").arg(body);
        }
        command.arg(format!("http://{to}{}", self.path));
        command
    }
}

impl Throughput {
    fn of(summary: &str) -> Option<Self> {
        let line = |name: &str| summary.lines().find_map(|line| line.strip_prefix(name));
        let count = |line: &str, name: &str| {
            let (before, _) = line.split_once(&format!(" {name}"))?;
            before.rsplit([' ', ',']).next()?.parse::<f64>().ok()
        };
        let per_second = count(line("finished in ")?, "req/s")?;
        let [errored, timed_out] =
            ["errored", "timeout"].map(|name| count(line("requests: ")?, name));
        let server_errors = count(line("status codes: ")?, "5xx")?;
        Some(Self {
            per_second,
            failed: errored? + timed_out? + server_errors,
        })
    }
}

impl Answers {
    /// Reads the log of a run: a line for each answer with its start, its status and its duration
    /// in microseconds.
    fn of(log: &str, during: Duration) -> Self {
        let mut took = Vec::new();
        let mut failed = 0;
        for line in log.lines() {
            let mut fields = line.split('\t').skip(1);
            match (
                fields.next(),
                fields.next().and_then(|us| us.parse::<u64>().ok()),
            ) {
                (Some("200" | "204" | "403" | "429"), Some(us)) => took.push(us),
                _ => failed += 1,
            }
        }
        took.sort_unstable();
        let p99 = took.get(took.len() * 99 / 100).copied().unwrap_or_default();
        Self {
            per_second: took.len() as f64 / during.as_secs_f64(),
            p99_us: p99 as f64,
            failed,
        }
    }
}

pub(super) fn is_installed() -> bool {
    Command::new("h2load")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_gives_rate_p99_and_failures() {
        let lines: String = (1..=200)
            .map(|us| format!("17{us:04}\t{}\t{us}\n", if us % 2 == 0 { 200 } else { 403 }))
            .collect();
        let answers = Answers::of(
            &format!("{lines}170\t500\t9\n170\t-1\t9\n"),
            Duration::from_secs(2),
        );
        assert_eq!(
            answers,
            Answers {
                per_second: 100.0,
                p99_us: 199.0,
                failed: 2
            }
        );
    }

    #[test]
    fn summary_gives_rate_and_failures() {
        let summary = "finished in 5.00s, 59828.75 req/s, 2.17MB/s\n\
            requests: 9 total, 9 started, 9 done, 5 succeeded, 4 failed, 3 errored, 1 timeout\n\
            status codes: 5 2xx, 0 3xx, 4 4xx, 2 5xx\n";
        assert_eq!(
            Throughput::of(summary),
            Some(Throughput {
                per_second: 59_828.75,
                failed: 6.0
            })
        );
        assert_eq!(Throughput::of("h2load: no server"), None);
    }
}
