//! The service that a layer wraps: asks the limiter, then calls the inner service or responds with
//! a refusal.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use plimsoll_client::internals::{AskingFor, Decision, Ending, Pass, Recorders, RefusedBy};
use quanta::Instant;
use tower_layer::Layer;
use tower_service::Service;

use super::response::{Outcome, ending_of};
use super::{Head, PlimsollLayer, ResponseBody, SameBody, events, stacked};

impl<S, B> Layer<S> for PlimsollLayer<B> {
    type Service = PlimsollService<S, B>;

    fn layer(&self, inner: S) -> PlimsollService<S, B> {
        PlimsollService {
            inner,
            layer: self.clone(),
        }
    }
}

/// A service behind a limiter. Made by [`PlimsollLayer`].
pub struct PlimsollService<S, B = SameBody> {
    inner: S,
    layer: PlimsollLayer<B>,
}

impl<S: Clone, B> Clone for PlimsollService<S, B> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            layer: self.layer.clone(),
        }
    }
}

/// A service that may have an instance waiting with a request, if requests wait at all: with the
/// feature `quota`, a service that is `Clone`.
pub trait Spare: Sized {
    /// Takes the instance, and leaves another. `None` without the feature `quota`: then no request waits.
    #[doc(hidden)]
    fn take(&mut self) -> Option<Self>;
}

#[cfg(feature = "quota")]
impl<S: Clone> Spare for S {
    fn take(&mut self) -> Option<Self> {
        let clone = self.clone();
        Some(std::mem::replace(self, clone))
    }
}

#[cfg(not(feature = "quota"))]
impl<S> Spare for S {
    fn take(&mut self) -> Option<Self> {
        None
    }
}

impl<S, Q, R, B> Service<Request<Q>> for PlimsollService<S, B>
where
    S: Service<Request<Q>, Response = Response<R>> + Spare,
    B: ResponseBody<R>,
{
    type Response = Response<B::Body>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, B, S, Request<Q>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Q>) -> Self::Future {
        let head = Head::of(&request);
        let state = match self.layer.decider.decide(head) {
            Decision::Admitted(recorders) => State::admit(&mut self.inner, request, recorders),
            Decision::Passed(pass) => {
                events::passed(pass);
                if pass == Pass::CountedBefore {
                    stacked::mark_again(request.extensions_mut());
                }
                // Called immediately, so that the instance that was polled ready gets the request.
                State::Admitted {
                    response: self.inner.call(request),
                    timing: None,
                }
            }
            Decision::Refused(by) => State::refuse(&self.layer, head, &by),
            // The instance that was polled ready waits with the request.
            Decision::Asking(asked) => match self.inner.take() {
                Some(inner) => {
                    let layer = self.layer.clone();
                    State::Asking {
                        waiting: Box::new(Waiting {
                            asked: *asked,
                            inner,
                            request: Some(request),
                            layer,
                        }),
                    }
                }
                None => State::admit(&mut self.inner, request, asked.recorders),
            },
        };
        ResponseFuture { state }
    }
}

pin_project! {
    /// The response future of a [`PlimsollService`]: the inner service's response, or a refusal. A request with exact
    /// quotas may wait for their store before it reaches the service; dropped meanwhile, it never does, and what the
    /// store has debited is given back.
    pub struct ResponseFuture<F, B = SameBody, S = (), Q = ()> {
        #[pin]
        state: State<F, B, S, Q>,
    }
}

