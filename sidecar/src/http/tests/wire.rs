//! Requests over a connection: bodies that are too large or never arrive, and what keeps a
//! connection usable.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

struct Connection(TcpStream);

impl Connection {
    async fn open(port: &Port) -> Self {
        Self(TcpStream::connect(serve(port).await).await.unwrap())
    }

    async fn send(&mut self, bytes: &[u8]) {
        // The port may have answered and closed already.
        let _ = self.0.write_all(bytes).await;
    }

    async fn answer(&mut self) -> (u16, String, String) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.0.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head.split("content-length: ").nth(1).map_or(0, |rest| {
            rest.split("\r\n").next().unwrap().parse().unwrap()
        });
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head, String::from_utf8(body).unwrap())
    }
}

#[tokio::test]
async fn connection_continues_after_every_answer() {
    let port = Port::new();
    port.plane.limit("none", 0.0).unwrap();
    let mut connection = Connection::open(&port).await;
    let check = r#"{"bucket":"some"}"#;
    let post = |path: &str, body: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    for (request, status) in [
        (
            "GET /nginx HTTP/1.1\r\nhost: a\r\nx-plimsoll-bucket: some\r\n\r\n".to_owned(),
            204,
        ),
        (
            "GET /nginx HTTP/1.1\r\nhost: a\r\nx-plimsoll-bucket: none\r\n\r\n".to_owned(),
            403,
        ),
        (
            "GET /check HTTP/1.1\r\nhost: a\r\nx-plimsoll-bucket: none\r\n\r\n".to_owned(),
            429,
        ),
        (
            "GET /check HTTP/1.1\r\nhost: a\r\nx-plimsoll-bucket: some\r\n\r\n".to_owned(),
            200,
        ),
        (post("/v1/check", check), 200),
        (post("/v1/check", "{"), 400),
        (post("/v1/report", r#"{"bucket":"some","status":200}"#), 204),
        ("GET /v1/check HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(), 405),
        ("GET /other HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(), 404),
        (
            "GET /openapi.json HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(),
            200,
        ),
    ] {
        connection.send(request.as_bytes()).await;
        let (found, head, _) = connection.answer().await;
        assert_eq!(found, status, "{request}");
        assert!(!head.contains("connection: close"), "{head}");
        assert_eq!(head.contains("content-length"), status != 204, "{head}");
    }
}

#[tokio::test]
async fn request_has_exactly_one_host() {
    let port = Port::new();
    let mut connection = Connection::open(&port).await;
    for (path, version, hosts, status) in [
        ("/nginx", "1.1", "", 400),
        ("/check", "1.1", "host: a\r\nhost: a\r\n", 400),
        ("http://a/nginx", "1.1", "", 400),
        ("/other", "1.1", "", 400),
        ("/nginx", "1.1", "host: a\r\n", 204),
        ("/nginx", "1.0", "connection: keep-alive\r\n", 204),
        (
            "/nginx",
            "1.0",
            "connection: keep-alive\r\nhost: a\r\nhost: b\r\n",
            400,
        ),
    ] {
        let request =
            format!("GET {path} HTTP/{version}\r\n{hosts}x-plimsoll-bucket: some\r\n\r\n");
        connection.send(request.as_bytes()).await;
        assert_eq!(connection.answer().await.0, status, "{request}");
    }
    let expected = [
        ("check", "invalid", 1),
        ("nginx", "allowed", 2),
        ("nginx", "invalid", 3),
    ];
    assert_eq!(port.counts(), expected);
}

#[tokio::test]
async fn body_beyond_64_kib_is_refused() {
    let port = Port::new();
    let head = "POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n";
    let mut connection = Connection::open(&port).await;
    connection
        .send(format!("{head}content-length: {}\r\n\r\n", BODY_BYTES_MAX + 1).as_bytes())
        .await;
    let (status, _, body) = connection.answer().await;
    assert_eq!(status, 413, "{body}");
    assert!(body.contains("65536 bytes"), "{body}");

    let mut connection = Connection::open(&port).await;
    connection
        .send(format!("{head}transfer-encoding: chunked\r\n\r\n").as_bytes())
        .await;
    for _ in 0..9 {
        connection
            .send(format!("2000\r\n{}\r\n", " ".repeat(0x2000)).as_bytes())
            .await;
    }
    assert_eq!(connection.answer().await.0, 413);
    assert_eq!(port.counts(), [("v1_check", "invalid", 2)]);

    let mut connection = Connection::open(&port).await;
    let body = format!("{}{}", " ".repeat(BODY_BYTES_MAX - 14), r#"{"bucket":"b"}"#);
    connection
        .send(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes())
        .await;
    assert_eq!(connection.answer().await.0, 200, "a body of the full size");
}

/// A proxy may announce the body of the original request and never send it.
#[tokio::test]
async fn proxy_check_awaits_no_body() {
    let port = Port::new();
    for head in [
        "content-length: 1000000",
        "transfer-encoding: chunked",
        "expect: 100-continue\r\ncontent-length: 5",
    ] {
        for (path, status) in [("/check", 200), ("/nginx", 204)] {
            let mut connection = Connection::open(&port).await;
            let request = format!(
                "POST {path} HTTP/1.1\r\nhost: a\r\nx-plimsoll-bucket: some\r\n{head}\r\n\r\n"
            );
            connection.send(request.as_bytes()).await;
            assert_eq!(connection.answer().await.0, status, "{head}");
        }
    }
}

#[tokio::test]
async fn head_request_is_refused_by_its_status() {
    let port = Port::new();
    port.plane.limit("none", 0.0).unwrap();
    let mut connection = Connection::open(&port).await;
    connection
        .send(b"HEAD /nginx HTTP/1.1\r\nhost: a\r\nx-plimsoll-bucket: none\r\n\r\n")
        .await;
    assert_eq!(connection.answer().await.0, 403);
}
