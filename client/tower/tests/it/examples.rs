//! The examples, run as their users run them: each starts as a process, refuses when its aggregator
//! directs it, and stops cleanly.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use axum::body::Bytes;
use axum::http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use plimsoll_core::decision::Mode;
use plimsoll_core::names::{Bucket, Key, Tenant};
use plimsoll_core::report::Counts;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tonic::Code;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::parent::{ALL, Aggregator};

struct Running {
    process: Child,
    output: Lines<BufReader<ChildStdout>>,
}

/// The binary of an example. Cargo builds it beside this test; if it did not, or before the last change, this does.
fn binary(name: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let test = std::env::current_exe().unwrap();
    let path = test
        .parent()
        .and_then(Path::parent)
        .unwrap()
        .join("examples")
        .join(name);
    let modified = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
    let source =
        modified(&package.join("examples").join(format!("{name}.rs"))).unwrap_or(SystemTime::now());
    if modified(&path).is_none_or(|built| built < source) {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args([
            "build",
            "--offline",
            "--quiet",
            "--package",
            "plimsoll-tower",
            "--example",
            name,
        ]);
        assert!(
            build.current_dir(package).status().unwrap().success(),
            "cargo builds the example {name}"
        );
    }
    path
}

impl Running {
    fn start(name: &str, aggregator: &Aggregator) -> Self {
        let mut command = tokio::process::Command::new(binary(name));
        command.env(
            "PLIMSOLL_AGGREGATOR",
            format!("http://{}", aggregator.address),
        );
        command
            .env("SHOP_LISTEN", "127.0.0.1:0")
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut process = command.kill_on_drop(true).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, output }
    }

    async fn line(&mut self) -> String {
        self.output
            .next_line()
            .await
            .unwrap()
            .expect("the example prints another line")
    }

    async fn address(&mut self) -> String {
        let line = self.line().await;
        line.strip_prefix("listening on ")
            .unwrap_or_else(|| panic!("{line}"))
            .to_owned()
    }

    async fn stop(mut self) -> String {
        let pid = self.process.id().unwrap().to_string();
        assert!(
            Command::new("kill")
                .args(["-INT", &pid])
                .status()
                .unwrap()
                .success()
        );
        let last = self.line().await;
        assert!(self.process.wait().await.unwrap().success());
        last
    }
}

async fn get(address: &str, path: &str) -> (StatusCode, String) {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let request = Request::get(format!("http://{address}{path}")).header("x-tenant", "acme");
    let response = client
        .request(request.body(Empty::new()).unwrap())
        .await
        .unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

impl Aggregator {
    pub(crate) async fn counted(&self, bucket: &str, tenant: &str, expected: Counts) {
        let key = Key {
            bucket: Bucket::new(bucket).unwrap(),
            tenant: Tenant::new(tenant).unwrap(),
        };
        self.until(|received| received.counts.get(&key).copied().unwrap_or_default() == expected)
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http_examples_refuse_and_report_every_request() {
    for (name, bucket) in [("axum", "orders-read"), ("testing", "orders")] {
        let aggregator = Aggregator::start(|service| service).await;
        let mut example = Running::start(name, &aggregator);
        let address = example.address().await;
        aggregator
            .direct(bucket, Mode::Enforce, &[("default", 0)])
            .await;
        let (status, body) = get(&address, "/orders/7").await;
        assert_eq!(status, 200, "{name}: {body}");
        assert!(body.contains("order"), "{name}: {body}");
        aggregator
            .direct(bucket, Mode::Enforce, &[("default", ALL)])
            .await;
        for _ in 0..3 {
            let (status, body) = get(&address, "/orders/7").await;
            assert_eq!(status, 429, "{name}: {body}");
        }
        if name == "axum" {
            let (status, metrics) = get(&address, "/metrics").await;
            assert_eq!(status, 200);
            let refused =
                r#"plimsoll_decisions_total{bucket="orders-read",mode="enforce",result="drop"} 3"#;
            assert!(metrics.lines().any(|line| line == refused), "{metrics}");
        }
        assert_eq!(
            example.stop().await,
            "stopped, 0 decisions unreported",
            "{name}"
        );
        let counts = Counts {
            offered: 4,
            dropped: 3,
            ..Counts::ZERO
        };
        aggregator.counted(bucket, "acme", counts).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tonic_example_refuses_as_directed() {
    let aggregator = Aggregator::start(|service| service).await;
    let mut example = Running::start("tonic", &aggregator);
    let address = example.address().await;
    let channel = Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .connect()
        .await
        .unwrap();
    let check = || async {
        HealthClient::new(channel.clone())
            .check(HealthCheckRequest::default())
            .await
    };
    aggregator
        .direct("health", Mode::Enforce, &[("default", 0)])
        .await;
    check().await.unwrap();
    aggregator
        .direct("health", Mode::Enforce, &[("default", ALL)])
        .await;
    assert_eq!(check().await.unwrap_err().code(), Code::ResourceExhausted);
    drop(channel);
    assert_eq!(example.stop().await, "stopped, 0 decisions unreported");
    aggregator
        .counted(
            "health",
            "default",
            Counts {
                offered: 2,
                dropped: 1,
                ..Counts::ZERO
            },
        )
        .await;
}
