//! Bodies: what a server reads of them, and the outcome that each counts.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::task::Waker;

use http::{HeaderMap, HeaderValue};
use http_body_util::{BodyExt, Full};
use proptest::prelude::*;

use super::*;
use crate::Limiter;
use crate::decide::tests::{exported, limiter, recorder};

#[derive(Debug, Default)]
struct Script {
    frames: VecDeque<Option<Frame<Bytes>>>,
    /// True if the body reports its end with its last frame.
    says_end: bool,
}

impl Body for Script {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        Poll::Ready(self.frames.pop_front().map(|frame| frame.ok_or("broken")))
    }

    fn is_end_stream(&self) -> bool {
        self.says_end && self.frames.is_empty()
    }
}

fn data() -> Option<Frame<Bytes>> {
    Some(Frame::data(Bytes::from_static(b"message")))
}

fn trailers(status: Option<&'static str>) -> Option<Frame<Bytes>> {
    let value = status.map(HeaderValue::from_static);
    Some(Frame::trailers(
        value
            .map(|value| ("grpc-status".parse().unwrap(), value))
            .into_iter()
            .collect::<HeaderMap>(),
    ))
}

/// Returns the codes that a limiter has counted, and their numbers.
fn counted(limiter: &Limiter) -> Vec<(String, u64)> {
    exported(limiter, "plimsoll_responses_total")
}

fn pending(limiter: &Limiter) -> Outcome {
    Outcome::pending([recorder(limiter, "orders")].into_iter().collect())
}

/// Reads at most `polls` frames as a server does: until the end of the stream, then drops the body.
fn read<B: Body<Data = Bytes>>(body: B, polls: usize) {
    let mut body = std::pin::pin!(body);
    for _ in 0..polls {
        let end = body.is_end_stream();
        let frame = body
            .as_mut()
            .poll_frame(&mut Context::from_waker(Waker::noop()));
        assert!(
            !end || matches!(frame, Poll::Ready(None)),
            "no frame after the end of the stream"
        );
        if !matches!(frame, Poll::Ready(Some(Ok(_)))) || body.is_end_stream() {
            return;
        }
    }
}

#[test]
fn grpc_body_outcome_counts_once() {
    // Frames: a message, an error, trailers without a status, or those with it.
    const CASES: &str = "
        ok                               | data data 0   | true  | all | grpc_ok
        no messages                      | 5             | true  | all | grpc_not_found
        a body that does not say its end | data 14       | false | all | grpc_unavailable
        a status of no number            | x             | true  | all | grpc_unknown
        trailers without status          | data trailers | true  | all | grpc_unknown
        no trailers, end said            | data          | true  | all | grpc_unknown
        no trailers, end not said        | data          | false | all | grpc_unknown
        nothing, end said                |               | true  | all | grpc_unknown
        nothing, end not said            |               | false | all | grpc_unknown
        an error                         | data error 0  | false | all | error
        a drop before the first frame    | data 0        | true  | 0   | aborted
        a drop half-way                  | data data 0   | true  | 1   | aborted
        a drop before the trailers       | data 0        | false | 1   | aborted
        a drop after the trailers        | data 13       | false | 2   | grpc_internal
    ";
    for line in CASES.trim().lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, frames, says_end, polls, code] = cells[..] else {
            panic!("{line}");
        };
        let frames = frames.split_whitespace().map(|frame| match frame {
            "data" => data(),
            "error" => None,
            "trailers" => trailers(None),
            status => trailers(Some(status)),
        });
        let limiter = limiter();
        let script = Script {
            frames: frames.collect(),
            says_end: says_end == "true",
        };
        let polls = polls.parse().unwrap_or(usize::MAX);
        read(PlimsollBody::of_service(script, pending(&limiter)), polls);
        assert_eq!(counted(&limiter), [(code.to_owned(), 1)], "{line}");
    }
}

#[test]
fn body_without_a_pending_outcome_counts_nothing() {
    let limiter = limiter();
    let script = || Script {
        frames: [data(), trailers(Some("0"))].into(),
        says_end: true,
    };
    for polls in [0, 1, 2] {
        read(
            PlimsollBody::of_service(script(), Outcome::default()),
            polls,
        );
        read(PlimsollBody::<Script>::default(), polls);
    }
    assert_eq!(counted(&limiter), []);
}

#[tokio::test]
async fn axum_body_counts_and_forwards_trailers() {
    let limiter = limiter();
    let frames = [data(), trailers(Some("8"))].into();
    let body = axum::body::Body::new(Script {
        frames,
        says_end: true,
    });
    let outcome = pending(&limiter);
    let response =
        <SameBody as ResponseBody<axum::body::Body>>::admitted(Response::new(body), outcome);
    let collected = response.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["grpc-status"], "8");
    assert_eq!(collected.to_bytes(), "message");
    assert_eq!(
        counted(&limiter),
        [("grpc_resource_exhausted".to_owned(), 1)]
    );
}

#[test]
fn foreign_same_body_counts_the_http_status() {
    let limiter = limiter();
    let outcome = pending(&limiter);
    let _ =
        <SameBody as ResponseBody<Full<Bytes>>>::admitted(Response::new(Full::default()), outcome);
    assert_eq!(counted(&limiter), [("200".to_owned(), 1)]);
}

#[test]
fn default_body_is_empty() {
    let body = PlimsollBody::<Full<Bytes>>::default();
    assert!(body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(0));
    read(body, 2);
}

/// Returns all that a reader sees of a body: before each frame the end and the bounds of its size, and the frames.
fn seen(
    body: impl Body<Data = Bytes, Error = Infallible>,
) -> Vec<(bool, u64, Option<u64>, Option<Bytes>)> {
    let mut body = std::pin::pin!(body);
    let mut seen = Vec::new();
    loop {
        let (end, size) = (body.is_end_stream(), body.size_hint());
        let frame = body
            .as_mut()
            .poll_frame(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(frame) = frame else {
            panic!("bodies in memory are ready")
        };
        let data = frame.map(|frame| frame.unwrap().into_data().unwrap());
        let over = data.is_none();
        seen.push((end, size.lower(), size.upper(), data));
        if over {
            return seen;
        }
    }
}

proptest! {
    #[test]
    fn wrapped_body_reads_like_one_in_memory(bytes in prop::collection::vec(any::<u8>(), 0..50)) {
        let expected = seen(Full::new(Bytes::from(bytes.clone())));
        let refused = <EitherBody as ResponseBody<Full<Bytes>>>::refused(Response::new(bytes.clone().into()));
        prop_assert_eq!(&seen(refused.into_body()), &expected);
        let limiter = limiter();
        for outcome in [Outcome::default(), pending(&limiter)] {
            let response = Response::new(Full::new(Bytes::from(bytes.clone())));
            let admitted = <EitherBody as ResponseBody<Full<Bytes>>>::admitted(response, outcome);
            prop_assert_eq!(&seen(admitted.into_body()), &expected);
        }
    }
}
