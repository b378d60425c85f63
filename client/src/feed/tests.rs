//! Tests of a feed: its guards without an aggregator, its life cycle, and the problems of a feed that does not run.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_core::decision::Mode;
use plimsoll_core::directive::{BucketDirective, Directives, Epoch, KeyDirective, Terms, Values};
use plimsoll_core::exchange::Child;
use plimsoll_core::names::{Bucket, Tenant};
use plimsoll_core::quantity::{Limit, Rate};
use tokio_util::sync::CancellationToken;

use super::{Feed, FeedError, FeedState, Flushed};
use crate::{Limiter, Request, SetupProblem};

#[tokio::test(start_paused = true)]
async fn guards_refill_without_an_aggregator() {
    let (limiter, feed) = unreachable();
    let key = limiter.bucket("api").unwrap().key("acme");
    let rate = |per_second| Rate::new(per_second).unwrap();
    let limit = Limit::PerSecond(rate(100.0));
    let directive = BucketDirective {
        bucket: Bucket::new("api").unwrap(),
        whole: true,
        terms: Terms {
            limit,
            mode: Mode::Enforce,
            clients: Some(1),
            ..Terms::default()
        },
        keys: vec![KeyDirective {
            tenant: Tenant::default_class(),
            values: Values {
                guard: Some(rate(1_000.0)),
                ..Values::default()
            },
        }],
    };
    let message = Directives {
        lead: Epoch(1).into(),
        seq: 1,
        buckets: vec![directive],
        ..Directives::default()
    };
    feed.control.subscription.with(|subscription, now| {
        subscription.report(now);
        subscription.on_directives(now, message).unwrap();
    });
    let drain = || {
        (0..1_000_000)
            .position(|_| !key.check().is_admit())
            .unwrap()
    };
    assert!(drain() > 3);
    assert_eq!(drain(), 0);
    let running = feed.spawn().unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(drain() > 3);
    running.shutdown().await;
}

// === Life cycle ===

#[derive(Clone, Debug, Default)]
struct Warnings(Arc<Mutex<Vec<u8>>>);

impl Warnings {
    fn collect() -> (Self, tracing::subscriber::DefaultGuard) {
        let warnings = Self::default();
        let writer = warnings.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing::Level::WARN)
            .with_writer(move || writer.clone())
            .finish();
        (warnings, tracing::subscriber::set_default(subscriber))
    }

    fn with(&self, words: &[&str]) -> usize {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines()
            .filter(|line| words.iter().all(|word| line.contains(word)))
            .count()
    }
}

