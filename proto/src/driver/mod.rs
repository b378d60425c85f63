//! gRPC drivers: one for the child's end of a stream and one for the parent's end, for the state machine of
//! any tier.

pub mod child;
#[cfg(feature = "server")]
pub mod parent;

use std::error::Error;
use std::time::Duration;

use tokio::time::sleep;
use tonic::Status;

/// The name of the metadata with the zone of an aggregator, in its answer to a new stream.
pub(crate) const ZONE_METADATA: &str = "plimsoll-zone";

/// The name of the metadata with the epoch of a controller that leads, in its answer to a new stream.
pub(crate) const EPOCH_METADATA: &str = "plimsoll-epoch";

/// The name of the metadata with the URL of the leader, in the answer of a controller that does not lead. Empty if it
/// knows no leader.
pub(crate) const LEADER_METADATA: &str = "plimsoll-leader";

/// The name of the metadata with the milliseconds that a child should wait after a parent turns its
/// stream away, as gRPC defines it.
pub(crate) const RETRY_METADATA: &str = "grpc-retry-pushback-ms";
/// The steps of a wait. A step that ends late because this process was starved counts as one step.
const STEPS: u32 = 10;

/// Waits until this process has run for `span`. A pause of the whole process counts as a tenth of `span` at most.
pub(crate) async fn passed_while_running(span: Duration) {
    for _ in 0..STEPS {
        sleep(span / STEPS).await;
    }
}

/// Returns the cause of a status, or its message if it has none.
pub(crate) fn status_cause(status: &Status) -> String {
    status
        .source()
        .map_or_else(|| status.message().to_owned(), root_cause)
}

/// Returns the innermost error: "connection refused" helps an operator more than "transport error".
fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