pin_project! {
    #[project = StateProjected]
    enum State<F, B, S, Q> {
        Admitted { #[pin] response: F, timing: Option<Timing> },
        Refused { response: Option<Response<Bytes>> },
        // Boxed, because few requests wait.
        Asking { waiting: Box<Waiting<B, S, Q>> },
    }
}

struct Waiting<B, S, Q> {
    asked: AskingFor,
    /// The instance that was polled ready.
    inner: S,
    /// `None` once the service has it.
    request: Option<Q>,
    layer: PlimsollLayer<B>,
}

impl<F, B, S, Q> State<F, B, S, Request<Q>> {
    // Inlined, because a call would copy the request once more.
    #[inline(always)]
    fn admit(inner: &mut S, mut request: Request<Q>, recorders: Recorders) -> Self
    where
        S: Service<Request<Q>, Future = F>,
    {
        events::admitted(recorders.first().copied());
        for recorder in &recorders {
            stacked::mark(request.extensions_mut(), *recorder);
        }
        let timing = (!recorders.is_empty()).then(|| Timing::start(recorders));
        // Called immediately, so that the instance that was polled ready gets the request.
        Self::Admitted {
            response: inner.call(request),
            timing,
        }
    }

    fn refuse(layer: &PlimsollLayer<B>, head: Head<'_>, by: &RefusedBy) -> Self {
        let response = layer.refuse(head, by);
        let status = || Ending::Status(response.status().as_u16());
        by.recorder
            .refused(ending_of(&response).unwrap_or_else(status));
        events::refused(by.refusal, by.recorder);
        Self::Refused {
            response: Some(response),
        }
    }
}

impl<B, S, Q> Waiting<B, S, Request<Q>> {
    /// Waits for the quotas, then lets the service answer, or refuses. Pending forever once it was ready.
    fn poll_next<F>(&mut self, cx: &mut Context<'_>) -> Poll<State<F, B, S, Request<Q>>>
    where
        S: Service<Request<Q>, Future = F>,
    {
        let decision = ready!(Pin::new(&mut self.asked).poll(cx));
        let Some(request) = self.request.take() else {
            return Poll::Pending;
        };
        Poll::Ready(match decision {
            Decision::Refused(by) => State::refuse(&self.layer, Head::of(&request), &by),
            Decision::Admitted(recorders) => State::admit(&mut self.inner, request, recorders),
            // A request that was asked ends as one of these two.
            _ => State::admit(&mut self.inner, request, Recorders::new()),
        })
    }
}

impl<F, R, E, B, S, Q> Future for ResponseFuture<F, B, S, Request<Q>>
where
    F: Future<Output = Result<Response<R>, E>>,
    B: ResponseBody<R>,
    S: Service<Request<Q>, Future = F>,
{
    type Output = Result<Response<B::Body>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        if let StateProjected::Asking { waiting } = state.as_mut().project() {
            let next = ready!(waiting.poll_next(cx));
            state.set(next);
        }
        match state.project() {
            StateProjected::Admitted { response, timing } => {
                let response = ready!(response.poll(cx));
                let outcome = timing
                    .take()
                    .map_or_else(Outcome::default, |timing| timing.responded(&response));
                Poll::Ready(response.map(|response| B::admitted(response, outcome)))
            }
            // Like other futures, this one is not polled again after it was ready.
            StateProjected::Refused { response } => match response.take() {
                Some(response) => Poll::Ready(Ok(B::refused(response))),
                None => Poll::Pending,
            },
            StateProjected::Asking { .. } => Poll::Pending,
        }
    }
}

/// The timer of an admitted request. Dropping it before the response records that the caller cancelled the request.
struct Timing {
    recorders: Recorders,
    started: Instant,
    /// `None` if only the end of the body will show it.
    ending: Option<Ending>,
}

impl Timing {
    fn start(recorders: Recorders) -> Self {
        Self {
            recorders,
            started: Instant::now(),
            ending: Some(Ending::Aborted),
        }
    }

    /// Records the duration. Returns the outcome, which is pending if the trailers will show it.
    fn responded<R, E>(mut self, response: &Result<Response<R>, E>) -> Outcome {
        self.ending = response.as_ref().map_or(Some(Ending::Error), ending_of);
        if self.ending.is_none() {
            Outcome::pending(self.recorders.clone())
        } else {
            Outcome::default()
        }
    }
}

impl Drop for Timing {
    fn drop(&mut self) {
        let took = self.started.elapsed();
        for recorder in &self.recorders {
            recorder.ended(took, self.ending);
        }
    }
}