impl Write for Warnings {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Makes a limiter whose aggregator is a port that no process listens on.
fn unreachable() -> (Limiter, Feed) {
    let builder = Limiter::builder("shop").aggregator("http://127.0.0.1:9");
    builder.build_detached().unwrap()
}

fn decide(limiter: &Limiter, requests: u64) {
    (0..requests).for_each(|_| assert!(limiter.check(&Request::new("api", "acme")).is_admit()));
}

#[track_caller]
fn assert_sound(limiter: &Limiter, state: FeedState) {
    assert_eq!(limiter.setup_problems(), []);
    assert_eq!(limiter.health().feed, Some(state));
}

fn current_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn unrun_feed_warns_once_when_dropped() {
    let (warnings, _guard) = Warnings::collect();
    let (limiter, feed) = unreachable();
    decide(&limiter, 3);
    assert_sound(&limiter, FeedState::NotRun);
    drop(feed);
    decide(&limiter, 4);
    assert_eq!(limiter.setup_problems(), [SetupProblem::FeedNotRun]);
    assert_eq!(warnings.with(&["feed", "Feed of", "unreported=3"]), 1);
    assert_eq!(warnings.with(&["WARN"]), 1);
}

#[test]
fn dropped_feed_warns_only_of_lost_decisions() {
    let (warnings, _guard) = Warnings::collect();
    let (limiter, feed) = unreachable();
    drop((limiter, feed));
    assert_eq!(warnings.with(&["WARN"]), 0);
    let (limiter, feed) = unreachable();
    decide(&limiter, 3);
    drop((limiter, feed));
    assert_eq!(warnings.with(&["WARN", "Feed of", "unreported=3"]), 1);
}

#[test]
fn ended_runtime_stops_the_feed_with_warning() {
    let (warnings, _guard) = Warnings::collect();
    let (limiter, feed) = unreachable();
    let runtime = current_thread();
    let handle = runtime.block_on(async { feed.spawn() }).unwrap();
    decide(&limiter, 5);
    assert_sound(&limiter, FeedState::Running);
    drop(runtime);
    assert_eq!(limiter.setup_problems(), [SetupProblem::FeedStopped]);
    assert_eq!(limiter.health().feed, Some(FeedState::Stopped));
    assert_eq!(
        warnings.with(&["WARN", "feed", "FeedHandle::shutdown", "unreported=5"]),
        1
    );
    drop(handle);
    assert_eq!(warnings.with(&["WARN"]), 1, "the end was logged already");
}

#[test]
fn dropped_handle_leaves_the_feed_running() {
    let (warnings, _guard) = Warnings::collect();
    let (limiter, feed) = unreachable();
    let runtime = current_thread();
    runtime.block_on(async {
        let handle = feed.spawn().unwrap();
        decide(&limiter, 6);
        drop(handle);
        tokio::task::yield_now().await;
    });
    assert_sound(&limiter, FeedState::Running);
    assert_eq!(
        warnings.with(&["WARN", "FeedHandle::shutdown", "unreported=6"]),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_returns_unreported_decisions() {
    let (limiter, feed) = unreachable();
    let handle = feed.spawn().unwrap();
    decide(&limiter, 7);
    assert_eq!(handle.shutdown().await, Flushed { unreported: 7 });
    assert_sound(&limiter, FeedState::Stopped);

    let (alone, feed) = Limiter::builder("shop").build_detached().unwrap();
    let handle = feed.spawn().unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    decide(&alone, 7);
    assert_eq!(
        handle.shutdown().await,
        Flushed { unreported: 7 },
        "a feed without an aggregator ends at once"
    );
}

#[tokio::test(start_paused = true)]
async fn unrun_feed_becomes_a_problem_when_deciding() {
    let (warnings, _guard) = Warnings::collect();
    let (limiter, feed) = unreachable();
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(limiter.setup_problems(), [], "no request was decided");
    decide(&limiter, 1);
    assert_eq!(limiter.setup_problems(), [SetupProblem::FeedNotRun]);
    assert_eq!(warnings.with(&["WARN", "Feed of"]), 1);
    let handle = feed.spawn().unwrap();
    assert_eq!(limiter.setup_problems(), []);
    handle.shutdown().await;
}

#[test]
fn feed_needs_a_runtime_to_spawn() {
    let (_limiter, feed) = unreachable();
    let error = feed.spawn().unwrap_err();
    assert!(
        matches!(error, FeedError::NoRuntime) && error.to_string().contains("tokio"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn one_instance_runs_no_two_feeds() {
    let named = || {
        let builder = Limiter::builder("twice").name("host:1");
        builder
            .aggregator("http://127.0.0.1:9")
            .build_detached()
            .unwrap()
            .1
    };
    let first = named().spawn().unwrap();
    let refused = named().spawn().unwrap_err();
    assert!(
        matches!(refused, FeedError::AlreadyRunning { .. }),
        "{refused}"
    );
    for word in ["host:1", "twice", "LimiterBuilder::name"] {
        assert!(refused.to_string().contains(word), "{refused}");
    }
    assert!(named().run(CancellationToken::new()).await.is_err());
    first.shutdown().await;
    let next = named().spawn().unwrap();
    next.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn mute_server_is_named() {
    // Never accepted by this process: the system completes the connections, and no byte returns.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = mute.local_addr().unwrap().to_string();
    let builder = Limiter::builder("shop").aggregator(&format!("http://{address}"));
    let (limiter, feed) = builder.build_detached().unwrap();
    let handle = feed.spawn().unwrap();
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if limiter.setup_problems().len() > 1 {
            break;
        }
    }
    let problems = limiter.setup_problems();
    let kinds: Vec<_> = problems.iter().map(SetupProblem::kind).collect();
    assert_eq!(kinds, ["never_connected", "silent_aggregator"]);
    assert_eq!(problems[1], SetupProblem::SilentAggregator { address });
    handle.shutdown().await;
}

#[test]
fn missing_aggregators_are_an_immediate_problem() {
    let (warnings, _guard) = Warnings::collect();
    let (limiter, feed) = Limiter::builder("shop").build_detached().unwrap();
    // Nor is it a problem that such a feed was not run.
    drop(feed);
    assert_eq!(limiter.setup_problems(), [SetupProblem::NoAggregator]);
    assert_eq!(warnings.with(&["WARN", "PLIMSOLL_AGGREGATOR"]), 1);
    let none: [&str; 0] = [];
    let builder = Limiter::builder("shop").aggregators(&none);
    let error = builder.build_detached().unwrap_err();
    assert!(error.to_string().contains("empty list"), "{error}");
}
