//! The token of an operator: generated once, kept in a file that only its owner can read, and sent
//! with every request.

use std::fmt;
use std::fs::Metadata;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use plimsoll_admin::access::{TOKEN_PREFIX, TOKEN_RANDOM_CHARS, is_token};
use plimsoll_host::regular_file;

const RANDOM_BYTES: usize = 32;

/// The token as it is sent. `Debug` does not show it.
#[derive(Clone)]
pub(crate) struct Token(String);

impl Token {
    pub(crate) fn generate() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; RANDOM_BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(Self(format!(
            "{TOKEN_PREFIX}{}",
            URL_SAFE_NO_PAD.encode(bytes)
        )))
    }

    /// Reads a token from a file that only its owner can read.
    ///
    /// # Errors
    /// The reason, without any content of the file.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let place = path.display();
        let unread = |error| format!("cannot read the token file {place}: {error}");
        let file = regular_file::open(path).map_err(unread)?;
        refuse_open_to_others(path, &file.metadata().map_err(unread)?)?;
        let mut text = String::new();
        let line_bytes_max = TOKEN_PREFIX.len() + TOKEN_RANDOM_CHARS + "\r\n".len();
        // One byte more tells that the file is longer.
        file.take(line_bytes_max as u64 + 1)
            .read_to_string(&mut text)
            .map_err(unread)?;
        let token = text.trim_end();
        if is_token(token) && text.len() <= line_bytes_max {
            return Ok(Self(token.to_owned()));
        }
        Err(format!(
            "{place} holds no token: one line is expected, {TOKEN_PREFIX} and {TOKEN_RANDOM_CHARS} more characters, \
             as `plimsoll tokens add NAME --role ROLE --file TOKENS --out {place}` writes it"
        ))
    }

    /// Returns the token itself, only for its file, its hash and the header of a request.
    pub(crate) fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Fails if the group or others have any access to a file, and names the remedy.
fn refuse_open_to_others(path: &Path, metadata: &Metadata) -> Result<(), String> {
    let (mode, place) = (metadata.permissions().mode() & 0o777, path.display());
    if mode & 0o077 == 0 {
        return Ok(());
    }
    Err(format!(
        "other users have access to the token file {place} (mode {mode:04o}): run `chmod 600 {place}`, and replace the \
         token if they are not trusted"
    ))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn only_private_token_files_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let token = Token::generate().unwrap();
        for ending in ["", "\n", "\r\n"] {
            write(&path, &format!("{}{ending}", token.secret()), 0o600);
            assert_eq!(Token::read(&path).unwrap().secret(), token.secret());
        }
        for mode in [0o640, 0o604, 0o644, 0o620] {
            write(&path, token.secret(), mode);
            let error = Token::read(&path).unwrap_err();
            assert!(
                error.contains(&format!("chmod 600 {}", path.display())),
                "{error}"
            );
            assert!(!error.contains(token.secret()), "{mode:o}");
        }
        let error = Token::read(&directory.path().join("missing")).unwrap_err();
        assert!(
            error.contains("cannot read the token file") && error.contains("missing"),
            "{error}"
        );
    }

    #[test]
    fn file_without_token_is_refused_unquoted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let token = Token::generate().unwrap();
        for bad in [
            String::new(),
            "secret".to_owned(),
            format!("{}x", token.secret()),
            format!("{}\n{}\n", token.secret(), token.secret()),
            format!("{}\n\n\nother", token.secret()),
            token.secret().replace(TOKEN_PREFIX, "another__"),
            format!("{TOKEN_PREFIX}{}", "ä".repeat(22)),
            format!("{TOKEN_PREFIX}{}", " ".repeat(TOKEN_RANDOM_CHARS)),
        ] {
            write(&path, &bad, 0o600);
            let error = Token::read(&path).unwrap_err();
            assert!(
                error.contains("holds no token") && error.contains("tokens add"),
                "{error}"
            );
            let secret = bad.trim().trim_start_matches(TOKEN_PREFIX);
            assert!(secret.is_empty() || !error.contains(secret), "{error}");
        }
    }

    #[test]
    fn tokens_differ_and_are_not_shown() {
        let (one, other) = (Token::generate().unwrap(), Token::generate().unwrap());
        assert_ne!(one.secret(), other.secret());
        assert_eq!(one.secret().len(), TOKEN_PREFIX.len() + TOKEN_RANDOM_CHARS);
        assert_eq!(format!("{one:?}"), "Token(..)");
    }
}
