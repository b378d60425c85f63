//! The life cycle of a feed with a real parent: every decision is reported before a shutdown ends.

use plimsoll_client::{FeedState, Limiter, Request};
use plimsoll_core::decision::Mode;
use plimsoll_core::directive::Epoch;

use crate::parent::{ALL, Aggregator};

const EACH: u64 = 2_000;

fn connected_to(aggregators: &[&Aggregator]) -> (Limiter, plimsoll_client::Feed) {
    let addresses: Vec<String> = aggregators
        .iter()
        .map(|aggregator| format!("http://{}", aggregator.address))
        .collect();
    Limiter::builder("shop")
        .aggregators(&addresses)
        .build_detached()
        .unwrap()
}

fn decide(limiter: &Limiter, bucket: &str) {
    // Requests while another thread enters their bucket are not tracked.
    limiter.bucket(bucket).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let tenant = format!("tenant-{thread}");
            scope.spawn(move || {
                (0..EACH).for_each(|_| _ = limiter.check(&Request::new(bucket, &tenant)))
            });
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn every_decision_before_a_shutdown_is_delivered() {
    for waits in [false, true] {
        let aggregator = Aggregator::start(|service| service).await;
        let (limiter, feed) = connected_to(&[&aggregator]);
        let feed = feed.spawn().unwrap();
        if waits {
            aggregator.applied(Epoch(1)).await;
        }
        decide(&limiter, "api");
        // Without the wait the stream is not open yet.
        assert_eq!(feed.shutdown().await.unreported, 0, "waits {waits}");
        assert_eq!(aggregator.offered(), 4 * EACH);
        assert_eq!(limiter.health().feed, Some(FeedState::Stopped));
        assert!(limiter.check(&Request::new("api", "late")).is_admit());
        assert_eq!(limiter.status().unreported, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dns_name_leads_to_its_aggregator() {
    let aggregator = Aggregator::start(|service| service).await;
    let name = format!("dns://localhost:{}", aggregator.address.port());
    let (_limiter, feed) = Limiter::builder("shop")
        .aggregator(&name)
        .build_detached()
        .unwrap();
    let feed = feed.spawn().unwrap();
    aggregator.applied(Epoch(1)).await;
    feed.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn feed_whose_handle_is_dropped_goes_on() {
    let aggregator = Aggregator::start(|service| service).await;
    let (limiter, feed) = connected_to(&[&aggregator]);
    limiter.bucket("api").unwrap();
    drop(feed.spawn().unwrap());
    aggregator
        .direct("api", Mode::Enforce, &[("default", ALL)])
        .await;
    assert!(!limiter.check(&Request::new("api", "acme")).is_admit());
    let status = limiter.status();
    assert_eq!(
        (status.connected, status.feed, status.problems),
        (1, Some(FeedState::Running), vec![])
    );
    let api = &status.buckets["api"];
    assert_eq!(
        (api.mode, api.limit_rps, api.nearest.as_deref()),
        ("enforce", Some(100.0), None)
    );
}
