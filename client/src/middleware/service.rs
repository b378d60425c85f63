//! The running thing: asks the limiter, then either calls the service or answers in its place.

use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Either, Full};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::{Extract, refusal};
use crate::Verdict;

/// A service behind a limiter. Made by [`LoadDropLayer`](super::LoadDropLayer).
#[derive(Clone)]
pub struct LoadDrop<S> {
    inner: S,
    extract: Arc<dyn Extract>,
    problem_type: Arc<str>,
}

impl<S> LoadDrop<S> {
    pub(super) fn new(inner: S, extract: Arc<dyn Extract>, problem_type: Arc<str>) -> Self {
        Self { inner, extract, problem_type }
    }
}

impl<S, B, R> Service<Request<B>> for LoadDrop<S>
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
        let verdict = self.extract.decide(&parts);
        let state = match verdict {
            // Called here and now, so the service that was found ready is the one that gets the request.
            Verdict::Admit => State::Admitted { response: self.inner.call(Request::from_parts(parts, body)) },
            Verdict::Refuse(refusal) => {
                State::Refused { response: ready(refusal::response(refusal, &parts, &self.problem_type)) }
            }
        };
        ResponseFuture { state }
    }
}

pin_project! {
    /// The response of a [`LoadDrop`]: the service's own, or a refusal.
    pub struct ResponseFuture<F> {
        #[pin]
        state: State<F>,
    }
}

pin_project! {
    #[project = StateProjected]
    enum State<F> {
        Admitted { #[pin] response: F },
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
            StateProjected::Admitted { response } => {
                response.poll(cx).map_ok(|response| response.map(Either::Left))
            }
            StateProjected::Refused { response } => {
                response.poll(cx).map(|response| Ok(response.map(Either::Right)))
            }
        }
    }
}
