//! Panics of the database, as errors. It panics on some damaged files.

use std::cell::RefCell;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use std::sync::mpsc::{self, Sender};
use std::thread;

use super::error::StoreError;

thread_local! {
    /// Receives the panic of this thread, if it is one that is stopped.
    static STOPPED: RefCell<Option<Sender<String>>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// Runs `f` on a database that is open, and returns its panic as an error: the thread goes on.
pub(crate) fn caught<T>(f: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    panic::catch_unwind(AssertUnwindSafe(f))
        .unwrap_or_else(|_| Err(StoreError::Failed("the database panicked; a file is damaged".to_owned())))
}

/// Runs `f` in another thread and returns its value, or the message with which it panicked. A thread that panics is
/// never continued: what it owns stays in memory and open. A database that is being opened panics again while it unwinds
/// with its locks poisoned, which would abort the process: such a panic cannot be caught, so it must not unwind.
///
/// # Errors
/// When no thread can be started.
pub(super) fn stopped_at_panic<T: Send + 'static>(
    f: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Result<T, String>> {
    HOOK.call_once(|| {
        let other_threads = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let Some(stopped) = STOPPED.take() else { return other_threads(info) };
            let _ = stopped.send(info.to_string().replace('\n', " "));
            loop {
                thread::park();
            }
        }));
    });
    let (stopped, message) = mpsc::channel();
    let (sender, value) = mpsc::channel();
    thread::Builder::new().name("quota-open".to_owned()).spawn(move || {
        STOPPED.set(Some(stopped));
        let value = f();
        // Before the value: its receiver waits for the end of either channel.
        let _ = sender.send(value);
        STOPPED.take();
    })?;
    // The thread that is stopped keeps its end of `value`, and the one that returns drops that of `message`.
    Ok(match message.recv() {
        Ok(message) => Err(message),
        Err(_) => value.recv().map_err(|_| "the thread ended without a value".to_owned()),
    })
}
