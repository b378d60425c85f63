//! Runtime and shutdown of a command: the first Ctrl-C or SIGTERM drains it, the second one ends it at once.

use anyhow::Context;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Builds a runtime on all cores.
///
/// # Errors
/// Its threads cannot be started.
pub(crate) fn runtime() -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")
}

/// Returns a token that the first signal cancels. The second signal exits with the code that shells use for
/// Ctrl-C.
///
/// # Errors
/// A signal cannot be listened to.
pub(crate) fn on_signal() -> anyhow::Result<CancellationToken> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen to SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen to SIGTERM")?;
    let token = CancellationToken::new();
    let cancelled = token.clone();
    tokio::spawn(async move {
        for first in [true, false] {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if first {
                cancelled.cancel();
            }
        }
        std::process::exit(130);
    });
    Ok(token)
}
