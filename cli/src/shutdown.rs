//! Runtime and shutdown of a command: the first Ctrl-C, SIGTERM or SIGHUP drains it, a further Ctrl-C or SIGTERM ends it
//! immediately.

use std::future::pending;
use std::time::Duration;

use anyhow::Context;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Maximum time that the end of a process waits for writes to finish.
const LAST_WRITES_MAX: Duration = Duration::from_secs(2);

pub(crate) fn runtime() -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

/// Runs a command on a separate runtime, with a token that the first signal cancels. A thread that
/// waits for a disk that hangs is abandoned.
///
/// # Errors
/// The runtime cannot be started, a signal cannot be listened to, or the command fails.
pub(crate) fn run_until_signal<F, E>(run: impl FnOnce(CancellationToken) -> F) -> anyhow::Result<()>
where
    F: Future<Output = Result<(), E>>,
    E: Into<anyhow::Error>,
{
    let runtime = runtime()?;
    let done = runtime.block_on(async { run(on_signal()?).await.map_err(Into::into) });
    runtime.shutdown_timeout(LAST_WRITES_MAX);
    done
}

/// Returns a token that the first signal cancels. The second signal exits with the code that shells
/// use for Ctrl-C.
///
/// # Errors
/// A signal cannot be listened to.
fn on_signal() -> anyhow::Result<CancellationToken> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen to SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen to SIGTERM")?;
    let hangup = (!ignores_hangup()).then(|| signal(SignalKind::hangup()));
    let mut hangup = hangup.transpose().context("cannot listen to SIGHUP")?;
    // A file that outgrows its limit is an error of the write, and must not end the process.
    let file_too_large = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    drop(signal(file_too_large).context("cannot listen to SIGXFSZ")?);
    let token = CancellationToken::new();
    let cancelled = token.clone();
    tokio::spawn(async move {
        for first in [true, false] {
            let hung_up = async {
                match &mut hangup {
                    // A closed terminal may send several.
                    Some(hangup) if first => _ = hangup.recv().await,
                    _ => pending().await,
                }
            };
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                () = hung_up => {}
            }
            if first {
                cancelled.cancel();
            }
        }
        std::process::exit(130);
    });
    Ok(token)
}

/// Returns true if the process was started to outlive its terminal, as by `nohup`.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}
