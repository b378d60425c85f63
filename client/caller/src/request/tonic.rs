//! Bodies of tonic, which are streams even if they carry one message.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body as _, Frame};
use tonic::Status;
use tonic::body::Body;

use super::Repeatable;

/// Maximum size of a body that is kept for another attempt, in bytes.
pub(crate) const KEPT_BYTES_MAX: usize = 65_536;

/// The part of a body that was read, and the rest.
#[derive(Default)]
struct Resumed {
    read: VecDeque<Bytes>,
    failed: Option<Status>,
    rest: Body,
}

/// The message of a unary call is there when the call begins; the end of a stream is not, so it cannot be sent again.
impl Repeatable for Body {
    fn copy(&mut self) -> Option<Self> {
        let mut resumed = Resumed {
            rest: std::mem::take(self),
            ..Resumed::default()
        };
        let is_whole = resumed.read_now();
        let copy = is_whole.then(|| {
            Self::new(Resumed {
                read: resumed.read.clone(),
                ..Resumed::default()
            })
        });
        *self = Self::new(resumed);
        copy
    }
}

impl Resumed {
    /// Reads what is there without waiting; returns true if that is the whole body.
    fn read_now(&mut self) -> bool {
        // The transport polls the rest again, with its own waker.
        let mut context = Context::from_waker(Waker::noop());
        while self.read.iter().map(Bytes::len).sum::<usize>() <= KEPT_BYTES_MAX {
            match Pin::new(&mut self.rest).poll_frame(&mut context) {
                Poll::Ready(None) => return true,
                // A request of gRPC has no trailers.
                Poll::Ready(Some(Ok(frame))) => self.read.extend(frame.into_data().ok()),
                Poll::Ready(Some(Err(status))) => {
                    self.failed = Some(status);
                    return false;
                }
                Poll::Pending => return false,
            }
        }
        false
    }
}

impl http_body::Body for Resumed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(data) = self.read.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        match self.failed.take() {
            Some(status) => Poll::Ready(Some(Err(status))),
            None => Pin::new(&mut self.rest).poll_frame(context),
        }
    }
}
