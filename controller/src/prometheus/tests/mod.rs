//! Queries to servers that are down, slow or wrong, and over TLS.

mod tls;

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::quantity::{MonoTime, Rate};
use plimsoll_policy::{Bounds, Prometheus};
use reqwest::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::query_task::{Progress, Purpose, Query, due, queries_of};
use super::{BYTES_MAX, QueryError, answer, client, query};
use crate::brain::tests::policy;

const GOOD: &str = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"700"]}]}}"#;

/// Starts a server that sends these bytes to its first client. Returns its URL and the request it will have
/// received.
async fn serving(answer: Vec<u8>, stay: bool) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let request = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 4_096];
        let read = stream.read(&mut request).await.unwrap();
        // The client may have closed the connection already.
        let _ = stream.write_all(&answer).await;
        if stay {
            std::future::pending::<()>().await;
        }
        String::from_utf8_lossy(&request[..read]).into_owned()
    });
    (url, request)
}

fn http(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

async fn limit(client: &Client, url: &str, text: &str) -> Result<Rate, QueryError> {
    Ok(answer::rate(&query(client, url, text).await?)?)
}

#[tokio::test]
async fn query_is_sent_encoded() {
    let (url, request) = serving(http("200 OK", GOOD), false).await;
    let rate = limit(
        &client().unwrap(),
        &format!("{url}/"),
        r#"sum(rate(x{a="ü&b=c"}[5m])) + 1"#,
    )
    .await
    .unwrap();
    assert_eq!(rate.per_second(), 700.0);
    let request = request.await.unwrap();
    let expected = "GET /api/v1/query?query=sum%28rate%28x%7Ba%3D%22%C3%BC%26b%3Dc%22%7D%5B5m%5D%29%29+%2B+1 HTTP/1.1";
    assert_eq!(request.lines().next(), Some(expected));
}

#[tokio::test]
async fn wrong_answers_are_errors() {
    let refused =
        r#"{"status":"error","errorType":"bad_data","error":"1:4: parse error: unclosed"}"#;
    let endless = format!("{GOOD}{}", " ".repeat(BYTES_MAX));
    for (answer, why) in [
        (http("400 Bad Request", refused), "unclosed"),
        (http("500 Internal Server Error", GOOD), "status 500"),
        (http("302 Found", ""), "status 302"),
        (
            http("200 OK", "<html>hello</html>"),
            "not an answer of a Prometheus",
        ),
        (http("200 OK", &endless), "longer than"),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{".to_vec(),
            "reached",
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), "reached"),
        (Vec::new(), "reached"),
    ] {
        let (url, _request) = serving(answer.clone(), false).await;
        let error = query(&client().unwrap(), &url, "up")
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(why),
            "{:?}: {error}",
            String::from_utf8_lossy(&answer)
        );
    }
    let free = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let error = query(&client().unwrap(), &format!("http://{free}"), "up")
        .await
        .unwrap_err();
    assert!(matches!(error, QueryError::Unreachable(_)), "{error}");
    for (url, why) in [("https://127.0.0.1:1", "reached"), ("http://a b", "no URL")] {
        let error = query(&client().unwrap(), url, "up")
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn slow_answer_times_out() {
    for answer in [
        Vec::new(),
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".to_vec(),
    ] {
        let (url, _request) = serving(answer, true).await;
        let error = query(&client().unwrap(), &url, "up").await.unwrap_err();
        assert!(matches!(error, QueryError::Timeout), "{error}");
    }
}

#[test]
fn shared_query_is_sent_once() {
    let policy = policy(
        "buckets:\n  a: { limit: { prometheus: { url: http://p, query: one, max: 5 } } }\n  \
         b: { limit: { prometheus: { url: http://p, query: one, max: 9 } }, rollout: { queries: [] } }\n  \
         \"c/*\": { limit: 1 }\nrollout:\n  queries:\n    - { name: x, url: http://p, query: one, max: 1 }\n    \
         - { name: y, url: http://q, query: one, min: 1 }\n",
    );
    let queries: Vec<(String, bool, bool)> = queries_of(&policy)
        .into_iter()
        .map(|(query, purpose)| (query.url, purpose.limit.is_some(), purpose.gate))
        .collect();
    assert_eq!(
        queries,
        [
            ("http://p".to_owned(), true, true),
            ("http://q".to_owned(), false, true)
        ]
    );
}

#[test]
fn limits_are_queried_before_gates() {
    let limit = Prometheus {
        url: String::new(),
        query: String::new(),
        bounds: Bounds::default(),
    };
    let named = |query: &str| Query {
        url: "http://p".to_owned(),
        query: query.to_owned(),
    };
    let sent = |at: Option<u64>, limit: Option<&Prometheus>| Progress {
        sent_at: at.map(|at| MonoTime::from_elapsed(Duration::from_secs(at))),
        purpose: Purpose {
            limit: limit.cloned(),
            gate: true,
        },
        ..Progress::default()
    };
    let mut all = BTreeMap::from([
        (named("a"), sent(Some(40), None)),
        (named("b"), sent(Some(71), None)),
        (named("c"), sent(Some(30), None)),
        (named("d"), sent(None, None)),
        (named("e"), sent(Some(60), Some(&limit))),
        (
            named("f"),
            Progress {
                in_flight: true,
                ..sent(Some(0), None)
            },
        ),
    ]);
    let now = MonoTime::from_elapsed(Duration::from_secs(100));
    let due = due(&mut all, now, Duration::from_secs(30));
    let queries: Vec<&str> = due
        .into_iter()
        .map(|(query, _)| query.query.as_str())
        .collect();
    assert_eq!(queries, ["e", "d", "c", "a"]);
}
