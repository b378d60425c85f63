//! Bodies that are too large or too slow, connections that send nothing, and too many of them.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::*;

#[tokio::test]
async fn oversized_body_is_refused_without_closing() {
    let echo = Echo::start(Protection::Plain).await;
    let mut second = echo.connect2().await;
    for (length, status) in [
        (BODY_BYTES_MAX, StatusCode::OK),
        (BODY_BYTES_MAX + 1, StatusCode::PAYLOAD_TOO_LARGE),
        (1 << 20, StatusCode::PAYLOAD_TOO_LARGE),
        (0, StatusCode::OK),
    ] {
        let body = || Full::new(Bytes::from(vec![b'x'; length]));
        let response = second.send_request(post(body())).await.unwrap();
        assert_eq!(response.status(), status, "{length}");
        let mut first = echo.connect1().await;
        let response = first.send_request(post(body())).await.unwrap();
        assert_eq!(response.status(), status, "{length}");
    }
}

#[tokio::test]
async fn chunked_body_is_read_within_bounds() {
    let echo = Echo::start(Protection::Plain).await;
    let mut second = echo.connect2().await;
    let (body, sender) = slow();
    let answer = tokio::spawn(second.send_request(post(body)));
    for piece in ["a", "", "bc", "def"] {
        sender.send(frame(piece)).await.unwrap();
    }
    drop(sender);
    assert_eq!(text(answer.await.unwrap().unwrap()).await, "abcdef");
    second.ready().await.unwrap();
    let (body, sender) = slow();
    let answer = tokio::spawn(second.send_request(post(body)));
    for _ in 0..3 {
        let piece = Frame::data(Bytes::from(vec![b'x'; BODY_BYTES_MAX / 2]));
        // Fails once the port has refused the body.
        let _ = sender.send(Ok(piece)).await;
    }
    assert_eq!(
        answer.await.unwrap().unwrap().status(),
        StatusCode::PAYLOAD_TOO_LARGE
    );
}

#[tokio::test(start_paused = true)]
async fn endless_body_is_abandoned() {
    let echo = Echo::start(Protection::Plain).await;
    let mut second = echo.connect2().await;
    let (body, sender) = slow();
    sender.send(frame("begun")).await.unwrap();
    let began = Instant::now();
    let response = second.send_request(post(body)).await.unwrap();
    assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
    assert!(
        began.elapsed() >= Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn connection_without_a_request_is_closed() {
    let echo = Echo::start(Protection::Plain).await;
    for (port, sent) in [
        (echo.http1, &b""[..]),
        (echo.http1, b"GET / HT"),
        (echo.http2, b""),
        (echo.http2, b"PRI * HTTP/2.0\r\n"),
        (
            echo.http2,
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        ),
    ] {
        let mut stream = TcpStream::connect(port).await.unwrap();
        stream.write_all(sent).await.unwrap();
        // End of the connection, or its reset.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    until(|| echo.connections.counts().pending == 0).await;
}

#[tokio::test]
async fn excess_connections_of_an_address_close() {
    let echo = Echo::with(Protection::Plain, Connections::fair(4), None).await;
    let mut two = [echo.connect1().await, echo.connect1().await];
    for sender in &mut two {
        assert_eq!(
            text(sender.send_request(post(full("held"))).await.unwrap()).await,
            "held"
        );
    }
    let mut third = TcpStream::connect(echo.http2).await.unwrap();
    let _ = third.read_to_end(&mut Vec::new()).await;
    assert_eq!(echo.connections.counts().refused, 1);
    drop(two);
    until(|| echo.connections.counts().pending == 0).await;
    let mut next = echo.connect1().await;
    assert_eq!(
        text(next.send_request(post(full("next"))).await.unwrap()).await,
        "next"
    );
}

/// A proxy takes a connection that closes without an answer for a failure of the sidecar. After
/// some of them it sends no requests for a while, for any caller.
#[tokio::test]
async fn malformed_or_oversized_head_is_answered() {
    let echo = Echo::start(Protection::Plain).await;
    let large = format!("x: {}\r\n", "a".repeat(300_000));
    let many = "x: a\r\n".repeat(200);
    for (fields, status) in [
        ("origin: \u{1}\r\n", 400),
        (&*large, 431),
        (&*many, 431),
        ("content-length: 1, 2\r\n", 400),
    ] {
        let mut stream = TcpStream::connect(echo.http1).await.unwrap();
        let head = format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}\r\n");
        // Fails if the port has closed the connection already.
        let _ = stream.write_all(head.as_bytes()).await;
        let mut line = [0; 12];
        stream.read_exact(&mut line).await.unwrap();
        assert_eq!(line, *format!("HTTP/1.1 {status}").as_bytes());
    }
}

#[tokio::test]
async fn endless_heads_leave_room_for_others() {
    const PEERS: usize = 400;
    let echo = Echo::with(Protection::Plain, Connections::fair(4 * PEERS), None).await;
    let mut peers = Vec::new();
    let mut send = async |bytes| {
        let half = format!("GET / HTTP/1.1\r\nx: {}", "a".repeat(bytes));
        let mut peer = TcpStream::connect(echo.http1).await.unwrap();
        peer.write_all(half.as_bytes()).await.unwrap();
        peers.push(peer);
    };
    for _ in 0..PEERS {
        send(60_000).await;
    }
    // All heads would take more than the room.
    until(|| echo.connections.counts().pending < PEERS * 2 / 3).await;
    for _ in 0..PEERS / 2 {
        send(8_000).await;
    }
    let mut other = echo.connect1().await;
    assert_eq!(
        text(other.send_request(post(full("other"))).await.unwrap()).await,
        "other"
    );
}

/// Otherwise peers could fill the memory with the beginnings of bodies that are not too large.
#[tokio::test]
async fn requests_in_progress_leave_room_to_others() {
    let echo = Echo::start(Protection::Plain).await;
    let mut bodies = Vec::new();
    let mut answers = FuturesUnordered::new();
    for _ in 0..8 {
        let mut second = echo.connect2().await;
        for _ in 0..250 {
            let (body, sender) = slow();
            sender
                .send(Ok(Frame::data(Bytes::from(vec![b'x'; BODY_BYTES_MAX]))))
                .await
                .unwrap();
            second.ready().await.unwrap();
            answers.push(second.send_request(post(body)));
            bodies.push(sender);
        }
    }
    // Requests beyond the bound are answered immediately, and the others once their bodies end.
    let refused = answers.next().await.unwrap().unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    for mut other in [echo.connect2().await, echo.connect2().await] {
        assert_eq!(
            text(other.send_request(post(full("other"))).await.unwrap()).await,
            "other"
        );
    }
    assert_eq!(
        text(
            echo.connect1()
                .await
                .send_request(post(full("other")))
                .await
                .unwrap()
        )
        .await,
        "other"
    );
    assert!(
        echo.most.load(Ordering::Relaxed) < ROOM_BYTES / (8 * 1024) + 250,
        "{:?}",
        echo.most
    );
    drop(bodies);
    let mut answered = 0;
    while let Some(answer) = answers.next().await {
        answered += usize::from(answer.unwrap().status() == StatusCode::OK);
    }
    assert!((400..1_024).contains(&answered), "{answered}");
}
