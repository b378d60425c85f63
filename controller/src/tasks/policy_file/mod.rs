//! The policy files: reads them, and a catalogue of tenants, as one policy, and reports changes of their content.

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_host::regular_file;
use plimsoll_host::watch::{self, Contents, Files, Parser, WatchError};
use plimsoll_policy::{
    CATALOGUE_BYTES_MAX, Catalogue, CatalogueSource, FILE_BYTES_MAX, ONE_CLASS_TENANTS, Policy,
    PolicyError, PolicyHash, Source, Warning,
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
    /// The path of the catalogue of tenants.
    pub catalogue: Option<PathBuf>,
}

/// The content that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    texts: PolicyHash,
    /// What the file system says of the catalogue, which is too large to read again and again.
    catalogue: Option<Vec<u8>>,
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
    /// Reads all files as one policy. Blocks; reads at most one byte more than the largest file allowed.
    ///
    /// # Errors
    /// When a file cannot be read, or they are no policy.
    pub fn read(&self) -> Result<(Policy, Vec<Warning>), ReadError> {
        self.parse_policy(&self.files().read()?)
    }

    /// Returns the policy of the files, and the version that it was read from. Blocks.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn read_version(&self) -> Result<(Policy, Vec<Warning>, Version), ReadError> {
        let contents = self.files().read()?;
        let (policy, warnings) = self.parse_policy(&contents)?;
        Ok((policy, warnings, self.version(&contents)))
    }

    /// Returns the hash of the files as they are now. Blocks.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn hash(&self) -> Result<PolicyHash, ReadError> {
        self.hash_of(&self.version(&self.files().read()?))
    }

    /// Does the same as [`hash`](Self::hash), and reads the catalogue only if the files are not of the `known` version.
    /// Keeps their version there.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn hash_again(
        &self,
        known: &mut Option<(Version, PolicyHash)>,
    ) -> Result<PolicyHash, ReadError> {
        let version = self.version(&self.files().read()?);
        if let Some((of, hash)) = known
            && *of == version
        {
            return Ok(*hash);
        }
        let hash = self.hash_of(&version)?;
        *known = Some((version, hash));
        Ok(hash)
    }

    fn hash_of(&self, version: &Version) -> Result<PolicyHash, ReadError> {
        Ok(match self.read_catalogue()? {
            None => version.texts,
            Some((_, bytes)) => version.texts.with_catalogue(Catalogue::hash_of(&bytes)),
        })
    }

    /// Sends one [`Reload`] for every change of content, beginning with the first content that is not
    /// `current`, until the receiver is dropped. Calls `on_read` whenever the files were read.
    ///
    /// # Errors
    /// When the reading thread panics.
    pub(crate) async fn watch(
        self,
        current: Option<Version>,
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
            large: self.catalogue.iter().cloned().collect(),
        }
    }

    fn read_catalogue(&self) -> Result<Option<(String, Vec<u8>)>, watch::ReadError> {
        let Some(path) = &self.catalogue else {
            return Ok(None);
        };
        let bytes = regular_file::read(path, CATALOGUE_BYTES_MAX);
        let bytes = bytes.map_err(|source| watch::ReadError::Io {
            path: path.clone(),
            source,
        })?;
        Ok(Some((path.display().to_string(), bytes)))
    }

    fn parse_policy(&self, contents: &Contents) -> Result<(Policy, Vec<Warning>), ReadError> {
        let policy = self.policy.display().to_string();
        let tenants = self
            .tenants
            .as_ref()
            .map_or("(built-in tenants)".to_owned(), |path| {
                path.display().to_string()
            });
        let (of_policy, of_tenants) = self.texts(contents);
        let of_policy = Source::from_bytes(&policy, of_policy)?;
        let of_tenants = Source::from_bytes(&tenants, of_tenants)?;
        let (policy, mut warnings) = self.read_with_catalogue(of_policy, of_tenants)?;
        let now = unix_s();
        warnings.retain(|warning| warning.holds_at(now));
        Ok((policy, warnings))
    }

    /// Reads texts that are not saved as the files would be read. Without tenants they are those of `in_force`, and so is
    /// the catalogue, whose rows need the plans there. Blocks.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn read_texts(
        &self,
        policy: Source<'_>,
        tenants: Option<Source<'_>>,
        in_force: &Policy,
    ) -> Result<Policy, ReadError> {
        if let Some(tenants) = tenants {
            return Ok(self.read_with_catalogue(policy, tenants)?.0);
        }
        let tenants = Source {
            name: "(tenants in force)",
            text: in_force.texts().tenants(),
        };
        let catalogue = in_force.shared_catalogue().cloned();
        Ok(Policy::read(policy, tenants)?.0.with_catalogue(catalogue))
    }

    fn read_with_catalogue(
        &self,
        policy: Source<'_>,
        tenants: Source<'_>,
    ) -> Result<(Policy, Vec<Warning>), ReadError> {
        let Some((name, bytes)) = self.read_catalogue()? else {
            return Ok(Policy::read(policy, tenants)?);
        };
        let (name, bytes) = (name.as_str(), bytes.as_slice());
        let catalogue = CatalogueSource { name, bytes };
        Ok(Policy::read_with(policy, tenants, catalogue)?)
    }

    /// Returns the bytes of both texts, in the order of [`Self::files`].
    fn texts<'a>(&self, contents: &'a Contents) -> (&'a [u8], &'a [u8]) {
        let text = |at: usize| contents.get(at).map(Vec::as_slice);
        let tenants = self.tenants.as_ref().and_then(|_| text(1));
        (
            text(0).unwrap_or_default(),
            tenants.unwrap_or(ONE_CLASS_TENANTS.as_bytes()),
        )
    }
}

impl Parser for PolicyFiles {
    type Version = Version;
    type Output = (Arc<Policy>, Vec<Warning>);
    type Error = ReadError;

    fn version(&self, contents: &Contents) -> Version {
        let (policy, tenants) = self.texts(contents);
        Version {
            texts: PolicyHash::of(policy, tenants),
            catalogue: self.catalogue.as_ref().and(contents.last()).cloned(),
        }
    }

    fn parse(&self, contents: &Contents) -> Result<Self::Output, ReadError> {
        let (policy, warnings) = self.parse_policy(contents)?;
        Ok((Arc::new(policy), warnings))
    }

    fn is_unread(error: &ReadError) -> bool {
        matches!(error, ReadError::Unread(_))
    }
}
