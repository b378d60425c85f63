//! The body of responses: that of the service where it admits, and that of a refusal.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use plimsoll_client::internals::{Ending, GRPC_UNKNOWN};

use super::outcome::{Outcome, grpc_status};

/// The type of the responses of a [`PlimsollService`](crate::PlimsollService) before a
/// service with bodies `R`.
///
/// Implemented only by [`EitherBody`] and [`SameBody`].
#[diagnostic::on_unimplemented(
    message = "the body `{R}` of the service cannot be made from bytes",
    note = "use `PlimsollLayer::either_body`"
)]
pub trait ResponseBody<R> {
    /// The body of all responses.
    type Body;

    /// Converts a response of the service. Its outcome is counted once it is known.
    #[doc(hidden)]
    fn admitted(response: Response<R>, outcome: Outcome) -> Response<Self::Body>;

    /// Converts a refusal.
    #[doc(hidden)]
    fn refused(response: Response<Bytes>) -> Response<Self::Body>;
}

/// Responses have the body [`PlimsollBody`]. Fits every service.
#[derive(Debug)]
pub struct EitherBody(());

/// Refusals have the body type of the service.
#[derive(Debug)]
pub struct SameBody(());

pin_project! {
    /// The body of a response: of the service, or of a refusal.
    ///
    /// It reads `grpc-status` in the trailers of a gRPC response, the outcome that is counted. Its
    /// default is empty, which layers such as CORS and timeouts need for their own responses.
    #[derive(Debug)]
    pub struct PlimsollBody<B> {
        #[pin]
        content: Content<B>,
    }
}

pin_project! {
    #[project = ContentProjected]
    #[derive(Debug)]
    enum Content<B> {
        Service { #[pin] body: B, outcome: Outcome },
        Refusal { body: Bytes },
    }
}

impl<B> Default for PlimsollBody<B> {
    fn default() -> Self {
        Self {
            content: Content::Refusal { body: Bytes::new() },
        }
    }
}

impl<B: Body> PlimsollBody<B> {
    /// Makes the body of an admitted request. A gRPC response that ends without a body has no status.
    fn of_service(body: B, mut outcome: Outcome) -> Self {
        if body.is_end_stream() {
            outcome.settle(Ending::Grpc(GRPC_UNKNOWN));
        }
        Self {
            content: Content::Service { body, outcome },
        }
    }
}

impl<B: Body<Data = Bytes>> Body for PlimsollBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().content.project() {
            ContentProjected::Service { mut body, outcome } => {
                let frame = ready!(body.as_mut().poll_frame(cx));
                if outcome.is_pending() {
                    match &frame {
                        Some(Ok(frame)) => {
                            let status = frame.trailers_ref().map(grpc_status);
                            // A server stops at the end of the stream without another poll.
                            let last = || body.is_end_stream().then_some(None);
                            if let Some(status) = status.or_else(last) {
                                outcome.settle(Ending::Grpc(status.unwrap_or(GRPC_UNKNOWN)));
                            }
                        }
                        Some(Err(_)) => outcome.settle(Ending::Error),
                        None => outcome.settle(Ending::Grpc(GRPC_UNKNOWN)),
                    }
                }
                Poll::Ready(frame)
            }
            ContentProjected::Refusal { body } => {
                let body = std::mem::take(body);
                Poll::Ready((!body.is_empty()).then(|| Ok(Frame::data(body))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Service { body, .. } => body.is_end_stream(),
            Content::Refusal { body } => body.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Service { body, .. } => body.size_hint(),
            Content::Refusal { body } => SizeHint::with_exact(body.len() as u64),
        }
    }
}

impl<R: Body> ResponseBody<R> for EitherBody {
    type Body = PlimsollBody<R>;

    #[inline]
    fn admitted(response: Response<R>, outcome: Outcome) -> Response<Self::Body> {
        response.map(|body| PlimsollBody::of_service(body, outcome))
    }

    fn refused(response: Response<Bytes>) -> Response<Self::Body> {
        response.map(|body| PlimsollBody {
            content: Content::Refusal { body },
        })
    }
}

impl<R: From<Bytes> + 'static> ResponseBody<R> for SameBody {
    type Body = R;

    #[inline]
    fn admitted(response: Response<R>, outcome: Outcome) -> Response<R> {
        if outcome.is_pending() {
            response.map(|body| watch_same(body, outcome))
        } else {
            response
        }
    }

    fn refused(response: Response<Bytes>) -> Response<R> {
        response.map(R::from)
    }
}

/// Puts a gRPC body of axum into one that reads trailers, which is a body of axum again. For other
/// types the trailers remain unread, and the HTTP status, which is 200, counts.
#[cfg_attr(
    not(feature = "axum"),
    expect(unused_mut, reason = "only axum's body is replaced")
)]
fn watch_same<R: 'static>(mut body: R, mut outcome: Outcome) -> R {
    #[cfg(feature = "axum")]
    if let Some(body) = (&mut body as &mut dyn std::any::Any).downcast_mut::<axum::body::Body>() {
        let inner = std::mem::take(body);
        *body = axum::body::Body::new(PlimsollBody::of_service(
            inner,
            std::mem::take(&mut outcome),
        ));
    }
    outcome.settle(Ending::Status(StatusCode::OK.as_u16()));
    body
}

#[cfg(test)]
mod tests;
