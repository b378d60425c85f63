//! The tokens file of a running process: read again each second, and a file that is invalid changes nothing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_host::regular_file;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::{AdminTokens, TokensError};

/// The largest tokens file, in bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;
const READ_EVERY: Duration = Duration::from_secs(1);

/// A tokens file and its current tokens. Clones share them.
#[derive(Clone, Debug)]
pub struct TokenFile {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    tokens: Arc<AdminTokens>,
    /// Why the file as it is now is not applied.
    refused: Option<String>,
}

/// A tokens file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("tokens file {}: {fault}", .path.display())]
pub struct TokenFileError {
    path: PathBuf,
    fault: Fault,
}

#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("{0}")]
    Read(#[from] io::Error),
    #[error("it is not UTF-8 text")]
    NotText,
    #[error(transparent)]
    AdminTokens(#[from] TokensError),
}

impl TokenFile {
    /// Reads a tokens file. Blocks.
    ///
    /// # Errors
    /// If it cannot be read, or a line is invalid.
    pub fn open(path: &Path) -> Result<Self, TokenFileError> {
        let tokens = Arc::new(read(path)?);
        let state = Mutex::new(State {
            tokens,
            refused: None,
        });
        Ok(Self {
            inner: Arc::new(Inner {
                path: path.to_owned(),
                state,
            }),
        })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Returns the current tokens.
    pub fn tokens(&self) -> Arc<AdminTokens> {
        Arc::clone(&self.state().tokens)
    }

    /// Returns why the file as it is now is not applied; `None` if it is.
    pub fn refused(&self) -> Option<String> {
        self.state().refused.clone()
    }

    /// Follows the file. Never ends.
    pub async fn follow(&self) {
        loop {
            sleep(READ_EVERY).await;
            let file = self.clone();
            if let Err(error) = spawn_blocking(move || file.reload()).await {
                tracing::error!(%error, "the task that reads the tokens file panicked");
            }
        }
    }

    /// Reads the file again, and applies its tokens unless it is invalid. Logs each change once.
    pub fn reload(&self) {
        let read = read(self.path());
        let mut state = self.state();
        match read {
            Ok(tokens) => {
                let was_refused = state.refused.take().is_some();
                if was_refused || *state.tokens != tokens {
                    tracing::info!(
                        path = %self.path().display(), tokens = tokens.entries().len(), "tokens file in force"
                    );
                    state.tokens = Arc::new(tokens);
                }
            }
            Err(error) => {
                let reason = error.fault.to_string();
                if state.refused.as_ref() != Some(&reason) {
                    tracing::error!(%error, "tokens file refused: the tokens read before stay in force");
                    state.refused = Some(reason);
                }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(path: &Path) -> Result<AdminTokens, TokenFileError> {
    let tokens = || -> Result<AdminTokens, Fault> {
        let bytes = regular_file::read_whole(path, FILE_BYTES_MAX)?;
        Ok(std::str::from_utf8(&bytes)
            .map_err(|_| Fault::NotText)?
            .parse()?)
    };
    tokens().map_err(|fault| TokenFileError {
        path: path.to_owned(),
        fault,
    })
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::super::TokenHash;
    use super::*;

    fn line(name: &str) -> String {
        format!("{name} viewer {}\n", TokenHash::of(name))
    }

    fn names(file: &TokenFile) -> Vec<String> {
        file.tokens()
            .entries()
            .iter()
            .map(|token| token.name.to_string())
            .collect()
    }

    #[test]
    fn garbage_file_keeps_tokens_until_fixed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        fs::write(&path, line("ann")).unwrap();
        let file = TokenFile::open(&path).unwrap();
        let clear = || {
            let _ = fs::remove_file(&path);
            let _ = fs::remove_dir(&path);
        };
        let spoil: [(&dyn Fn(), &str); 8] = [
            (&|| fs::write(&path, "").unwrap(), "no token"),
            (&|| fs::write(&path, line("ann") + "ben").unwrap(), "line 2"),
            (&|| fs::write(&path, [0xff, 0xfe, 0]).unwrap(), "not UTF-8"),
            (
                &|| fs::File::create(&path).unwrap().set_len(10 << 30).unwrap(),
                "larger than 1024 KiB",
            ),
            (&clear, "No such file"),
            (&|| fs::create_dir(&path).unwrap(), "a directory"),
            (
                &|| {
                    assert!(
                        Command::new("mkfifo")
                            .arg(&path)
                            .status()
                            .unwrap()
                            .success()
                    )
                },
                "a FIFO",
            ),
            (&|| symlink("/dev/zero", &path).unwrap(), "a device"),
        ];
        for (spoil, reason) in spoil {
            clear();
            spoil();
            file.reload();
            assert_eq!(names(&file), ["ann"], "{reason}");
            let refused = file.refused().unwrap();
            assert!(refused.contains(reason), "{reason}: {refused}");
        }
        clear();
        fs::write(&path, line("ben") + &line("cleo")).unwrap();
        file.reload();
        assert_eq!(
            (names(&file), file.refused()),
            (vec!["ben".to_owned(), "cleo".to_owned()], None)
        );
    }

    #[test]
    fn invalid_first_token_file_names_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        fs::write(&path, line("ann") + "ben").unwrap();
        let error = TokenFile::open(&path).unwrap_err().to_string();
        assert!(
            error.contains(path.to_str().unwrap()) && error.contains("line 2: "),
            "{error}"
        );
    }
}
