//! The answer of a controller that does not lead to every stream: where the leader is.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::sync::watch;
use tonic::Status;
use tonic::body::Body;
use tonic::metadata::MetadataValue;
use tonic::server::NamedService;
use tower_service::Service;

use crate::driver::LEADER_METADATA;
use crate::wire::exchange_server::SERVICE_NAME;

/// Turns every stream away. That is no error, so it is not logged, and only `asked` counts it.
#[derive(Clone, Debug)]
pub(super) struct StandbyService {
    /// The URL of the leader; `None` while it is unknown.
    pub(super) leader: watch::Receiver<Option<String>>,
    /// Counts the streams that were turned away.
    pub(super) asked: Arc<AtomicU64>,
}

impl StandbyService {
    fn answer(&self) -> Status {
        let leader = self.leader.borrow().clone().unwrap_or_default();
        let mut status = Status::unavailable("this controller does not lead");
        // Sent even if it is empty: by this a child tells a standby from a parent that stops.
        let leader =
            MetadataValue::try_from(leader).unwrap_or_else(|_| MetadataValue::from_static(""));
        status.metadata_mut().insert(LEADER_METADATA, leader);
        status
    }
}

impl NamedService for StandbyService {
    const NAME: &'static str = SERVICE_NAME;
}

impl Service<http::Request<Body>> for StandbyService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        self.asked.fetch_add(1, Ordering::Relaxed);
        ready(Ok(self.answer().into_http()))
    }
}
