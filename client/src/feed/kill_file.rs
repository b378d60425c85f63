//! The kill switch of this one process: a file on its machine, or its environment, says that it only observes.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_proto::shared::Shared;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::Feed;
use crate::subscription::Subscription;

/// How often it is looked at whether the file is there.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The variable of the environment, which a process has from its start on.
pub(crate) const VARIABLE: &str = "PLIMSOLL_KILL";

/// What of this machine says that this process only observes.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalKill {
    by_environment: bool,
    file: Option<PathBuf>,
}

impl LocalKill {
    /// What the environment says now, and a file that may come and go.
    pub(crate) fn new(variable: Option<&OsStr>, file: Option<PathBuf>) -> Self {
        if let Some(value) = variable.filter(|value| !says_so(value) && !says_no(value)) {
            tracing::warn!(
                ?value,
                "{VARIABLE} is neither 1, true or on, nor 0, false or off: it is taken as off"
            );
        }
        Self { by_environment: variable.is_some_and(says_so), file }
    }

    /// Whether it can change while the process lives.
    pub(crate) const fn can_change(&self) -> bool {
        self.file.is_some() && !self.by_environment
    }

    /// Takes it up before the first request. Looks at the file once.
    pub(crate) fn begin(&self, subscription: &mut Subscription) {
        let by_file = self.file.as_deref().is_some_and(|file| is_there(file).unwrap_or(false));
        if subscription.observe(self.by_environment || by_file) {
            let file = self.file.as_deref().filter(|_| by_file).map(|file| file.display().to_string());
            tracing::warn!(
                by_environment = self.by_environment,
                file,
                "this process only observes from its start on"
            );
        }
    }
}

/// Any of the words that people write for yes.
fn says_so(value: &OsStr) -> bool {
    let yes = ["1", "true", "on"];
    value.to_str().is_some_and(|value| yes.iter().any(|yes| value.trim().eq_ignore_ascii_case(yes)))
}

/// Any of those for no, and nothing at all.
fn says_no(value: &OsStr) -> bool {
    let no = ["", "0", "false", "off"];
    value.to_str().is_some_and(|value| no.iter().any(|no| value.trim().eq_ignore_ascii_case(no)))
}

/// Whether there is anything of this name, a link that leads nowhere among it.
fn is_there(file: &Path) -> io::Result<bool> {
    match file.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

impl Feed {
    /// Follows the file, if there is one to follow. Never ends.
    pub(super) async fn observe(&self) {
        let Some(file) = self.local_kill.file.clone().filter(|_| self.local_kill.can_change()) else {
            return std::future::pending().await;
        };
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut complained = false;
        loop {
            ticks.tick().await;
            let path = file.clone();
            match spawn_blocking(move || is_there(&path)).await {
                Ok(Ok(there)) => {
                    complained = false;
                    follow(&self.subscription, &file, there);
                }
                // Not to be told is no answer: what held goes on.
                Ok(Err(error)) => {
                    if !std::mem::replace(&mut complained, true) {
                        let file = file.display();
                        tracing::warn!(%file, %error, "the kill file cannot be looked at; what held before goes on");
                    }
                }
                // The runtime ends, and takes what it was doing with it.
                Err(_) => {}
            }
        }
    }
}

fn follow(subscription: &Shared<Subscription>, file: &Path, there: bool) {
    let is_new = subscription.with(|subscription, _| subscription.observe(there));
    let file = file.display();
    match (is_new, there) {
        (false, _) => {}
        (true, true) => tracing::warn!(%file, "the kill file is there: this process only observes"),
        (true, false) => {
            tracing::warn!(%file, "the kill file is gone: this process does again as it is directed")
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_so_in_any_of_the_words_for_yes() {
        for (value, due) in [
            (Some("1"), true),
            (Some("true"), true),
            (Some("on"), true),
            (Some("ON"), true),
            (Some(" True "), true),
            (Some("0"), false),
            (Some("false"), false),
            (Some("off"), false),
            (Some("no"), false),
            (Some(""), false),
            (None, false),
        ] {
            let kill = LocalKill::new(value.map(OsStr::new), None);
            assert_eq!(kill.by_environment, due, "{value:?}");
            assert!(!kill.can_change());
            // Only of what is neither it is said that it does nothing.
            let neither = value.is_some_and(|value| !due && !says_no(OsStr::new(value)));
            assert_eq!(neither, value == Some("no"), "{value:?}");
        }
    }

    #[test]
    fn a_file_is_there_whatever_it_is_and_not_to_be_told_is_no_answer() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("kill");
        assert!(!is_there(&file).unwrap());
        assert!(!is_there(&file.join("below/what/is/not")).unwrap());
        std::fs::write(&file, "").unwrap();
        assert!(is_there(&file).unwrap() && is_there(directory.path()).unwrap());
        assert!(!is_there(&file.join("below")).unwrap(), "no file lies below a file");
        assert!(is_there(Path::new("a\0b")).is_err());
    }
}
