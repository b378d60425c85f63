//! The search for a later leader while the parent cannot confirm that it leads.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::directive::Epoch;
use tokio::sync::watch;
use tokio::time::sleep;

use super::draw;
use super::search::{Candidate, Search, share};
use super::stream::Stream;
use super::traffic::Traffic;
use crate::transport::ParentList;

/// Mean time between two probes.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Probes the other candidates while `unconfirmed` has the epoch of the parent, and returns a stream to one of a later
/// epoch. The stream has not greeted.
pub(super) async fn later_leader(
    parents: &ParentList,
    parent: Candidate,
    traffic: Option<&Arc<Traffic>>,
    mut unconfirmed: watch::Receiver<Option<Epoch>>,
) -> Stream {
    let mut search = Search::new(parents);
    search.begin();
    loop {
        if unconfirmed.wait_for(Option::is_some).await.is_err() {
            return std::future::pending().await;
        }
        let draw = draw();
        sleep(PROBE_EVERY.mul_f64(0.5 + share(draw))).await;
        let candidate = loop {
            match search.next().await {
                Some(candidate) if candidate.address == parent.address => {}
                candidate => break candidate,
            }
        };
        let Some(candidate) = candidate else {
            search.begin();
            continue;
        };
        let dial = search.dial(candidate);
        // On the heap: almost no stream needs it.
        match Box::pin(Stream::open(dial, candidate, traffic, || None)).await {
            Ok(stream) => {
                // As it is now: the parent may have been confirmed meanwhile.
                let held = *unconfirmed.borrow();
                if held.is_some_and(|held| stream.parent_epoch > Some(held)) {
                    return stream;
                }
            }
            Err(error) => search.on_failure(candidate, error, false, draw),
        }
    }
}
