//! The admin port of the controller: status, metrics, and the routes that operators' commands call.

mod aggregators;
mod audit_routes;
pub(crate) mod console;
mod history_routes;
mod kill_routes;
pub(crate) mod metrics;
pub(crate) mod openapi;
pub mod rollout_routes;
pub mod state_routes;
pub mod status;
#[cfg(test)]
mod tests;

use std::io;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{FromRef, State};
use axum::http::StatusCode;
use axum::response::Response;
use plimsoll_admin::access::{AdminCaller, Routes};
use plimsoll_admin::body::ErrorBody;
use plimsoll_admin::server as admin_server;
use plimsoll_core::stats::metrics::About;
use plimsoll_host::Shared;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;

pub use self::aggregators::routes as aggregator_routes;
pub(crate) use self::kill_routes::with_valid_ttl;
use crate::admin::console::Console;
use crate::admin::status::StatusSource;
use crate::audit::{Actor, AuditLog, Entry, Logged};
use crate::brain::Brain;
use crate::members;
use crate::policy_file::PolicyFiles;
use crate::tasks::counters::Counters;
use crate::tasks::events::{self, EventLog};
use crate::tasks::history::HistoryRecorder;

/// The longest wait for the disk. An order takes effect even if the caller stops waiting.
const TIMEOUT: Duration = Duration::from_secs(3);

type BrainState = State<Shared<Brain>>;

#[derive(Clone, Debug)]
pub(crate) struct Commands {
    pub(crate) brain: Shared<Brain>,
    pub(crate) audit: AuditLog,
    pub(crate) events: EventLog,
}

impl FromRef<Commands> for Shared<Brain> {
    fn from_ref(commands: &Commands) -> Self {
        commands.brain.clone()
    }
}

impl Commands {
    /// Records a change that may add refusals, before it is made.
    ///
    /// # Errors
    /// With an answer if it cannot be recorded. The change must not be made then.
    async fn record(&self, caller: &AdminCaller, change: Entry) -> Answer<Logged> {
        let recorded = self.audit.record(Actor::from(caller), change).await;
        recorded.map_err(unavailable)
    }

    /// Records a change that was made. Waits for 3 s at most until it takes effect, and until its line is on disk or
    /// the disk fails. Returns true if it is saved.
    pub(crate) async fn note(&self, caller: &AdminCaller, change: Entry) -> bool {
        let noted = self.audit.note(Actor::from(caller), change);
        let (saved, _) = tokio::join!(
            in_effect(&self.brain),
            timeout(TIMEOUT, self.audit.settled(noted))
        );
        saved
    }
}

pub(crate) type Answer<T = Response> = Result<T, Refused>;

pub(crate) type Refused = (StatusCode, Json<ErrorBody>);

/// Completes a command even if the caller disconnects after its line was written.
async fn to_the_end<T: Send + 'static>(
    command: impl Future<Output = Answer<T>> + Send + 'static,
) -> Answer<T> {
    tokio::spawn(command)
        .await
        .unwrap_or_else(|error| Err(internal(error)))
}

/// Runs `f`, which waits for the disk of `what`.
///
/// # Errors
/// With an answer if the disk does not answer in time.
async fn on_disk<T: Send + 'static>(
    what: &str,
    f: impl FnOnce() -> T + Send + 'static,
) -> Answer<T> {
    let Ok(done) = timeout(TIMEOUT, spawn_blocking(f)).await else {
        return Err(unavailable(format_args!(
            "the disk of {what} does not answer"
        )));
    };
    done.map_err(internal)
}

/// Answers with the chunks that `produce` sends. An error ends the connection, so that the client does not take the
/// chunks before it for all.
fn streamed<C: Into<Bytes> + Send + Sync + 'static>(
    produce: impl FnOnce(&dyn Fn(C) -> io::Result<()>) -> io::Result<()> + Send + 'static,
) -> Body {
    let (sender, receiver) = mpsc::channel::<io::Result<C>>(2);
    spawn_blocking(move || {
        let send = |chunk| sender.blocking_send(chunk).map_err(io::Error::other);
        if let Err(error) = produce(&|chunk| send(Ok(chunk))) {
            let _ = send(Err(error));
        }
    });
    Body::from_stream(ReceiverStream::new(receiver))
}

pub(crate) fn refused(status: StatusCode, reason: impl ToString) -> Refused {
    (
        status,
        Json(ErrorBody {
            error: reason.to_string(),
            line: None,
        }),
    )
}

/// The answer while a disk, or the audit log, cannot be used.
pub(crate) fn unavailable(reason: impl ToString) -> Refused {
    refused(StatusCode::SERVICE_UNAVAILABLE, reason)
}

fn internal(error: impl ToString) -> Refused {
    refused(StatusCode::INTERNAL_SERVER_ERROR, error)
}

pub(crate) fn invalid(reason: impl ToString) -> Refused {
    refused(StatusCode::BAD_REQUEST, reason)
}

pub(crate) fn conflict(reason: impl ToString) -> Refused {
    refused(StatusCode::CONFLICT, reason)
}

/// Returns the descriptions of all metrics. Not part of the API.
#[doc(hidden)]
pub fn described() -> Vec<About> {
    metrics::described()
}

pub(crate) fn routes(
    source: StatusSource,
    files: PolicyFiles,
    recorder: HistoryRecorder,
    counters: Counters,
    console: Console,
) -> Routes {
    let (commands, membership) = (source.commands.clone(), source.membership.clone());
    let of_metrics = source.clone();
    let metrics = move || {
        let StatusSource {
            commands,
            security,
            membership,
            ..
        } = &of_metrics;
        metrics::page(commands, &counters, security, membership.as_ref())
    };
    let of_commands = status::catalogue_routes()
        .merge(status::why::routes())
        .merge(rollout_routes::routes())
        .merge(kill_routes::routes())
        .merge(aggregator_routes::routes())
        .merge(state_routes::routes())
        .merge(audit_routes::routes())
        .merge(events::routes())
        .with_state(commands.clone());
    admin_server::routes(metrics, || true)
        .merge(openapi::routes())
        .merge(console::assets(&source.security))
        .merge(console.routes())
        .merge(source.routes())
        .merge(of_commands)
        .merge(rollout_routes::policy_routes(commands.clone(), files))
        .merge(history_routes::routes(commands, recorder))
        .merge(members::routes(membership))
}

/// Wakes the save task, and waits for 3 s at most until the orders given so far take effect: they are saved, or
/// saving fails. Returns true if they are saved.
pub(crate) async fn in_effect(brain: &Shared<Brain>) -> bool {
    let mut changes = brain.changes();
    brain.notify();
    let in_effect = async {
        while !brain.with(|brain, _| brain.is_in_effect()) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    };
    let _ = timeout(TIMEOUT, in_effect).await;
    brain.with(|brain, _| brain.is_saved())
}
