//! Reasons why a parent's stream ends, each with its gRPC status and metric label.

use std::error::Error;

use plimsoll_core::exchange::authority::NotAllowed;
use plimsoll_core::exchange::{PeerId, StreamRejected};
use tonic::{Code, Status};

use crate::DecodeError;
use crate::driver::status_cause;

pub(super) enum End {
    /// The child closed the stream.
    Closed,
    /// The connection broke.
    Gone(Box<Status>),
    Rejected(StreamRejected),
    Forbidden(NotAllowed),
    Expired(PeerId),
    Decode(DecodeError),
    /// gRPC could not read a message.
    Unreadable(Box<Status>),
    NoGreeting,
    Silent,
    /// The last part of a report did not arrive in time.
    Unfinished,
    /// The state machine has a newer stream of the same zone and name.
    Superseded,
    /// The same process has greeted on a newer stream.
    Replaced,
    /// The parent stops.
    Closing,
}

impl End {
    /// Classifies a failed read. A status of the decoder has no source; any other is about the connection.
    pub(super) fn from_read_error(status: Status) -> Self {
        let is_decode_code = matches!(
            status.code(),
            Code::OutOfRange | Code::Internal | Code::Unimplemented
        );
        if is_decode_code && status.source().is_none() {
            Self::Unreadable(Box::new(status))
        } else {
            Self::Gone(Box::new(status))
        }
    }

    /// Returns true if the parent refused a report, or the child's certificate. The child will try the same again.
    pub(super) const fn is_refused_report(&self) -> bool {
        use End::{Decode, Expired, Forbidden, Rejected, Unreadable};
        matches!(
            self,
            Rejected(_) | Forbidden(_) | Expired(_) | Decode(_) | Unreadable(_)
        )
    }

    pub(super) fn reason(&self) -> String {
        match self {
            Self::Closed => {
                "it closed the stream: it stops while it has clients, or received nothing from here for too long"
                    .to_owned()
            }
            Self::Gone(status) => format!("the connection broke: {}", status_cause(status)),
            ended => ended.status().map_or_else(String::new, |(_, status)| status.message().to_owned()),
        }
    }

    /// Returns the metric label and the final status of the stream; `None` if the child closed it or the connection
    /// broke.
    pub(super) fn status(&self) -> Option<(&'static str, Status)> {
        Some(match self {
            Self::Closed | Self::Gone(_) => return None,
            Self::Forbidden(not_allowed) => (
                NotAllowed::LABEL,
                Status::permission_denied(not_allowed.to_string()),
            ),
            Self::Expired(child) => (
                "expired",
                Status::unauthenticated(format!(
                    "the certificate {child} has expired: renew the files of its directory; the process takes them over and \
                     connects by itself"
                )),
            ),
            Self::Rejected(rejected) => {
                let text = rejected.to_string();
                let status = match rejected {
                    StreamRejected::Broken(_) | StreamRejected::Greeting => {
                        Status::invalid_argument(text)
                    }
                    StreamRejected::Full(_)
                    | StreamRejected::SourceFull(_)
                    | StreamRejected::NoKeyRoom { .. } => Status::resource_exhausted(text),
                    StreamRejected::Unknown => Status::aborted(text),
                    StreamRejected::WrongTier(_)
                    | StreamRejected::Loop
                    | StreamRejected::TooDeep { .. } => Status::failed_precondition(text),
                };
                (rejected.label(), status)
            }
            // Each value may be in range, but the order of the stream is broken.
            Self::Decode(gap @ DecodeError::Gap { .. }) => {
                ("broken", Status::invalid_argument(gap.to_string()))
            }
            Self::Decode(error) => ("invalid", Status::invalid_argument(error.to_string())),
            Self::Unreadable(status) => ("unreadable", Status::invalid_argument(status.message())),
            Self::NoGreeting => (
                "silent",
                Status::deadline_exceeded("no greeting arrived in time"),
            ),
            Self::Silent => (
                "silent",
                Status::deadline_exceeded("no report arrived in time"),
            ),
            Self::Unfinished => (
                "unfinished",
                Status::deadline_exceeded("the last part of a report did not arrive in time"),
            ),
            Self::Superseded => (
                "superseded",
                Status::aborted(
                    "a newer stream with the same zone and name took over; if this repeats, two processes have one name: give each \
                     its own --name",
                ),
            ),
            Self::Replaced => (
                "replaced",
                Status::aborted("a newer stream of this process continues this one"),
            ),
            Self::Closing => ("closing", Status::unavailable("this parent stops")),
        })
    }
}
