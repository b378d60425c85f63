//! The rules file of a running sidecar, read at the start and after each change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use plimsoll_host::watch::{self, Contents, Files, Parser};
use plimsoll_policy::{FILE_BYTES_MAX, PolicyError, Source, Warning};
use tokio::sync::mpsc;

use super::{Rules, RulesHash};
use crate::limits::Limits;

/// File of rules.
#[derive(Clone, Debug)]
pub struct RulesFile {
    path: PathBuf,
}

/// Reason why a file has no rules.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error(transparent)]
    Unread(#[from] watch::ReadError),
    /// The file was read and is not valid.
    #[error(transparent)]
    Invalid(#[from] PolicyError),
}

/// Reloads of a rules file, for metrics and the status.
#[derive(Debug, Default)]
pub struct Reloads {
    accepted: AtomicU64,
    refused: AtomicU64,
    /// Reason why the file on disk is not used.
    refusal: ArcSwapOption<String>,
}

impl RulesFile {
    /// Names a file.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// Reads the file. Blocks.
    ///
    /// # Errors
    /// When the file cannot be read, or is not valid.
    pub fn read(&self) -> Result<(Rules, Vec<Warning>), ReadError> {
        self.parse(&self.files().read()?)
    }

    /// Applies every valid change of the file. Logs and counts a change that is invalid or does not
    /// fit the limiter: it has no effect.
    pub async fn follow(self, limits: Limits, reloads: Arc<Reloads>) {
        let current = limits.in_force().rules.hash();
        let (tx, mut changes) = mpsc::channel(1);
        let watching = tokio::spawn(self.files().watch(self, Some(current), || (), tx));
        while let Some(change) = changes.recv().await {
            reloads.apply(change, &limits);
        }
        if let Ok(Err(error)) = watching.await {
            tracing::error!(%error, "rules watch ended: restart the sidecar to read the file again");
        }
    }

    fn files(&self) -> Files {
        Files {
            paths: vec![self.path.clone()],
            bytes_max: FILE_BYTES_MAX,
            large: Vec::new(),
        }
    }
}

impl Parser for RulesFile {
    type Version = RulesHash;
    type Output = (Rules, Vec<Warning>);
    type Error = ReadError;

    fn version(&self, contents: &Contents) -> RulesHash {
        RulesHash::of(text(contents))
    }

    fn parse(&self, contents: &Contents) -> Result<Self::Output, ReadError> {
        let name = self.path.display().to_string();
        Ok(Rules::read(Source::from_bytes(&name, text(contents))?)?)
    }
}

fn text(contents: &Contents) -> &[u8] {
    contents.first().map_or(&[], Vec::as_slice)
}

impl Reloads {
    fn apply(&self, change: watch::Reload<RulesFile>, limits: &Limits) {
        let refusal = match change {
            Ok((rules, warnings)) => {
                let hash = rules.hash();
                let replaced = limits.replace(rules).map_err(|error| error.to_string());
                if replaced.is_ok() {
                    tracing::info!(rules = %hash, "rules reloaded");
                    warnings
                        .iter()
                        .for_each(|warning| tracing::warn!("{warning}"));
                }
                replaced.err()
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(refusal) = &refusal {
            tracing::error!("rules refused, the last good ones stay in force: {refusal}");
        }
        let count = if refusal.is_none() {
            &self.accepted
        } else {
            &self.refused
        };
        count.fetch_add(1, Ordering::Relaxed);
        self.refusal.store(refusal.map(Arc::new));
    }

    /// Returns the number of applied changes.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Returns the number of refused changes.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns the reason why the file on disk is not used, if it is not.
    #[must_use]
    pub fn refusal(&self) -> Option<Arc<String>> {
        self.refusal.load_full()
    }
}

#[cfg(test)]
mod tests;
