//! The audit log as a controller answers it: line by line, however long it is.

use anyhow::{Context, bail};
use plimsoll_controller::audit::{Fault, HEAD_HEADER, Head, LINE_BYTES_MAX, Line, ROUTE, Verified, Verifier};
use reqwest::Response;

use super::parse;
use crate::admin_client::{ControllerArgs, Request};

/// Returns the last lines.
pub(super) async fn last_lines(
    controller: &ControllerArgs,
    last: u64,
) -> anyhow::Result<Vec<Result<Line, String>>> {
    let response = controller.open(&Request::get(format!("{ROUTE}?last={last}"))).await?;
    let mut lines = Vec::new();
    each_line(response, |line| lines.push(parse(line))).await?;
    Ok(lines)
}

/// Verifies all lines on this machine, against the head that the controller names.
pub(super) async fn verify(controller: &ControllerArgs) -> anyhow::Result<Result<Verified, Fault>> {
    let response = controller.open(&Request::get(ROUTE)).await?;
    let url = response.url().to_string();
    let head =
        response.headers().get(HEAD_HEADER).and_then(|head| serde_json::from_slice(head.as_bytes()).ok());
    let Some(head) = head else {
        bail!(
            "{url} names no head of its log: verify the files on the controller's machine, with --file STATE_DIR"
        );
    };
    let mut verifier = Verifier::new(Some::<Head>(head));
    verifier.file(&url);
    each_line(response, |line| verifier.line(line)).await?;
    Ok(verifier.finish())
}

/// Calls `take` with each line and its line feed. A line that is too long comes in pieces.
async fn each_line(mut response: Response, mut take: impl FnMut(&[u8])) -> anyhow::Result<()> {
    let mut rest = Vec::new();
    while let Some(chunk) = response.chunk().await.context("the controller closed the connection")? {
        rest.extend_from_slice(&chunk);
        let whole = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        rest.drain(..whole).as_slice().split_inclusive(|byte| *byte == b'\n').for_each(&mut take);
        if rest.len() > LINE_BYTES_MAX {
            take(&rest);
            rest.clear();
        }
    }
    if !rest.is_empty() {
        take(&rest);
    }
    Ok(())
}
