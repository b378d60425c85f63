//! `/audit` on the admin port: the lines of the audit log, as they are in its files.

use std::io;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use plimsoll_admin::access::Routes;
use plimsoll_admin::body::error_response;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;

use crate::admin::TIMEOUT;
use crate::audit::{AuditLog, HEAD_HEADER, ROUTE, Snapshot};

/// The parameters of a request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AuditQuery {
    /// The number of lines from the end; all if absent.
    last: Option<u64>,
}

/// Returns the routes.
pub(crate) fn routes(audit: AuditLog) -> Routes {
    Routes::new().viewer(Method::GET, ROUTE, lines).with_state(audit)
}

/// Answers the lines in JSON, and the head in a header.
async fn lines(State(audit): State<AuditLog>, Query(query): Query<AuditQuery>) -> Response {
    let open = move || -> io::Result<(Snapshot, String)> {
        let mut snapshot = Snapshot::open(audit.directory())?;
        let head = snapshot.head().map(serde_json::to_string).transpose()?.unwrap_or_default();
        query.last.map_or(Ok(()), |count| snapshot.last(count))?;
        Ok((snapshot, head))
    };
    let (mut snapshot, head) = match timeout(TIMEOUT, tokio::task::spawn_blocking(open)).await {
        Ok(Ok(Ok(opened))) => opened,
        Ok(Ok(Err(error))) => {
            let reason = format!("the audit log cannot be read: {error}");
            return error_response(StatusCode::SERVICE_UNAVAILABLE, reason);
        }
        Ok(Err(error)) => return error_response(StatusCode::INTERNAL_SERVER_ERROR, error),
        Err(_) => {
            return error_response(
                StatusCode::SERVICE_UNAVAILABLE,
                "the disk of the audit log does not answer",
            );
        }
    };
    let (sender, receiver) = mpsc::channel(2);
    tokio::task::spawn_blocking(move || {
        // An error ends the connection, so that the client does not take the lines before it for all.
        if let Err(error) = snapshot.each_chunk(|chunk| sender.blocking_send(Ok(chunk)).is_ok()) {
            let _ = sender.blocking_send(Err(error));
        }
    });
    let headers = [(header::CONTENT_TYPE.as_str(), "application/x-ndjson"), (HEAD_HEADER, &head)];
    (headers, Body::from_stream(ReceiverStream::new(receiver))).into_response()
}
