//! The policy files: reads the two as one policy, and reports changes of their content.

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_host::watch::{self, Contents, Files, Parser, WatchError};
use plimsoll_policy::{
    FILE_BYTES_MAX, ONE_CLASS_TENANTS, Policy, PolicyError, PolicyHash, Source, Warning,
};
use tokio::sync::mpsc;

use crate::tasks::unix_s;

/// The paths of the policy files.
#[derive(Clone, Debug)]
pub struct PolicyFiles {
    /// The path of `policy.yaml`.
    pub policy: PathBuf,
    /// The path of `tenants.yaml`; without it all tenants are of one class.
    pub tenants: Option<PathBuf>,
}

/// A change of the content: a policy with its warnings, or the reason why the current one stays.
pub(crate) type Reload = watch::Reload<PolicyFiles>;

/// Why the files cannot be read as a policy.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file cannot be read.
    #[error(transparent)]
    Unread(#[from] watch::ReadError),
    /// A file was read and is not valid.
    #[error(transparent)]
    Invalid(#[from] PolicyError),
}

impl PolicyFiles {
    /// Reads both files as one policy. Blocks; reads at most one byte more than the largest file allowed.
    ///
    /// # Errors
    /// When a file cannot be read, or the two are no policy.
    pub fn read(&self) -> Result<(Policy, Vec<Warning>), ReadError> {
        Ok(self.parse_policy(&self.files().read()?)?)
    }

    /// Returns the hash of both files as they are now. Blocks.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn hash(&self) -> Result<PolicyHash, ReadError> {
        Ok(self.version(&self.files().read()?))
    }

    /// Sends one [`Reload`] for every change of content, beginning with the first content that is not
    /// `current`, until the receiver is dropped. Calls `on_read` whenever both files were read.
    ///
    /// # Errors
    /// When the reading thread panics.
    pub(crate) async fn watch(
        self,
        current: Option<PolicyHash>,
        on_read: impl Fn() + Send,
        tx: mpsc::Sender<Reload>,
    ) -> Result<(), WatchError> {
        self.files().watch(self, current, on_read, tx).await
    }

    fn files(&self) -> Files {
        let paths = [Some(&self.policy), self.tenants.as_ref()]
            .into_iter()
            .flatten();
        Files {
            paths: paths.cloned().collect(),
            bytes_max: FILE_BYTES_MAX,
        }
    }

    fn parse_policy(&self, contents: &Contents) -> Result<(Policy, Vec<Warning>), PolicyError> {
        let policy = self.policy.display().to_string();
        let tenants = self
            .tenants
            .as_ref()
            .map_or("(built-in tenants)".to_owned(), |path| {
                path.display().to_string()
            });
        let (of_policy, of_tenants) = texts(contents);
        let (policy, mut warnings) = Policy::read(
            Source::from_bytes(&policy, of_policy)?,
            Source::from_bytes(&tenants, of_tenants)?,
        )?;
        let now = unix_s();
        warnings.retain(|warning| warning.holds_at(now));
        Ok((policy, warnings))
    }
}

impl Parser for PolicyFiles {
    type Version = PolicyHash;
    type Output = (Arc<Policy>, Vec<Warning>);
    type Error = ReadError;

    fn version(&self, contents: &Contents) -> PolicyHash {
        let (policy, tenants) = texts(contents);
        PolicyHash::of(policy, tenants)
    }

    fn parse(&self, contents: &Contents) -> Result<Self::Output, ReadError> {
        let (policy, warnings) = self.parse_policy(contents)?;
        Ok((Arc::new(policy), warnings))
    }
}

/// Returns the bytes of both files, in the order of [`PolicyFiles::files`].
fn texts(contents: &Contents) -> (&[u8], &[u8]) {
    let policy = contents.first().map_or(&[][..], Vec::as_slice);
    (
        policy,
        contents
            .get(1)
            .map_or(ONE_CLASS_TENANTS.as_bytes(), Vec::as_slice),
    )
}
