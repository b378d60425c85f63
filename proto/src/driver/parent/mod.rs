//! The parent's end of a stream: passes reports to the state machine and sends its directives, one task per
//! stream.

mod session;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_core::exchange::admission::{Admission, CONNECTION_WAIT};
use plimsoll_core::exchange::{ChildrenBySource, OnRejected, Parent, Rejection, StreamId};
use plimsoll_core::names::Zone;
use plimsoll_core::quantity::MonoTime;
use plimsoll_host::Shared;
use plimsoll_tls::Certificates;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Status, Streaming};

use self::session::Session;
use crate::driver::RETRY_METADATA;
use crate::transport::ConnectionGuard;
use crate::{MessagePart, wire};

/// Serves a [`Parent`] state machine over gRPC.
#[derive(Debug)]
pub struct ParentService<P> {
    shared: Shared<P>,
    streams: Arc<Streams>,
    /// Sent to each child in the answer to its stream; `None` for a controller.
    pub(crate) zone: Option<MetadataValue<Ascii>>,
    /// Sent likewise; `None` for an aggregator.
    pub(crate) epoch: Option<MetadataValue<Ascii>>,
    /// `None`: streams arrive in plaintext.
    certificates: Option<Certificates>,
}

/// What all streams of a parent share.
#[derive(Debug)]
struct Streams {
    /// The number of the next stream.
    next: AtomicU64,
    /// Cancelled to end all streams.
    closing: CancellationToken,
    rejected: Box<dyn OnRejected>,
    admission: Shared<Admission>,
    children: Shared<ChildrenBySource>,
}

impl Streams {
    fn new(closing: CancellationToken, rejected: Box<dyn OnRejected>) -> Self {
        let admission = Shared::new(Admission::new(MonoTime::ZERO));
        let children = Shared::new(ChildrenBySource::default());
        Self {
            next: AtomicU64::new(1),
            closing,
            rejected,
            admission,
            children,
        }
    }
}

impl<P: Parent + Send + 'static> ParentService<P> {
    /// Serves `shared` until `closing` is cancelled, which ends all streams.
    pub fn new(shared: Shared<P>, closing: CancellationToken, rejected: impl OnRejected) -> Self {
        Self {
            shared,
            streams: Arc::new(Streams::new(closing, Box::new(rejected))),
            zone: None,
            epoch: None,
            certificates: None,
        }
    }

    /// Accepts connections only over mTLS, and from each child the reports that its certificate
    /// allows.
    #[must_use]
    pub fn secured(self, certificates: Certificates) -> Self {
        Self {
            certificates: Some(certificates),
            ..self
        }
    }

    /// Names the zone of this parent to every child.
    pub fn of_zone(self, zone: &Zone) -> Self {
        Self {
            zone: zone.as_str().parse().ok(),
            ..self
        }
    }

    /// Tells every child the epoch of this controller, before the child greets.
    #[must_use]
    pub fn of_epoch(self, epoch: u64) -> Self {
        Self {
            epoch: Some(epoch.into()),
            ..self
        }
    }
}

impl<P> Clone for ParentService<P> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            streams: Arc::clone(&self.streams),
            zone: self.zone.clone(),
            epoch: self.epoch.clone(),
            certificates: self.certificates.clone(),
        }
    }
}

impl<P: Parent + Send + 'static> ParentService<P> {
    pub(crate) fn admission(&self) -> Shared<Admission> {
        self.streams.admission.clone()
    }

    pub(crate) const fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    /// Admits a new stream, or returns the status that turns it away. If too many streams begin at a time, the status
    /// carries the time that the child should stay away.
    pub(crate) fn admit(&self, guard: Option<&ConnectionGuard>) -> Result<(), Status> {
        let is_certified = guard.is_some_and(|guard| guard.certified().is_some());
        if !is_certified && self.certificates.is_some() {
            return Err(Status::unauthenticated(
                "this parent takes streams over mTLS alone",
            ));
        }
        let admitted = self.streams.admission.with(|admission, now| {
            if guard.is_some_and(|guard| !guard.may_open(now)) {
                return Err(CONNECTION_WAIT);
            }
            admission.admit(now, guard.map(ConnectionGuard::source))
        });
        admitted.map_err(|wait| {
            let cause = "too many streams begin at once: come back later";
            self.streams.rejected.on_rejected(Rejection {
                reason: "busy",
                cause,
                child: None,
            });
            let mut status = Status::unavailable(cause);
            status
                .metadata_mut()
                .insert(RETRY_METADATA, MetadataValue::from(wait.as_millis() as u64));
            status
        })
    }

    /// Starts the task of a new stream and returns its messages to the child.
    pub(crate) fn converse(
        &self,
        reports: Streaming<wire::Report>,
        guard: Option<ConnectionGuard>,
    ) -> ReceiverStream<Result<MessagePart, Status>> {
        // One slot: the state machine conflates updates for a slow reader, so they are not queued here.
        let (sender, receiver) = mpsc::channel(1);
        let stream = StreamId(self.streams.next.fetch_add(1, Ordering::Relaxed));
        let session = Session::new(
            stream,
            self.shared.clone(),
            Arc::clone(&self.streams),
            guard,
        );
        tokio::spawn(session.run(reports, sender));
        ReceiverStream::new(receiver)
    }
}
