//! The wrapped service: asks the limiter, then calls the inner service or responds with a refusal.

use std::future::{self, Future, Ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Either, Full};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::timing::{self, Timing};
use super::{Decision, Extract, refusal};
use crate::Verdict;
use crate::responses::Ending;

/// A service behind a limiter. Made by [`LoadShedLayer`](super::LoadShedLayer).
#[derive(Clone)]
pub struct LoadShed<S> {
    inner: S,
    extract: Arc<dyn Extract>,
    problem_type: Arc<str>,
}

impl<S> LoadShed<S> {
    pub(super) fn new(inner: S, extract: Arc<dyn Extract>, problem_type: Arc<str>) -> Self {
        Self { inner, extract, problem_type }
    }
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
        let Decision { verdict, recorder } = self.extract.decide(&parts);
        let state = match verdict {
            // Called at once, so that the instance that was polled ready gets the request.
            Verdict::Admit => {
                let timing = recorder.map(Timing::start);
                State::Admitted { response: self.inner.call(Request::from_parts(parts, body)), timing }
            }
            Verdict::Refuse(refusal) => {
                let response = refusal::response(refusal, &parts, &self.problem_type);
                recorder.iter().for_each(|recorder| timing::refused(recorder, response.status().as_u16()));
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
                let ending = response
                    .as_ref()
                    .map_or(Ending::Error, |response| Ending::Status(response.status().as_u16()));
                timing.iter_mut().for_each(|timing| timing.end(ending));
                Poll::Ready(response.map(|response| response.map(Either::Left)))
            }
            StateProjected::Refused { response } => {
                response.poll(cx).map(|response| Ok(response.map(Either::Right)))
            }
        }
    }
}
