//! The kill switch of this process: a file on its machine.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_host::Shared;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use crate::subscription::Subscription;

const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The kill file, if one is set.
#[derive(Clone, Default)]
pub(crate) struct LocalKill(pub(crate) Option<PathBuf>);

impl LocalKill {
    pub(crate) fn begin(&self, subscription: &mut Subscription) {
        let Some(file) = &self.0 else { return };
        // `follow` logs a file that cannot be checked.
        if subscription.observe(exists(file).unwrap_or(false)) {
            let file = file.display();
            tracing::warn!(%file, "local kill switch on: this process only observes from its start on");
        }
    }

    pub(super) async fn follow(&self, subscription: &Shared<Subscription>) {
        let Some(file) = self.0.clone() else {
            return std::future::pending().await;
        };
        let mut ticks = interval(CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut has_warned = false;
        loop {
            ticks.tick().await;
            let path = file.clone();
            match spawn_blocking(move || exists(&path)).await {
                Ok(Ok(exists)) => {
                    has_warned = false;
                    switch(subscription, &file, exists);
                }
                // An error is no answer: the switch stays as it is.
                Ok(Err(error)) => {
                    if !std::mem::replace(&mut has_warned, true) {
                        let file = file.display();
                        tracing::warn!(%file, %error, "kill file cannot be checked; the local kill switch stays as it is");
                    }
                }
                // The runtime is shutting down.
                Err(_) => {}
            }
        }
    }
}

/// Returns true if anything has this name, even a link to a missing target.
fn exists(file: &Path) -> io::Result<bool> {
    match file.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn switch(subscription: &Shared<Subscription>, file: &Path, on: bool) {
    let has_changed = subscription.with(|subscription, _| subscription.observe(on));
    let file = file.display();
    match (has_changed, on) {
        (false, _) => {}
        (true, true) => {
            tracing::warn!(%file, "local kill switch on: the kill file exists, this process only observes")
        }
        (true, false) => {
            tracing::warn!(%file, "local kill switch off: the kill file is gone, directives are in force again");
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;

    #[test]
    fn any_kill_file_exists_unless_reading_fails() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("kill");
        assert!(!exists(&file).unwrap());
        assert!(!exists(&file.join("below/what/is/not")).unwrap());
        std::fs::write(&file, "").unwrap();
        assert!(exists(&file).unwrap() && exists(directory.path()).unwrap());
        assert!(
            !exists(&file.join("below")).unwrap(),
            "no file lies below a file"
        );
        assert!(exists(Path::new("a\0b")).is_err());
    }
}
