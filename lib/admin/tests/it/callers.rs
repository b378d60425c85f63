//! The callers that each route of a real server answers.

use std::net::SocketAddr;
use std::path::Path;

use axum::Extension;
use axum::http::Method;
use plimsoll_admin::access::{Access, AdminCaller, Routes, Rules, TokenFile, TokenHash};
use plimsoll_admin::server;
use plimsoll_net::Connections;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

fn routes() -> Routes {
    let name = async |Extension(caller): Extension<AdminCaller>| caller.name.to_string();
    let routes = Routes::new()
        .viewer(Method::GET, "/kill", name)
        .operator(Method::POST, "/kill/on", name)
        .admin(Method::POST, "/history", name);
    server::routes(Vec::new, || true).merge(routes)
}

async fn start(listen: &str, rules: Rules) -> (SocketAddr, Access) {
    let access = Access::new(rules);
    let listener = TcpListener::bind(listen).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(server::serve(
        listener,
        Connections::new(512, 512),
        access.clone(),
        routes(),
        CancellationToken::new(),
    ));
    (SocketAddr::from(([127, 0, 0, 1], port)), access)
}

fn token(number: u32) -> String {
    format!("plimsoll_{number:043}")
}

const ROLES: [(&str, u32); 3] = [("viewer", 1), ("operator", 2), ("admin", 3)];

fn tokens(directory: &Path) -> TokenFile {
    let lines =
        ROLES.map(|(role, number)| format!("{role}-1 {role} {}\n", TokenHash::of(&token(number))));
    let path = directory.join("tokens");
    std::fs::write(&path, lines.concat()).unwrap();
    TokenFile::open(&path).unwrap()
}

fn refused(access: &Access) -> Vec<(&'static str, u64)> {
    access
        .refused()
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .collect()
}

