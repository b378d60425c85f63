//! gRPC on HTTP/2 for methods with one request and one response: the frame of a message, and an
//! answer with its status.
//!
//! A request bypasses the layers of a general server, because the port has few methods and its
//! messages are small.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Response};
use hyper::body::{Body, Frame, SizeHint};
use prost::Message;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::Status;

use super::input::InputError;

pub(super) const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Prefix of a message: a compression flag and the length.
const PREFIX_BYTES: usize = 5;
pub(super) const BODY_BYTES_MAX: usize = MESSAGE_BYTES_MAX + PREFIX_BYTES;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const STATUS_OK: HeaderValue = HeaderValue::from_static("0");
const STATUS_UNAVAILABLE: HeaderValue = HeaderValue::from_static("14");

/// Body of an answer; empty by default.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    message: Option<Bytes>,
    /// Keeps the stream open between message and status.
    open_until: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// Value of `grpc-status`, which is sent in trailers.
    status: Option<HeaderValue>,
}

/// Returns the message of a body, without its prefix.
///
/// # Errors
/// When the body is not one message without compression, or the message is too large.
pub(super) fn unframed(body: &[u8]) -> Result<&[u8], InputError> {
    let Some((&[is_compressed, a, b, c, d], message)) = body.split_first_chunk::<PREFIX_BYTES>()
    else {
        return Err(InputError::Frame(body.len()));
    };
    if is_compressed != 0 {
        return Err(InputError::Compressed);
    }
    let length = u32::from_be_bytes([a, b, c, d]);
    if length as usize > MESSAGE_BYTES_MAX {
        return Err(InputError::TooLarge);
    }
    if length as usize == message.len() {
        Ok(message)
    } else {
        Err(InputError::Frame(body.len()))
    }
}

/// Returns the answer with a message, more encoded fields, and the status OK.
pub(super) fn answered(message: &impl Message, more: &[u8]) -> Response<Reply> {
    let length = message.encoded_len() + more.len();
    let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + length);
    bytes.put_u8(0);
    // A response is far smaller than 4 GiB.
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode_raw(&mut bytes);
    bytes.put_slice(more);
    answered_with(bytes.freeze())
}

/// Returns the answer with an already framed message, and the status OK.
pub(super) fn answered_with(framed: Bytes) -> Response<Reply> {
    of_body(framed, None, STATUS_OK)
}

/// Returns the answer with an already framed message. The stream stays open until `closing`, or the end of its connection.
pub(super) fn open(framed: Bytes, closing: CancellationToken) -> Response<Reply> {
    of_body(framed, Some(closing), STATUS_UNAVAILABLE)
}

fn of_body(
    framed: Bytes,
    open_until: Option<CancellationToken>,
    status: HeaderValue,
) -> Response<Reply> {
    let mut response = Response::new(Reply {
        message: Some(framed),
        open_until: open_until.map(|closing| Box::pin(closing.cancelled_owned())),
        status: Some(status),
    });
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

pub(super) fn failed(status: Status) -> Response<Reply> {
    status.into_http()
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(message) = self.message.take() {
            return Poll::Ready(Some(Ok(Frame::data(message))));
        }
        if let Some(closing) = &mut self.open_until {
            ready!(closing.as_mut().poll(context));
            self.open_until = None;
        }
        if let Some(status) = self.status.take() {
            let mut trailers = HeaderMap::with_capacity(1);
            trailers.insert(STATUS, status);
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.message.is_none() && self.status.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.open_until.is_some() {
            return SizeHint::default();
        }
        SizeHint::with_exact(
            self.message
                .as_ref()
                .map_or(0, |message| message.len() as u64),
        )
    }
}
