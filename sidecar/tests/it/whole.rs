//! All ports of a sidecar without an aggregator, and its orderly end.

use std::net::SocketAddr;
use std::path::Path;

use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll_sidecar::{Listeners, Sidecar};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::start::parsed;

/// Does not wait for policies.
const NOW: [&str; 2] = ["--ready-within", "0s"];

struct Running {
    rls: SocketAddr,
    http: SocketAddr,
    admin: SocketAddr,
    shutdown: CancellationToken,
    served: JoinHandle<Result<(), plimsoll_sidecar::Error>>,
}

/// Starts a sidecar of this name; two with one name cannot run in one process.
async fn start(name: &str, sockets: &Path, more: &[&str]) -> Running {
    let parent = ["--aggregator", "http://127.0.0.1:1"];
    let flags = [
        &["--name", name, "--sockets", sockets.to_str().unwrap()],
        &parent[..],
        more,
    ]
    .concat();
    let sidecar = Sidecar::new(&parsed(&flags)).unwrap();
    let bound = || {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        socket
    };
    let admin = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listeners = Listeners {
        rls: bound(),
        http: bound(),
        admin,
    };
    let rls = listeners.rls.local_addr().unwrap();
    let http = listeners.http.local_addr().unwrap();
    let admin = listeners.admin.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let served = tokio::spawn(sidecar.serve(listeners, shutdown.clone()));
    Running {
        rls,
        http,
        admin,
        shutdown,
        served,
    }
}

impl Running {
    async fn opened(self) -> Self {
        while !self.served.is_finished() && !self.ready().await {
            tokio::task::yield_now().await;
        }
        self
    }

    async fn ready(&self) -> bool {
        ask(self.admin, "GET /readyz HTTP/1.1")
            .await
            .starts_with("HTTP/1.1 200")
    }
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, head: &str) -> String {
    let request = format!("{head}\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn ask(port: SocketAddr, head: &str) -> String {
    exchange(TcpStream::connect(port).await.unwrap(), head).await
}

#[tokio::test]
async fn every_port_answers_and_shows_counts() {
    let directory = tempfile::tempdir().unwrap();
    let running = start(
        "every",
        directory.path(),
        &[
            "--cold-rps",
            "closed=0",
            "--admin-open-on-loopback",
            NOW[0],
            NOW[1],
        ],
    )
    .await
    .opened()
    .await;
    let open = "GET /check HTTP/1.1\r\nx-plimsoll-bucket: open";
    assert!(ask(running.http, open).await.starts_with("HTTP/1.1 200"));
    let closed = "GET /check HTTP/1.1\r\nx-plimsoll-bucket: closed";
    let mut refused = ask(running.http, closed).await;
    let mut allowed = 2;
    // The rate is applied once the feed has begun.
    while refused.starts_with("HTTP/1.1 200") {
        allowed += 1;
        refused = ask(running.http, closed).await;
    }
    assert!(
        refused.starts_with("HTTP/1.1 429") && refused.contains("\"reason\":\"cold_start\""),
        "{refused}"
    );
    let socket = || async {
        UnixStream::connect(directory.path().join("http.sock"))
            .await
            .unwrap()
    };
    assert!(
        exchange(socket().await, open)
            .await
            .starts_with("HTTP/1.1 200")
    );

    let metrics = ask(running.admin, "GET /metrics HTTP/1.1").await;
    for line in [
        "plimsoll_decisions_total{bucket=\"open\",mode=\"unknown\",result=\"admit\"} 2\n",
        &format!(
            "plimsoll_sidecar_http_requests_total{{endpoint=\"check\",result=\"allowed\"}} {allowed}\n"
        ),
        "plimsoll_sidecar_http_requests_total{endpoint=\"check\",result=\"refused\"} 1\n",
        "plimsoll_sidecar_rls_requests_total{result=\"ok\"} 0\n",
        "plimsoll_sidecar_rules_refused 0\n",
        "plimsoll_connections_pending{port=\"admin\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
    let described = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next());
    let mut names: Vec<&str> = described.collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "a metric is described twice");
    let status = ask(running.admin, "GET /status HTTP/1.1").await;
    assert!(
        ["\"rules\":{\"hash\":", "\"limiter\":", "\"security\":"]
            .iter()
            .all(|field| status.contains(field)),
        "{status}"
    );

    running.shutdown.cancel();
    running.served.await.unwrap().unwrap();
    assert!(TcpStream::connect(running.http).await.is_err());
    assert_eq!(
        std::fs::read_dir(directory.path()).unwrap().count(),
        0,
        "the socket files are removed"
    );
}

#[tokio::test]
async fn health_is_checked_and_watched() {
    let directory = tempfile::tempdir().unwrap();
    let running = start("health", directory.path(), &NOW).await.opened().await;
    let stream = TokioIo::new(TcpStream::connect(running.rls).await.unwrap());
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream)
            .await
            .unwrap();
    tokio::spawn(connection);
    let mut call = async |method: &str| {
        let request =
            http::Request::post(format!("http://localhost/grpc.health.v1.Health/{method}"));
        let request = request.header("content-type", "application/grpc");
        let answer = client.send_request(
            request
                .body(Full::new(Bytes::from_static(&[0; 5])))
                .unwrap(),
        );
        answer.await.unwrap().into_body()
    };
    let serving = Bytes::from_static(&[0, 0, 0, 0, 2, 8, 1]);
    let checked = call("Check").await.collect().await.unwrap();
    assert_eq!(checked.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(checked.to_bytes(), serving);
    let mut watched = call("Watch").await;
    assert_eq!(
        watched.frame().await.unwrap().unwrap().into_data().unwrap(),
        serving
    );
    assert!(
        watched.frame().now_or_never().is_none(),
        "the stream stays open"
    );
    running.shutdown.cancel();
    let end = watched
        .frame()
        .await
        .unwrap()
        .unwrap()
        .into_trailers()
        .unwrap();
    assert_eq!(end["grpc-status"], "14");
    drop(client);
    running.served.await.unwrap().unwrap();
}

#[tokio::test]
async fn ports_await_policies_until_overdue() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.yaml");
    std::fs::write(&rules, "http: { rules: [ { bucket: shop } ] }\n").unwrap();
    let with_rules = ["--rules", rules.to_str().unwrap()];
    let waiting = start(
        "waiting",
        directory.path(),
        &[&with_rules[..], &["--ready-within", "1h"]].concat(),
    )
    .await;
    assert!(
        ask(waiting.admin, "GET /healthz HTTP/1.1")
            .await
            .starts_with("HTTP/1.1 200")
    );
    assert!(!waiting.ready().await && TcpStream::connect(waiting.http).await.is_err());
    waiting.shutdown.cancel();
    waiting.served.await.unwrap().unwrap();
    for (decision, status) in [("allow", "200"), ("deny", "429")] {
        let flags = [&with_rules[..], &NOW, &["--before-policy", decision]].concat();
        let running = start(decision, directory.path(), &flags)
            .await
            .opened()
            .await;
        let answer = ask(
            running.http,
            "GET /check HTTP/1.1\r\nx-forwarded-method: GET\r\nx-forwarded-uri: /",
        )
        .await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
        let metrics = ask(running.admin, "GET /metrics HTTP/1.1").await;
        let line = format!("plimsoll_decisions_before_policy_total{{policy=\"{decision}\"}} 1\n");
        assert!(metrics.contains(&line), "{metrics}");
        running.shutdown.cancel();
        running.served.await.unwrap().unwrap();
    }
}
