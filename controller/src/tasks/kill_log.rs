//! Logs every change of the kill switch, from whichever source.

use plimsoll_core::kill::{KillGeneration, Scope};

use crate::state::{Command, DurableState};

/// The log of the kill switch, with the state that was logged last.
#[derive(Debug, Default)]
pub(crate) struct KillLog {
    last: Option<DurableState>,
}

impl KillLog {
    /// Logs the changes since the last call; at the first call, the kills in force.
    pub(crate) fn on(&mut self, durable: &DurableState) {
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
                    let reason = command.map(Command::why);
                    let by = command.and_then(|command| command.by.as_ref()).map(ToString::to_string);
                    let until_s = command.and_then(|command| command.until_s);
                    let by_file = scope == Scope::Fleet && durable.killed_by_file;
                    tracing::warn!(
                        %scope, generation = is.0, by_file, reason, by, until_s,
                        "kill switch on: its buckets are in shadow"
                    );
                }
                (_, false) if was == is => {}
                // At the start, kills that have ended are not logged.
                (_, false) if before.is_none() => {}
                (true, false) => tracing::warn!(
                    %scope, generation = is.0, "kill switch off: its buckets stay in shadow until they are promoted"
                ),
                (false, false) => tracing::warn!(
                    %scope, generation = is.0,
                    "kill generation moved: past a claim, or past a kill that began and ended at an aggregator"
                ),
            }
        }
        self.last = Some(durable.clone());
    }
}
