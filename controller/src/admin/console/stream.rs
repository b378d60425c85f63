//! The stream of the console. A task makes a snapshot each second while there are viewers; a viewer gets the newest one
//! when it has read the one before, so that a slow one holds nothing up.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Method, header};
use axum::response::IntoResponse;
use futures_util::stream::unfold;
use plimsoll_admin::access::{AdminCaller, Routes};
use plimsoll_admin::body::Parameters;
use plimsoll_core::names::Bucket;
use serde_json::json;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use super::snapshot::Snapshot;
use super::view::View;
use crate::admin::status::StatusSource;
use crate::admin::{Answer, invalid, unavailable};
use crate::tasks::unix_s;

const EVERY: Duration = Duration::from_secs(1);
/// Maximum number of streams.
pub(super) const VIEWERS_MAX: usize = 64;
/// Maximum life of a stream. The page then opens another one, and a token that was withdrawn is found out.
const STREAM_MAX: Duration = Duration::from_secs(60);

type Latest = Option<Arc<Snapshot>>;

/// The console of a controller.
#[derive(Clone, Debug)]
pub(crate) struct Console {
    latest: watch::Receiver<Latest>,
    viewers: Arc<Semaphore>,
    arrived: Arc<Notify>,
}

/// One viewer, until the end of its stream.
struct Viewer {
    latest: watch::Receiver<Latest>,
    view: View,
    until: Instant,
    /// The buckets whose past it has.
    known: Option<Vec<Bucket>>,
    _permit: OwnedSemaphorePermit,
}

// === impl Console ===

impl Console {
    /// Returns the console, and the task that it needs.
    pub(crate) fn new(source: StatusSource) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (sender, latest) = watch::channel(None);
        let console = Self {
            latest,
            viewers: Arc::new(Semaphore::new(VIEWERS_MAX)),
            arrived: Arc::default(),
        };
        let (viewers, arrived) = (Arc::clone(&console.viewers), Arc::clone(&console.arrived));
        let refresh = async move {
            let mut seconds = interval(EVERY);
            seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                seconds.tick().await;
                if viewers.available_permits() == VIEWERS_MAX {
                    sender.send_replace(None);
                    arrived.notified().await;
                } else {
                    sender.send_replace(Some(Arc::new(Snapshot::take(&source, unix_s()))));
                }
            }
        };
        (console, refresh)
    }

    pub(crate) fn routes(self) -> Routes {
        Routes::new()
            .viewer(Method::GET, "/console/stream", stream)
            .with_state(self)
    }
}

pub(super) async fn stream(
    State(console): State<Console>,
    Extension(caller): Extension<AdminCaller>,
    Parameters(view): Parameters<View>,
) -> Answer {
    view.check().map_err(invalid)?;
    let full = |_| {
        unavailable(format_args!(
            "{VIEWERS_MAX} pages of the console are open, the maximum: close one that nobody reads"
        ))
    };
    let permit = console.viewers.try_acquire_owned().map_err(full)?;
    console.arrived.notify_one();
    // Whom the controller takes the viewer for.
    let hello = json!({ "name": &*caller.name, "role": caller.role });
    let hello = Bytes::from(format!("event: hello\ndata: {hello}\n\n"));
    let viewer = Viewer {
        latest: console.latest,
        view,
        until: Instant::now() + STREAM_MAX,
        known: None,
        _permit: permit,
    };
    let frames = unfold((Some(hello), viewer), async |(hello, mut viewer)| {
        let bytes = match hello {
            Some(hello) => hello,
            None => viewer.next().await?,
        };
        Some((Ok::<_, std::convert::Infallible>(bytes), (None, viewer)))
    });
    let kind = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((kind, Body::from_stream(frames)).into_response())
}

// === impl Viewer ===

impl Viewer {
    /// Waits for the next message. The stream ends with its time, and with the controller.
    async fn next(&mut self) -> Option<Bytes> {
        let snapshot = loop {
            // The first one may be there already.
            if self.known.is_some() || self.latest.borrow().is_none() {
                timeout_at(self.until, self.latest.changed())
                    .await
                    .ok()?
                    .ok()?;
            }
            if let Some(snapshot) = self.latest.borrow_and_update().clone() {
                break snapshot;
            }
        };
        let frame = snapshot.frame(&self.view, false);
        if self.known.as_ref() == Some(&frame.shown) {
            return Some(frame.bytes.clone());
        }
        self.known = Some(frame.shown.clone());
        Some(snapshot.frame(&self.view, true).bytes.clone())
    }
}
