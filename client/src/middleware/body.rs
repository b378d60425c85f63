//! The bodies of responses: of the service where it admits, and ours where a request is refused.

use bytes::Bytes;
use http::Response;
use http_body_util::{Either, Full};

/// The type of the responses of a [`LoadShed`](super::LoadShed) before a service with bodies `R`.
///
/// Implemented by [`EitherBody`] and [`SameBody`] alone.
pub trait ResponseBody<R>: sealed::Sealed {
    /// The body of all responses.
    type Body;

    /// Converts a response of the service.
    fn admitted(response: Response<R>) -> Response<Self::Body>;

    /// Converts a refusal.
    fn refused(response: Response<Bytes>) -> Response<Self::Body>;
}

/// Responses have one body or the other. Fits every service.
#[derive(Debug)]
pub struct EitherBody(());

/// Refusals have the body type of the service.
#[derive(Debug)]
pub struct SameBody(());

impl<R> ResponseBody<R> for EitherBody {
    type Body = Either<R, Full<Bytes>>;

    fn admitted(response: Response<R>) -> Response<Self::Body> {
        response.map(Either::Left)
    }

    fn refused(response: Response<Bytes>) -> Response<Self::Body> {
        response.map(|body| Either::Right(Full::new(body)))
    }
}

impl<R: From<Bytes>> ResponseBody<R> for SameBody {
    type Body = R;

    #[inline]
    fn admitted(response: Response<R>) -> Response<R> {
        response
    }

    fn refused(response: Response<Bytes>) -> Response<R> {
        response.map(R::from)
    }
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for super::EitherBody {}
    impl Sealed for super::SameBody {}
}
