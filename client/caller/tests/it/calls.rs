//! Calls to services that answer as a test says, on a clock that waits for nothing.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use plimsoll_caller::{ATTEMPT, CallError, Caller, CallerLayer};
use proptest::prelude::*;
use tokio::time::{Instant, sleep};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tower::{BoxError, Layer, Service, service_fn};

type Seen = Arc<Mutex<Vec<(Instant, HeaderMap)>>>;

/// What is known of [`refusing`].
trait Refusing<B>:
    Clone + Send + Service<Request<B>, Response = Response<()>, Error = Infallible, Future: Send>
{
}
impl<B, S> Refusing<B> for S where
    S: Clone
        + Send
        + Service<Request<B>, Response = Response<()>, Error = Infallible, Future: Send>
{
}

/// A service that notes when requests arrive, and refuses all after a time.
fn refusing<B: Send + 'static>(
    layer: CallerLayer,
    retry_after: &'static str,
    takes: Duration,
) -> (Caller<impl Refusing<B>>, Seen) {
    let seen = Seen::default();
    let log = Arc::clone(&seen);
    let service = service_fn(move |request: Request<B>| {
        log.lock()
            .unwrap()
            .push((Instant::now(), request.headers().clone()));
        async move {
            sleep(takes).await;
            let mut response = Response::new(());
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            response
                .headers_mut()
                .insert(RETRY_AFTER, retry_after.parse().unwrap());
            Ok(response)
        }
    });
    (layer.layer(service), seen)
}

#[tokio::test(start_paused = true)]
async fn attempts_are_marked_and_spread() {
    let (caller, seen) = refusing(CallerLayer::default(), "2", Duration::ZERO);
    let mut request = Request::new(Full::<Bytes>::default());
    request
        .headers_mut()
        .insert("content-type", "application/grpc".parse().unwrap());
    caller.send(request).await.unwrap();
    let seen = seen.lock().unwrap();
    let marks = |name| {
        seen.iter()
            .map(|(_, headers)| {
                headers
                    .get(name)
                    .map(|value| value.to_str().unwrap().to_owned())
            })
            .collect::<Vec<_>>()
    };
    let number = |number: u32| Some(number.to_string());
    assert_eq!(marks(ATTEMPT), [None, number(2), number(3), number(4)]);
    assert_eq!(
        marks("grpc-previous-rpc-attempts"),
        [None, number(1), number(2), number(3)]
    );
    for pair in seen.windows(2) {
        let wait = pair[1].0 - pair[0].0;
        assert!((2_000..=4_001).contains(&wait.as_millis()), "{wait:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn budget_limits_all_retries_together() {
    let (caller, seen) = refusing(CallerLayer::default().budget(0.1, 0), "1", Duration::ZERO);
    let calls: Vec<_> = (0..10_000_u64)
        .map(|call| {
            let caller = caller.clone();
            tokio::spawn(async move {
                sleep(Duration::from_millis(call * 10)).await;
                caller
                    .send(Request::new(Full::<Bytes>::default()))
                    .await
                    .unwrap();
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    let attempts = seen.lock().unwrap().len();
    assert!((10_900..=11_000).contains(&attempts), "{attempts}");
}

#[tokio::test(start_paused = true)]
async fn deadline_of_the_request_counts() {
    // The third attempt of three seconds may begin at their very end.
    let takes_100_ms = Duration::from_millis(100);
    for (timeout, takes, is_passed, attempts) in [
        ("10m", takes_100_ms, true, 1),
        ("900m", takes_100_ms, false, 1),
        ("3S", Duration::ZERO, false, 3),
        ("bad", takes_100_ms, false, 4),
    ] {
        let (caller, seen) = refusing(CallerLayer::default(), "1", takes);
        let mut request = Request::new(Full::<Bytes>::default());
        request
            .headers_mut()
            .insert("grpc-timeout", timeout.parse().unwrap());
        let result = caller.send(request).await;
        assert_eq!(
            matches!(result, Err(CallError::DeadlinePassed { .. })),
            is_passed,
            "{timeout}"
        );
        let seen = seen.lock().unwrap();
        assert!(seen.len() <= attempts, "{timeout}: {}", seen.len());
        if let Some((_, headers)) = seen.get(1).filter(|_| timeout == "3S") {
            let left = headers["grpc-timeout"].to_str().unwrap();
            let left: u64 = left.strip_suffix('m').unwrap().parse().unwrap();
            assert!((990..=2_000).contains(&left), "{left} ms");
        }
    }
}

proptest! {
    #[test]
    fn no_call_exceeds_its_deadline(deadline_ms in 0_u64..5_000, takes_ms in 0_u64..2_000, retry_after in prop::sample::select(vec!["0", "1", "2", "x"])) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (deadline, takes) = (Duration::from_millis(deadline_ms), Duration::from_millis(takes_ms));
            let layer = CallerLayer::default().deadline(deadline);
            let (caller, seen) = refusing(layer, retry_after, takes);
            let begun = Instant::now();
            let result = caller.send(Request::new(Full::<Bytes>::default())).await;
            // The timer of tokio has a resolution of a millisecond.
            assert!(begun.elapsed() <= deadline + Duration::from_millis(1), "{:?}", begun.elapsed());
            assert!(result.is_ok() || begun.elapsed() >= deadline, "ended too early");
            for (at, _) in seen.lock().unwrap().iter() {
                assert!(*at <= begun + deadline, "begun too late");
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn throttled_requests_are_not_sent() {
    let layer = CallerLayer::default().retries(0).throttle();
    let (caller, seen) = refusing(layer, "1", Duration::ZERO);
    let mut held_back = 0;
    for _ in 0..1_000 {
        let result = caller.send(Request::new(Full::<Bytes>::default())).await;
        held_back += usize::from(matches!(result, Err(CallError::Throttled { .. })));
    }
    assert_eq!(seen.lock().unwrap().len() + held_back, 1_000);
    assert!((850..950).contains(&held_back), "{held_back}");
}

#[tokio::test(start_paused = true)]
async fn lost_requests_are_retried_with_their_bodies() {
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&bodies);
    let service = service_fn(move |request: Request<Body>| {
        let log = Arc::clone(&log);
        async move {
            let body = request.into_body().collect().await?.to_bytes();
            log.lock().unwrap().push(body);
            Err::<Response<()>, BoxError>("connection reset".into())
        }
    });
    let caller = CallerLayer::default()
        .idempotent(|_, _| true)
        .layer(service);
    let unary = Body::new(Full::new(Bytes::from("order")));
    let frames = |count: usize, size: usize| vec![Bytes::from(vec![7; size]); count];
    // The end of a stream that another task writes is not there.
    let (sender, stream) = tokio::sync::mpsc::channel::<Bytes>(4);
    tokio::spawn(async move {
        for frame in frames(3, 10) {
            sender.send(frame).await.unwrap();
            sleep(Duration::from_millis(10)).await;
        }
    });
    let stream = ReceiverStream::new(stream).map(|data| Ok::<_, BoxError>(Frame::data(data)));
    let stream = StreamBody::new(stream);
    let large = Body::new(Full::new(Bytes::from(vec![7; 100_000])));
    for (body, attempts, size) in [
        (Body::new(stream), 1, 30),
        (unary, 4, 5),
        (large, 1, 100_000),
    ] {
        bodies.lock().unwrap().clear();
        caller.send(Request::new(body)).await.unwrap_err();
        let sizes: Vec<usize> = bodies.lock().unwrap().iter().map(Bytes::len).collect();
        assert_eq!(sizes, vec![size; attempts]);
    }
}
