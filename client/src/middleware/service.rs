//! The tower layer and the service it wraps: asks the limiter, then calls the inner service or responds with
//! a refusal.

use std::future::{self, Future, Ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Either, Full};
use pin_project_lite::pin_project;
use plimsoll_core::report::Side;
use tower_layer::Layer;
use tower_service::Service;

use super::{Decision, Extract, PROBLEM_TYPE, refusal};
use crate::responses::Ending;
use crate::{BucketHandle, Verdict};

/// Puts a limiter before a service.
#[derive(Clone)]
pub struct LoadShedLayer {
    extract: Arc<dyn Extract>,
    problem_type: Arc<str>,
}

impl LoadShedLayer {
    /// Makes a layer that asks the limiter for the key that `extract` returns for a request.
    pub fn new(extract: impl Extract) -> Self {
        Self { extract: Arc::new(extract), problem_type: PROBLEM_TYPE.into() }
    }

    /// Sets the `type` of problem documents, by default [`PROBLEM_TYPE`]: a URI, which should lead to
    /// documentation for callers.
    #[must_use]
    pub fn problem_type(mut self, uri: &str) -> Self {
        self.problem_type = uri.into();
        self
    }
}

impl<S> Layer<S> for LoadShedLayer {
    type Service = LoadShed<S>;

    fn layer(&self, inner: S) -> LoadShed<S> {
        LoadShed { inner, layer: self.clone() }
    }
}

/// A service behind a limiter. Made by [`LoadShedLayer`].
#[derive(Clone)]
pub struct LoadShed<S> {
    inner: S,
    layer: LoadShedLayer,
}

impl<S, B, R> Service<Request<B>> for LoadShed<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<Either<R, Full<Bytes>>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let Decision { verdict, recorder } = self.layer.extract.decide(&parts);
        let state = match verdict {
            // Called at once, so that the instance that was polled ready gets the request.
            Verdict::Admit => {
                let timing = recorder.map(Timing::start);
                State::Admitted { response: self.inner.call(Request::from_parts(parts, body)), timing }
            }
            Verdict::Refuse(refusal) => {
                let response = refusal::response(refusal, &parts, &self.layer.problem_type);
                recorder.iter().for_each(|recorder| refused(recorder, response.status().as_u16()));
                State::Refused { response: future::ready(response) }
            }
        };
        ResponseFuture { state }
    }
}

pin_project! {
    /// The response future of a [`LoadShed`]: the inner service's response, or a refusal.
    pub struct ResponseFuture<F> {
        #[pin]
        state: State<F>,
    }
}

pin_project! {
    #[project = StateProjected]
    enum State<F> {
        Admitted { #[pin] response: F, timing: Option<Timing> },
        Refused { #[pin] response: Ready<Response<Full<Bytes>>> },
    }
}

impl<F, R, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<Either<R, Full<Bytes>>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProjected::Admitted { response, timing } => {
                let response = ready!(response.poll(cx));
                if let Some(mut timing) = timing.take() {
                    let status = response.as_ref().map(|response| response.status().as_u16());
                    timing.ending = status.map_or(Ending::Error, Ending::Status);
                }
                Poll::Ready(response.map(|response| response.map(Either::Left)))
            }
            StateProjected::Refused { response } => {
                response.poll(cx).map(|response| Ok(response.map(Either::Right)))
            }
        }
    }
}

/// The timer of an admitted request: dropping it records how the request ended.
#[derive(Debug)]
struct Timing {
    recorder: BucketHandle,
    side: Side,
    started: Instant,
    /// Until the response, a drop means that the caller cancelled the request.
    ending: Ending,
}

impl Timing {
    fn start(recorder: BucketHandle) -> Self {
        let side = recorder.table.responses.side(recorder.place.bucket as usize);
        Self { recorder, side, started: Instant::now(), ending: Ending::Aborted }
    }
}

impl Drop for Timing {
    fn drop(&mut self) {
        let responses = &self.recorder.table.responses;
        responses.ended(self.recorder.place.bucket as usize, self.side, self.started.elapsed(), self.ending);
    }
}

/// Records a refusal.
fn refused(recorder: &BucketHandle, status: u16) {
    let (responses, bucket) = (&recorder.table.responses, recorder.place.bucket as usize);
    responses.refused(bucket, responses.side(bucket), status);
}
