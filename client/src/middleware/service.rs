//! The service that a layer wraps: asks the limiter, then calls the inner service or responds with
//! a refusal.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use quanta::Instant;
use tower_layer::Layer;
use tower_service::Service;

use super::extract::Decided;
use super::response::{Outcome, ending_of};
use super::{EitherBody, Head, LoadShedLayer, Pass, ResponseBody, events, stacked};
use crate::BucketHandle;
use crate::responses::{Ending, Recorder};

impl<S, B> Layer<S> for LoadShedLayer<B> {
    type Service = LoadShed<S, B>;

    fn layer(&self, inner: S) -> LoadShed<S, B> {
        LoadShed { inner, layer: self.clone() }
    }
}

/// A service behind a limiter. Made by [`LoadShedLayer`].
pub struct LoadShed<S, B = EitherBody> {
    inner: S,
    layer: LoadShedLayer<B>,
}

impl<S: Clone, B> Clone for LoadShed<S, B> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<S, Q, R, B> Service<Request<Q>> for LoadShed<S, B>
where
    S: Service<Request<Q>, Response = Response<R>>,
    B: ResponseBody<R>,
{
    type Response = Response<B::Body>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Q>) -> Self::Future {
        let head = Head::of(&request);
        let recorder = match self.layer.decide(head).0 {
            Decided::Admitted(recorder) => {
                events::admitted(recorder);
                recorder.into_iter().for_each(|recorder| stacked::mark(request.extensions_mut(), recorder));
                recorder
            }
            Decided::Passed(pass) => {
                events::passed(pass);
                if pass == Pass::CountedBefore {
                    stacked::mark_again(request.extensions_mut());
                }
                None
            }
            Decided::Refused { refusal, bucket } => {
                let recorder = bucket.as_ref().map(BucketHandle::recorder);
                let response = self.layer.refuse(head, refusal, bucket.as_ref());
                if let Some(recorder) = recorder {
                    let status = || Ending::Status(response.status().as_u16());
                    recorder.refused(ending_of(&response).unwrap_or_else(status));
                }
                events::refused(refusal, recorder);
                let state = State::Refused { response: Some(response) };
                return ResponseFuture { state, body: PhantomData };
            }
        };
        let timing = recorder.map(Timing::start);
        // Called at once, so that the instance that was polled ready gets the request.
        let state = State::Admitted { response: self.inner.call(request), timing };
        ResponseFuture { state, body: PhantomData }
    }
}

pin_project! {
    /// The response future of a [`LoadShed`]: the inner service's response, or a refusal.
    pub struct ResponseFuture<F, B = EitherBody> {
        #[pin]
        state: State<F>,
        body: PhantomData<fn() -> B>,
    }
}

pin_project! {
    #[project = StateProjected]
    enum State<F> {
        Admitted { #[pin] response: F, timing: Option<Timing> },
        Refused { response: Option<Response<Bytes>> },
    }
}

impl<F, R, E, B> Future for ResponseFuture<F, B>
where
    F: Future<Output = Result<Response<R>, E>>,
    B: ResponseBody<R>,
{
    type Output = Result<Response<B::Body>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProjected::Admitted { response, timing } => {
                let response = ready!(response.poll(cx));
                let outcome =
                    timing.take().map_or_else(Outcome::default, |timing| timing.responded(&response));
                Poll::Ready(response.map(|response| B::admitted(response, outcome)))
            }
            // Like other futures, this one is not polled again after it was ready.
            StateProjected::Refused { response } => match response.take() {
                Some(response) => Poll::Ready(Ok(B::refused(response))),
                None => Poll::Pending,
            },
        }
    }
}

/// The timer of an admitted request. Dropping it before the response records that the caller cancelled the request.
#[derive(Debug)]
struct Timing {
    recorder: Recorder,
    started: Instant,
    ending: Option<Ending>,
}

impl Timing {
    fn start(recorder: Recorder) -> Self {
        Self { recorder, started: Instant::now(), ending: Some(Ending::Aborted) }
    }

    /// Records the duration. Returns the outcome, which is pending if the trailers will show it.
    fn responded<R, E>(mut self, response: &Result<Response<R>, E>) -> Outcome {
        self.ending = response.as_ref().map_or(Some(Ending::Error), ending_of);
        if self.ending.is_none() { Outcome::pending(self.recorder) } else { Outcome::default() }
    }
}

impl Drop for Timing {
    fn drop(&mut self) {
        self.recorder.ended(self.started.elapsed(), self.ending);
    }
}
