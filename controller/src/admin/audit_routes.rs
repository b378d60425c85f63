//! `/audit` on the admin port: the lines of the audit log, as they are in its files, and the latest ones of all leaders.

use std::io;

use axum::extract::State;
use axum::http::{Method, header};
use axum::response::IntoResponse;
use plimsoll_admin::access::Routes;
use plimsoll_admin::body::Parameters;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::admin::{Answer, Commands, on_disk, streamed, unavailable};
use crate::audit::{HEAD_HEADER, ROUTE, Snapshot};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    /// The number of lines from the end, of all leaders if several controllers share a store; if absent, all in the
    /// files of this controller.
    last: Option<u64>,
}

pub(crate) fn routes() -> Routes<Commands> {
    Routes::new().viewer(Method::GET, ROUTE, lines)
}

async fn lines(
    State(Commands { audit, .. }): State<Commands>,
    Parameters(query): Parameters<AuditQuery>,
) -> Answer {
    let format = (header::CONTENT_TYPE.as_str(), "application/x-ndjson");
    if let (Some(last), Some(shared)) = (query.last, audit.shared()) {
        let lines = shared.latest(usize::try_from(last).unwrap_or(usize::MAX));
        return Ok(([format], lines.concat()).into_response());
    }
    let open = move || -> io::Result<(Snapshot, String)> {
        let mut snapshot = Snapshot::open(audit.directory())?;
        let head = snapshot
            .head()
            .map(serde_json::to_string)
            .transpose()?
            .unwrap_or_default();
        query.last.map_or(Ok(()), |count| snapshot.last(count))?;
        Ok((snapshot, head))
    };
    let opened = on_disk("the audit log", open).await?;
    let (mut snapshot, head) = opened
        .map_err(|error| unavailable(format_args!("the audit log cannot be read: {error}")))?;
    let body = streamed(move |send| snapshot.each_chunk(|chunk| send(chunk).is_ok()));
    let headers = [format, (HEAD_HEADER, head.as_str())];
    Ok((headers, body).into_response())
}