async fn exchange(
    address: SocketAddr,
    method: &str,
    target: &str,
    headers: &[&str],
) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let headers: String = headers
        .iter()
        .map(|header| format!("{header}\r\n"))
        .collect();
    let request = format!("{method} {target} HTTP/1.0\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

async fn ask(address: SocketAddr, method: &str, target: &str, headers: &[&str]) -> (u16, String) {
    let (head, body) = exchange(address, method, target, headers).await;
    (head[9..12].parse().unwrap(), body)
}

/// Headers of requests of this machine, and whether they may change something.
const LOCAL: [&[&str]; 11] = [
    &["host: localhost"],
    &["host: LOCALHOST:7401"],
    &["host: 127.0.0.1:7401"],
    &["host: 127.8.9.1"],
    &["host: [::1]:7401"],
    &["host: [::ffff:127.0.0.1]"],
    &["host: localhost:1", "origin: http://localhost:1"],
    &["host: localhost:1", "origin: https://localhost:1"],
    &[
        "host: localhost:1",
        "sec-fetch-site: same-origin",
        "origin: http://localhost:1",
    ],
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
    (
        &["host: localhost", "x-forwarded-for: 127.0.0.1"],
        "x-forwarded-for",
    ),
    (
        &["host: localhost", "X-Forwarded-Host: localhost"],
        "x-forwarded-host",
    ),
    (
        &["host: localhost", "x-forwarded-proto: http"],
        "x-forwarded-proto",
    ),
    (
        &["host: localhost", "Forwarded: for=127.0.0.1"],
        "forwarded",
    ),
    (&["host: localhost", "via: 1.1 proxy"], "via"),
    (&["host: localhost", "x-real-ip: 127.0.0.1"], "x-real-ip"),
    (&["host: localhost", "x-forwarded-for:"], "x-forwarded-for"),
];

/// Headers of requests of web pages, which may read and change nothing.
const PAGES: [&[&str]; 7] = [
    &["host: localhost", "origin: https://evil.example"],
    &["host: localhost", "origin: null"],
    &["host: localhost:1", "origin: http://localhost:2"],
    &[
        "host: localhost",
        "origin: http://localhost",
        "origin: http://evil.example",
    ],
    &["host: localhost", "sec-fetch-site: cross-site"],
    &["host: localhost", "sec-fetch-site: same-site"],
    &[
        "host: localhost",
        "sec-fetch-site: none",
        "sec-fetch-site: cross-site",
    ],
];

/// Asserts that a request is refused as one without a token. After some of them the answer is shorter.
async fn assert_refused(
    address: SocketAddr,
    method: &str,
    target: &str,
    headers: &[&str],
    reason: &str,
) {
    let (status, body) = ask(address, method, target, headers).await;
    let is_limited = status == 429 && body.contains("too many requests");
    assert!(
        is_limited || status == 401 && body.contains(reason),
        "{method} {headers:?}: {status} {body}"
    );
}

#[tokio::test]
async fn open_loopback_accepts_programs_on_this_machine() {
    for listen in ["127.0.0.1:0", "0.0.0.0:0"] {
        let open = || Rules {
            open_on_loopback: true,
            ..Rules::default()
        };
        let (address, access) = start(listen, open()).await;
        for headers in LOCAL {
            for (method, target) in [("GET", "/kill"), ("POST", "/kill/on"), ("POST", "/history")] {
                let answer = ask(address, method, target, headers).await;
                assert_eq!(
                    answer,
                    (200, AdminCaller::LOOPBACK.to_owned()),
                    "{listen} {headers:?}"
                );
            }
        }
        assert_eq!(refused(&access), []);
        for (headers, reason) in FOREIGN {
            // Each on its own port, because one source has few attempts.
            let (address, access) = start(listen, open()).await;
            assert_refused(address, "GET", "/kill", headers, reason).await;
            assert_refused(address, "POST", "/kill/on", headers, reason).await;
            assert_eq!(refused(&access), [("not_local", 2)], "{headers:?}");
        }
        let (address, _) = start(listen, open()).await;
        for headers in PAGES {
            assert_eq!(
                ask(address, "GET", "/kill", headers).await.0,
                200,
                "{listen} {headers:?}"
            );
            assert_refused(address, "POST", "/kill/on", headers, "another site").await;
        }
        // The target of a request in absolute form names the host as well.
        let local = ["host: localhost"];
        let (status, _) = ask(address, "POST", "http://evil.example/kill/on", &local).await;
        assert_eq!(status, 401);
        let (status, _) = ask(address, "POST", "http://localhost/kill/on", &local).await;
        assert_eq!(status, 200);
    }
}

#[tokio::test]
async fn commands_need_tokens_unless_loopback_is_open() {
    let (address, access) = start("127.0.0.1:0", Rules::default()).await;
    for (method, target) in [("GET", "/kill"), ("POST", "/kill/on")] {
        let (status, body) = ask(address, method, target, &["host: localhost"]).await;
        assert_eq!(status, 401);
        assert!(
            body.contains("--tokens") && body.contains("--admin-open-on-loopback"),
            "{body}"
        );
    }
    // A route of GET answers HEAD, too.
    let (other, refused_there) = start("127.0.0.1:0", Rules::default()).await;
    assert_eq!(
        ask(other, "HEAD", "/kill", &["host: localhost"]).await.0,
        401
    );
    assert_eq!(
        ask(other, "PUT", "/kill/on", &["host: localhost"]).await.0,
        405
    );
    assert_eq!(
        ask(other, "GET", "/kill/", &["host: localhost"]).await.0,
        404
    );
    assert_eq!(refused(&refused_there), [("closed", 1)]);
    assert_eq!(refused(&access), [("closed", 2)]);
    for target in ["/metrics", "/healthz", "/readyz"] {
        for headers in [
            &["host: localhost"][..],
            &["host: 10.0.0.7:7401"],
            &["via: 1.1 proxy"],
            &[],
        ] {
            assert_eq!(
                ask(address, "GET", target, headers).await.0,
                200,
                "{target} {headers:?}"
            );
        }
    }
}

#[tokio::test]
async fn token_gives_its_role_through_any_proxy() {
    let directory = tempfile::tempdir().unwrap();
    let rules = Rules {
        tokens: Some(tokens(directory.path())),
        open_on_loopback: true,
        ..Rules::default()
    };
    let (address, access) = start("0.0.0.0:0", rules).await;
    for (held, (role, number)) in ROLES.into_iter().enumerate() {
        let authorization = format!("authorization: Bearer {}", token(number));
        for other in [
            "host: localhost",
            "host: evil.example",
            "x-forwarded-for: 10.0.0.7",
        ] {
            let routes = [("GET", "/kill"), ("POST", "/kill/on"), ("POST", "/history")];
            for (needed, (method, target)) in routes.into_iter().enumerate() {
                let (status, body) = ask(address, method, target, &[other, &authorization]).await;
                if held >= needed {
                    assert_eq!((status, body), (200, format!("{role}-1")));
                } else {
                    assert_eq!(status, 403, "{role} {target}");
                    let names = [ROLES[needed].0, role, &format!("{role}-1")];
                    assert!(names.iter().all(|name| body.contains(name)), "{body}");
                }
            }
        }
    }
    assert_eq!(refused(&access), [("role", 9)]);
}

#[tokio::test]
async fn token_in_the_address_is_no_token() {
    let directory = tempfile::tempdir().unwrap();
    let (address, access) = start(
        "127.0.0.1:0",
        Rules {
            tokens: Some(tokens(directory.path())),
            ..Rules::default()
        },
    )
    .await;
    let target = format!("/kill?access_token={0}&token={0}", token(3));
    assert_eq!(
        ask(address, "GET", &target, &["host: localhost"]).await.0,
        401
    );
    let cookie = format!("cookie: authorization=Bearer {}", token(3));
    assert_eq!(
        ask(address, "GET", "/kill", &["host: localhost", &cookie])
            .await
            .0,
        401
    );
    assert_eq!(refused(&access), [("no_token", 2)]);
}

#[tokio::test]
async fn limited_attempts_never_block_valid_tokens() {
    let directory = tempfile::tempdir().unwrap();
    let (address, access) = start(
        "127.0.0.1:0",
        Rules {
            tokens: Some(tokens(directory.path())),
            ..Rules::default()
        },
    )
    .await;
    let wrong = format!("authorization: Bearer {}", token(9));
    let mut statuses = std::collections::BTreeMap::<u16, u32>::new();
    let mut limited = String::new();
    for _ in 0..100 {
        let (head, _) = exchange(address, "POST", "/kill/on", &[&wrong]).await;
        *statuses.entry(head[9..12].parse().unwrap()).or_default() += 1;
        if head.contains(" 429 ") {
            limited = head;
        }
    }
    assert_eq!(
        statuses.keys().copied().collect::<Vec<_>>(),
        [401, 429],
        "{statuses:?}"
    );
    assert!(limited.contains("retry-after: 1"), "{limited}");
    let counts: std::collections::BTreeMap<_, _> = refused(&access).into_iter().collect();
    assert_eq!(counts["unknown_token"] + counts["limited"], 100);
    let right = format!("authorization: Bearer {}", token(2));
    assert_eq!(
        ask(address, "POST", "/kill/on", &[&right]).await,
        (200, "operator-1".to_owned())
    );
}

#[tokio::test]
async fn metrics_can_require_a_token() {
    let directory = tempfile::tempdir().unwrap();
    let (tokens, metrics_need_token) = (Some(tokens(directory.path())), true);
    let (address, _) = start(
        "127.0.0.1:0",
        Rules {
            tokens,
            metrics_need_token,
            ..Rules::default()
        },
    )
    .await;
    assert_eq!(
        ask(address, "GET", "/metrics", &["host: localhost"])
            .await
            .0,
        401
    );
    let viewer = format!("authorization: Bearer {}", token(1));
    assert_eq!(
        ask(address, "GET", "/metrics", &[&viewer]).await,
        (200, String::new())
    );
    for target in ["/healthz", "/readyz"] {
        assert_eq!(ask(address, "GET", target, &[]).await.0, 200, "{target}");
    }
}
