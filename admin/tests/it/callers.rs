//! The callers that each route of a real server answers.

use std::future::pending;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::{get, post};
use plimsoll_admin::loopback::loopback_only;
use plimsoll_admin::server;
use plimsoll_proto::transport::Connections;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Routes of every kind: those of every tier, an open one and commands.
async fn start(listen: &str) -> SocketAddr {
    let commands =
        Router::new().route("/kill", get(async || "status")).route("/kill/on", post(async || "on"));
    let routes = server::routes(|| "metrics\n".to_owned(), || true).route("/status", get(async || "status"));
    let routes = routes.merge(loopback_only(commands));
    let listener = TcpListener::bind(listen).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(server::serve(listener, Connections::new(64, 64), routes, pending()));
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Sends a request with these headers; returns the status and the body.
async fn ask(address: SocketAddr, method: &str, target: &str, headers: &[&str]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let request = format!("{method} {target} HTTP/1.0\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    (answer[9..12].parse().unwrap(), answer.split("\r\n\r\n").nth(1).unwrap().to_owned())
}

/// Headers of requests of this machine, and whether they may change something.
const LOCAL: [&[&str]; 10] = [
    &["host: localhost"],
    &["host: LOCALHOST:7401"],
    &["host: 127.0.0.1:7401"],
    &["host: 127.8.9.1"],
    &["host: [::1]:7401"],
    &["host: [::ffff:127.0.0.1]"],
    &["host: localhost:1", "origin: http://localhost:1"],
    &["host: localhost:1", "sec-fetch-site: same-origin", "origin: http://localhost:1"],
    &["host: localhost", "sec-fetch-site: none"],
    &["host: localhost", "x-request-id: 7", "forward: no"],
];

/// Headers of requests that may come from elsewhere, and a word of the reason.
const FOREIGN: [(&[&str], &str); 19] = [
    (&[], "host"),
    (&["host:"], "host"),
    (&["host: evil.example"], "evil.example"),
    (&["host: evil.example:7401"], "evil.example"),
    (&["host: localhost.evil.example"], "localhost.evil.example"),
    (&["host: evil.localhost"], "evil.localhost"),
    (&["host: 127.0.0.1.evil.example"], "127.0.0.1.evil.example"),
    (&["host: localhost@evil.example"], "evil.example"),
    (&["host: evil@localhost"], "evil@localhost"),
    (&["host: 10.0.0.7:7401"], "10.0.0.7"),
    (&["host: 0.0.0.0"], "0.0.0.0"),
    (&["host: localhost", "host: evil.example"], "evil.example"),
    (&["host: localhost", "x-forwarded-for: 127.0.0.1"], "x-forwarded-for"),
    (&["host: localhost", "X-Forwarded-Host: localhost"], "x-forwarded-host"),
    (&["host: localhost", "x-forwarded-proto: http"], "x-forwarded-proto"),
    (&["host: localhost", "Forwarded: for=127.0.0.1"], "forwarded"),
    (&["host: localhost", "via: 1.1 proxy"], "via"),
    (&["host: localhost", "x-real-ip: 127.0.0.1"], "x-real-ip"),
    (&["host: localhost", "x-forwarded-for:"], "x-forwarded-for"),
];

/// Headers of requests of web pages, which may read and change nothing.
const PAGES: [&[&str]; 7] = [
    &["host: localhost", "origin: https://evil.example"],
    &["host: localhost", "origin: null"],
    &["host: localhost:1", "origin: http://localhost:2"],
    &["host: localhost", "origin: http://localhost", "origin: http://evil.example"],
    &["host: localhost", "sec-fetch-site: cross-site"],
    &["host: localhost", "sec-fetch-site: same-site"],
    &["host: localhost", "sec-fetch-site: none", "sec-fetch-site: cross-site"],
];

const OPEN: [&str; 4] = ["/metrics", "/healthz", "/readyz", "/status"];

#[tokio::test]
async fn commands_are_for_programs_on_this_machine() {
    for listen in ["127.0.0.1:0", "0.0.0.0:0"] {
        let address = start(listen).await;
        for headers in LOCAL {
            assert_eq!(ask(address, "GET", "/kill", headers).await.0, 200, "{listen} {headers:?}");
            assert_eq!(ask(address, "POST", "/kill/on", headers).await.0, 200, "{listen} {headers:?}");
        }
        for (headers, reason) in FOREIGN {
            for (method, target) in [("GET", "/kill"), ("POST", "/kill/on")] {
                let (status, body) = ask(address, method, target, headers).await;
                assert_eq!(status, 403, "{listen} {method} {headers:?}");
                assert!(body.contains(reason), "{headers:?}: {body}");
            }
        }
        for headers in PAGES {
            assert_eq!(ask(address, "GET", "/kill", headers).await.0, 200, "{listen} {headers:?}");
            assert_eq!(ask(address, "POST", "/kill/on", headers).await.0, 403, "{listen} {headers:?}");
        }
        // The target of a request in absolute form names the host as well.
        let (status, _) = ask(address, "POST", "http://evil.example/kill/on", &["host: localhost"]).await;
        assert_eq!(status, 403);
        let (status, _) = ask(address, "POST", "http://localhost/kill/on", &["host: localhost"]).await;
        assert_eq!(status, 200);
    }
}

#[tokio::test]
async fn port_at_loopback_answers_nothing_to_other_hosts_or_proxies() {
    let address = start("127.0.0.1:0").await;
    for target in OPEN {
        for headers in LOCAL {
            assert_eq!(ask(address, "GET", target, headers).await.0, 200, "{target} {headers:?}");
        }
        for (headers, _) in FOREIGN {
            assert_eq!(ask(address, "GET", target, headers).await.0, 403, "{target} {headers:?}");
        }
    }
}

#[tokio::test]
async fn port_beyond_loopback_answers_scrapes_and_probes_by_any_host() {
    let address = start("0.0.0.0:0").await;
    for target in OPEN {
        for headers in
            [&["host: 10.0.0.7:7401"][..], &["host: controller.plimsoll.svc:7401"], &["via: 1.1 proxy"]]
        {
            assert_eq!(ask(address, "GET", target, headers).await.0, 200, "{target} {headers:?}");
        }
    }
}
