//! Stops a thread when it panics. A database panics on some damaged files, and then again while it
//! unwinds with its locks poisoned. A second panic would abort the process, so the first one must
//! not unwind.

use std::cell::RefCell;
use std::io;
use std::panic;
use std::sync::Once;
use std::sync::mpsc::{self, Sender};
use std::thread;

thread_local! {
    /// Receives the panic of a thread that `stopped_at_panic` started.
    static STOPPED: RefCell<Option<Sender<String>>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// Runs `f` in a thread of this name and returns its value, or the message of its panic. A thread
/// that panics is never resumed: its memory, files and locks stay. Replaces the panic hook of the
/// process once; other threads panic as before.
///
/// # Errors
/// When no thread can be started.
pub fn stopped_at_panic<T: Send + 'static>(
    name: &str,
    f: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Result<T, String>> {
    HOOK.call_once(|| {
        let other_threads = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let Some(stopped) = STOPPED.take() else {
                return other_threads(info);
            };
            let _ = stopped.send(info.to_string().replace('\n', " "));
            loop {
                thread::park();
            }
        }));
    });
    let (stopped, message) = mpsc::channel();
    let (sender, value) = mpsc::channel();
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            STOPPED.set(Some(stopped));
            let value = f();
            // Sent before `message` ends, because the receiver waits for that end first.
            let _ = sender.send(value);
            STOPPED.take();
        })?;
    // A stopped thread keeps its end of `value`; a thread that returns drops its end of `message`.
    Ok(match message.recv() {
        Ok(message) => Err(message),
        Err(_) => value
            .recv()
            .map_err(|_| "the thread ended without a value".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics while it unwinds.
    struct Twice;

    impl Drop for Twice {
        fn drop(&mut self) {
            panic!("again");
        }
    }

    /// Runs a test in a separate process. A stopped thread keeps the lock of the panic hook, and
    /// the process of all tests would wait for it at its end.
    fn alone(name: &str, check: fn()) {
        const ALONE: &str = "PLIMSOLL_TEST_ALONE";
        if std::env::var_os(ALONE).is_some() {
            let failed = panic::catch_unwind(check).is_err();
            std::process::exit(i32::from(failed));
        }
        let mut process = std::process::Command::new(std::env::current_exe().unwrap());
        let name = format!("panics::tests::{name}");
        let status = process
            .args(["--exact", &name, "--nocapture"])
            .env(ALONE, "1")
            .status()
            .unwrap();
        assert!(status.success(), "{name}: {status}");
    }

    #[test]
    fn value_returns_and_panic_never_unwinds() {
        alone(
            "value_returns_and_panic_never_unwinds",
            check_value_and_panic,
        );
    }

    fn check_value_and_panic() {
        assert_eq!(stopped_at_panic("test", || 7).unwrap(), Ok(7));
        let panicked = stopped_at_panic("test", || {
            let _twice = Twice;
            if STOPPED.with_borrow(Option::is_some) {
                panic!("damaged\nfiles");
            }
        });
        let message = panicked.unwrap().unwrap_err();
        assert!(
            message.contains("damaged files") && message.contains("panics.rs"),
            "{message}"
        );
        let unwound = panic::catch_unwind(|| panic!("elsewhere"));
        assert!(unwound.is_err(), "other panics unwind");
    }
}
