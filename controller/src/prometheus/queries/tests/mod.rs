//! Servers that are dead, slow, lying, and one that is real.

mod real;

use super::*;
use plimsoll_policy::{Bounds, Source};
use plimsoll_core::quantity::Rate;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use real::RealPrometheus;

const GOOD: &str =
    r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"700"]}]}}"#;

/// A server that sends these bytes to whoever asks, and what it was asked.
async fn serving(answer: Vec<u8>, stay: bool) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 4_096];
        let read = stream.read(&mut request).await.unwrap();
        // Whoever has heard enough may have gone away.
        let _ = stream.write_all(&answer).await;
        if stay {
            std::future::pending::<()>().await;
        }
        String::from_utf8_lossy(&request[..read]).into_owned()
    });
    (url, asked)
}

fn http(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Asks for a limit.
async fn ask_rate(client: &HttpClient, url: &str, query: &str) -> Result<Rate, QueryError> {
    Ok(answer::rate(&ask(client, url, query).await?)?)
}

#[tokio::test]
async fn a_query_is_asked_as_it_is_written() {
    let (url, asked) = serving(http("200 OK", GOOD), false).await;
    let rate = ask_rate(&client(), &format!("{url}/"), r#"sum(rate(x{a="ü&b=c"}[5m])) + 1"#).await.unwrap();
    assert_eq!(rate.per_second(), 700.0);
    let asked = asked.await.unwrap();
    let expected = "GET /api/v1/query?query=sum%28rate%28x%7Ba%3D%22%C3%BC%26b%3Dc%22%7D%5B5m%5D%29%29%20%2B%201 HTTP/1.1";
    assert_eq!(asked.lines().next(), Some(expected));
}

#[tokio::test]
async fn a_server_that_lies_is_not_believed() {
    let refused = r#"{"status":"error","errorType":"bad_data","error":"1:4: parse error: unclosed"}"#;
    let endless = format!("{GOOD}{}", " ".repeat(BYTES_MAX));
    for (answer, why) in [
        (http("400 Bad Request", refused), "unclosed"),
        (http("500 Internal Server Error", GOOD), "status 500"),
        (http("302 Found", ""), "status 302"),
        (http("200 OK", "<html>hello</html>"), "not an answer of a Prometheus"),
        (http("200 OK", &endless), "longer than"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{".to_vec(), "reached"),
        (b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), "reached"),
        (Vec::new(), "reached"),
    ] {
        let (url, _asked) = serving(answer.clone(), false).await;
        let error = ask(&client(), &url, "up").await.unwrap_err().to_string();
        assert!(error.contains(why), "{:?}: {error}", String::from_utf8_lossy(&answer));
    }
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = ask(&client(), &format!("http://{free}"), "up").await.unwrap_err();
    assert!(matches!(error, QueryError::Unreachable(_)), "{error}");
    for (url, why) in [("https://p", "https is not built"), ("http://a b", "no URL")] {
        let error = ask(&client(), url, "up").await.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_slow_is_not_waited_for() {
    for answer in [Vec::new(), b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".to_vec()] {
        let (url, _asked) = serving(answer, true).await;
        let error = ask(&client(), &url, "up").await.unwrap_err();
        assert!(matches!(error, QueryError::Slow), "{error}");
    }
}

fn policy(text: &str) -> Policy {
    let tenants = Source { name: "tenants.yaml", text: plimsoll_policy::ONE_CLASS_TENANTS };
    Policy::read(Source { name: "policy.yaml", text }, tenants).unwrap().0
}

#[test]
fn each_question_is_asked_once_whatever_its_answer_is_for() {
    let policy = policy(
        "buckets:\n  a: { limit: { prometheus: { url: http://p, query: one, max: 5 } } }\n  \
         b: { limit: { prometheus: { url: http://p, query: one, max: 9 } }, rollout: { queries: [] } }\n  \
         \"c/*\": { limit: 1 }\nrollout:\n  queries:\n    - { name: x, url: http://p, query: one, max: 1 }\n    \
         - { name: y, url: http://q, query: one, min: 1 }\n",
    );
    let asked: Vec<(String, bool, bool)> = questions(&policy)
        .into_iter()
        .map(|(question, purpose)| (question.url, purpose.limit.is_some(), purpose.gate))
        .collect();
    assert_eq!(asked, [("http://p".to_owned(), true, true), ("http://q".to_owned(), false, true)]);
}

#[test]
fn limits_are_asked_for_first_and_then_who_has_waited_longest() {
    let limit = Prometheus { url: String::new(), query: String::new(), bounds: Bounds::default() };
    let question = |query: &str| Question { url: "http://p".to_owned(), query: query.to_owned() };
    let asked = |at: Option<u64>, limit: Option<&Prometheus>| Asked {
        at: at.map(|at| MonoTime::from_elapsed(Duration::from_secs(at))),
        purpose: Purpose { limit: limit.cloned(), gate: true },
        ..Asked::default()
    };
    let mut all = BTreeMap::from([
        (question("a"), asked(Some(40), None)),
        (question("b"), asked(Some(71), None)),
        (question("c"), asked(Some(30), None)),
        (question("d"), asked(None, None)),
        (question("e"), asked(Some(60), Some(&limit))),
        (question("f"), Asked { under_way: true, ..asked(Some(0), None) }),
    ]);
    let now = MonoTime::from_elapsed(Duration::from_secs(100));
    let due = due(&mut all, now, Duration::from_secs(30));
    let queries: Vec<&str> = due.into_iter().map(|(question, _)| question.query.as_str()).collect();
    assert_eq!(queries, ["e", "d", "c", "a"]);
}

#[tokio::test]
async fn a_real_server_answers() {
    let Some(mut real) = RealPrometheus::start("prometheus::queries::a_real_server_answers", None) else { return };
    let url = real.url();
    let client = client();
    let end = std::time::Instant::now() + Duration::from_secs(60);
    // Until it has scraped itself once.
    let counted = "sum(prometheus_http_requests_total) * 0 + 700";
    while let Err(error) = ask_rate(&client, &url, counted).await {
        assert!(std::time::Instant::now() < end, "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let number = |query: &'static str| {
        let (client, url) = (client.clone(), url.clone());
        async move {
            ask_rate(&client, &url, query).await.map(Rate::per_second).map_err(|error| error.to_string())
        }
    };
    assert_eq!(number("sum(prometheus_http_requests_total) * 0 + 700").await, Ok(700.0));
    assert_eq!(number("scalar(vector(12.5))").await, Ok(12.5));
    assert_eq!(number("1e3").await, Ok(1000.0));
    for (query, why) in [
        ("absent_metric_of_nobody", "no series"),
        (
            "label_replace(vector(1), \"a\", \"b\", \"\", \"\") or vector(2)",
            "2 series, and it takes one number",
        ),
        ("vector(1) / vector(0) * 0", "NaN"),
        ("vector(1) / vector(0)", "+Inf"),
        ("vector(-1)", "-1"),
        ("\"many\"", "a string"),
        ("up[5m]", "a matrix"),
        ("sum(", "parse error"),
    ] {
        let error = number(query).await.unwrap_err();
        assert!(error.contains(why), "{query}: {error}");
    }
    real.stop();
    let error = number("1").await.unwrap_err();
    assert!(error.contains("cannot be reached"), "{error}");
    real.start_again();
    while number("1").await.is_err() {
        assert!(std::time::Instant::now() < end, "it does not answer again");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
