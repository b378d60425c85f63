//! curl retries after the time that a refusal names.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_client::Reason;
use plimsoll_client::Request;
use plimsoll_client::middleware::PlimsollLayer;
use plimsoll_client::testing::ControlPlane;

use super::{python, serve};

/// Serves requests of which the first is refused.
async fn refusing_once() -> (SocketAddr, Arc<AtomicUsize>) {
    let plane = ControlPlane::new(7);
    plane.refuse("first", Reason::ClusterOverload).unwrap();
    let limiter = plane.limiter();
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&requests);
    let layer = PlimsollLayer::by(&limiter, move |_| {
        let bucket = if counter.fetch_add(1, Ordering::Relaxed) == 0 { "first" } else { "others" };
        Some(Request::new(bucket, "acme"))
    });
    (serve(layer).await, requests)
}

/// Returns the first whole number after a text.
fn number_after(text: &str, before: &str) -> Option<u64> {
    let rest = text.split_once(before)?.1.trim_start();
    rest.split(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn curl_retries_after_the_given_time() {
    let (address, requests) = refusing_once().await;
    let run = move || {
        let mut curl = Command::new("curl");
        curl.args(["--no-progress-meter", "--verbose", "--retry", "1", "--noproxy", "*"]);
        curl.arg(format!("http://{address}/orders/7")).output()
    };
    let output = match tokio::task::spawn_blocking(run).await.unwrap() {
        Ok(output) => output,
        Err(missing) => {
            return python::note_skipped(&format!("contract::curl: {missing}; install the package `curl`"));
        }
    };
    let trace = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{trace}");
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("served"), "{trace}");
    assert_eq!(requests.load(Ordering::Relaxed), 2);
    let given = number_after(&trace, "< retry-after:");
    // Without the header, curl would retry after 1 s.
    assert!(given.is_some_and(|seconds| seconds > 1), "{trace}");
    assert_eq!(number_after(&trace, "Will retry in"), given, "{trace}");
}
