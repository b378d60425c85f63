//! The operator's config file: the controller, its CA and the token file, so that no command needs them as
//! flags.

use std::env;
use std::path::{Path, PathBuf};

use plimsoll_host::regular_file;
use plimsoll_policy::{Document, Source};
use serde::Deserialize;

use super::Address;

/// The largest config file, in bytes.
const BYTES_MAX: usize = 64 << 10;

/// The settings of a config file; each is used where neither a flag nor an environment variable gives it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ConfigFile {
    pub(super) controller: Option<Address>,
    pub(super) ca: Option<PathBuf>,
    pub(super) token_file: Option<PathBuf>,
}

impl ConfigFile {
    /// Reads the file at `path`, or the default one if it exists.
    ///
    /// # Errors
    /// The reason with file, place and remedy, without the values of the file: they may be secrets in the
    /// wrong place.
    pub(super) fn read(path: Option<&Path>) -> Result<Self, String> {
        match (path, default_path()) {
            (Some(path), _) => Self::open(path),
            (None, Some(path)) if path.exists() => Self::open(&path),
            (None, _) => Ok(Self::default()),
        }
    }

    fn open(path: &Path) -> Result<Self, String> {
        let place = path.display().to_string();
        let unread = |error| format!("cannot read the config file {place}: {error}");
        let bytes = regular_file::read_whole(path, BYTES_MAX).map_err(unread)?;
        let mut config = Self::parse(&place, &bytes)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        for file in [&mut config.ca, &mut config.token_file].into_iter().flatten() {
            *file = folder.join(&*file);
        }
        Ok(config)
    }

    fn parse(name: &str, bytes: &[u8]) -> Result<Self, String> {
        let source = Source::from_bytes(name, bytes);
        let source = source.map_err(|_| format!("the config file {name} is not UTF-8"))?;
        let is_empty = |line: &str| line.is_empty() || line.starts_with('#');
        if source.text.lines().all(|line| is_empty(line.trim())) {
            return Ok(Self::default());
        }
        // Without the excerpt of the full error, which would show a token written into this file.
        Document::open(source).and_then(|document| document.parse()).map_err(|fault| fault.summary())
    }
}

/// `$XDG_CONFIG_HOME/plimsoll/config.yaml`, else `~/.config/plimsoll/config.yaml`.
fn default_path() -> Option<PathBuf> {
    let folder = |name: &str| env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let base = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")));
    Some(base?.join("plimsoll/config.yaml"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn settings_are_read_and_files_are_relative_to_the_folder() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.yaml");
        fs::write(&path, "controller: https://controller:7401\nca: ca.crt\ntoken_file: /run/token\n")
            .unwrap();
        let config = ConfigFile::read(Some(&path)).unwrap();
        assert_eq!(config.controller.unwrap().to_string(), "https://controller:7401");
        assert_eq!(config.ca, Some(directory.path().join("ca.crt")));
        assert_eq!(config.token_file, Some(PathBuf::from("/run/token")));
        let error = ConfigFile::read(Some(&directory.path().join("missing"))).unwrap_err();
        assert!(error.contains("cannot read the config file"), "{error}");
    }

    #[test]
    fn faults_have_a_place_and_a_remedy_and_show_no_value() {
        let secret = "plimsoll_0123456789012345678901234567890123456789012";
        for (text, expected) in [
            (
                format!("token_fil: {secret}"),
                "f:1:1: token_fil: unknown field `token_fil` (did you mean `token_file`?",
            ),
            (
                format!("ca: a\ntoken: {secret}"),
                "f:2:1: token: unknown field `token` (known here: `controller`, `ca`",
            ),
            (format!("token_file: [{secret}]"), "f:1:13: token_file"),
            (format!("- {secret}"), "f:1:1"),
            ("ca: a\nca: b".to_owned(), "f:2:1"),
            ("controller: 127.0.0.1:7401".to_owned(), "write it as http://127.0.0.1:7401"),
            ("ca: *a".to_owned(), "f:1:5"),
        ] {
            let error = ConfigFile::parse("f", text.as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{text}\n{error}");
            assert!(!error.contains(secret), "{error}");
        }
        assert!(ConfigFile::parse("f", b"ca: \xff").unwrap_err().contains("not UTF-8"));
        assert!(ConfigFile::parse("f", b"# nothing is set\n").unwrap().ca.is_none());
    }
}
