//! Says in the log when anything is killed, or no longer, whoever did it.

use plimsoll_core::kill::{KillGeneration, Scope};

use crate::state::{Command, Durable};

/// What was said last.
#[derive(Debug, Default)]
pub(crate) struct Said {
    last: Option<Durable>,
}

impl Said {
    /// Says what has changed since the last time; at the first, what is killed.
    pub(crate) fn on(&mut self, durable: &Durable) {
        let buckets = durable.bucket_kills.keys().cloned().map(Scope::Bucket);
        for scope in [Scope::Fleet].into_iter().chain(buckets) {
            let before = self.last.as_ref();
            let was = before.map_or(KillGeneration(0), |before| before.generation(&scope));
            let is = durable.generation(&scope);
            let command = durable.command(&scope);
            let same_cause = before.is_some_and(|before| before.command(&scope) == command);
            match (was.is_killed(), is.is_killed()) {
                (_, true) if was == is && same_cause => {}
                (_, true) => {
                    let Cause { reason, by, until_s } = cause(command);
                    let by_file = scope == Scope::Fleet && durable.killed_by_file;
                    tracing::warn!(
                        %scope, generation = is.0, by_file, reason, by, until_s,
                        "the kill switch is on: what it concerns only observes"
                    );
                }
                (_, false) if was == is => {}
                // A start tells of nothing that was over before it.
                (_, false) if before.is_none() => {}
                (_, false) => tracing::warn!(
                    %scope, generation = is.0, "the kill switch is off; what was killed stays in shadow"
                ),
            }
        }
        self.last = Some(durable.clone());
    }
}

/// A command as log fields.
#[derive(Default)]
struct Cause {
    reason: Option<String>,
    by: Option<String>,
    until_s: Option<i64>,
}

fn cause(command: Option<&Command>) -> Cause {
    let Some(command) = command else { return Cause::default() };
    let learned = || "learned from below".to_owned();
    Cause {
        reason: Some(command.reason.as_ref().map_or_else(learned, ToString::to_string)),
        by: command.by.as_ref().map(ToString::to_string),
        until_s: command.until_s,
    }
}
