//! Bearer tokens: their form, the set of accepted tokens, and the comparison with it.

mod file;
mod parse;

use std::fmt;

use plimsoll_core::names::Name;
use ring::digest::{self, SHA256, SHA256_OUTPUT_LEN};
use subtle::ConstantTimeEq;

pub use self::file::{FILE_BYTES_MAX as TOKEN_FILE_BYTES_MAX, TokenFile, TokenFileError};
pub use self::parse::{TokenFault, TokensError};

use super::{QuotaRights, Role};

/// The beginning of every token. Scanners of leaked secrets find tokens by it.
pub const TOKEN_PREFIX: &str = "plimsoll_";
/// The characters of a token after the prefix: 32 random bytes in base64url.
pub const TOKEN_RANDOM_CHARS: usize = 43;
/// Maximum number of tokens of a file.
pub const TOKENS_MAX: usize = 1_000;

/// The accepted tokens, as hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminTokens {
    entries: Vec<Token>,
}

/// One entry of a tokens file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The name of its holder.
    pub name: Name,
    /// The role that it gives.
    pub role: Role,
    /// The hash of the token.
    pub hash: TokenHash,
    /// Its rights at the Redis port of a quota server; `None` for the rights of the role.
    pub rights: Option<QuotaRights>,
}

/// The SHA-256 of a token. As text: `sha256:HEX`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenHash([u8; SHA256_OUTPUT_LEN]);

/// Returns true if a text has the form of a token. Only texts of this form are compared, so a short
/// password opens nothing, even if its hash is in the file.
pub fn is_token(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    text.strip_prefix(TOKEN_PREFIX)
        .is_some_and(|random| random.len() == TOKEN_RANDOM_CHARS && random.bytes().all(is_allowed))
}

impl AdminTokens {
    /// Returns the entries in the order of the file.
    pub fn entries(&self) -> &[Token] {
        &self.entries
    }

    /// Returns the entry of a presented token. Compares with every entry, each in constant time.
    pub(super) fn find(&self, token: &str) -> Option<&Token> {
        let hash = TokenHash::of(token);
        let mut found = None;
        for entry in &self.entries {
            if bool::from(entry.hash.0.ct_eq(&hash.0)) {
                found = Some(entry);
            }
        }
        found.filter(|_| is_token(token))
    }
}

/// The line of a tokens file.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.name, self.role, self.hash)?;
        self.rights
            .as_ref()
            .map_or(Ok(()), |rights| write!(f, " {rights}"))
    }
}

impl TokenHash {
    /// Hashes a token.
    pub fn of(token: &str) -> Self {
        let mut hash = [0; SHA256_OUTPUT_LEN];
        hash.copy_from_slice(digest::digest(&SHA256, token.as_bytes()).as_ref());
        Self(hash)
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(parse::HASH_PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Without the hash: logs are read by more people than the file.
impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u32) -> String {
        format!("{TOKEN_PREFIX}{number:043}")
    }

    #[test]
    fn token_is_found_by_its_hash_alone() {
        let text = format!(
            "ann viewer {}\nben admin {}\n",
            TokenHash::of(&token(1)),
            TokenHash::of(&token(2))
        );
        let tokens: AdminTokens = text.parse().unwrap();
        assert_eq!(tokens.find(&token(1)).unwrap().name.as_str(), "ann");
        assert_eq!(tokens.find(&token(2)).unwrap().role, Role::Admin);
        for wrong in [
            &token(3),
            "",
            "ben",
            &TokenHash::of(&token(2)).to_string(),
            &token(2)[..51],
        ] {
            assert_eq!(tokens.find(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn hashed_password_opens_nothing() {
        let tokens: AdminTokens = format!("ann admin {}\n", TokenHash::of("hunter2"))
            .parse()
            .unwrap();
        assert_eq!(tokens.find("hunter2"), None);
    }

    #[test]
    fn token_has_a_prefix_and_43_characters() {
        assert!(is_token(
            "plimsoll_AZaz09-_AZaz09-_AZaz09-_AZaz09-_AZaz09-_123"
        ));
        for wrong in [
            token(1).replace("plimsoll", "Plimsoll"),
            token(1) + "0",
            token(1).replacen('0', "=", 1),
        ] {
            assert!(!is_token(&wrong), "{wrong}");
        }
    }

    #[test]
    fn hash_equals_sha256sum_and_stays_hidden() {
        let hash = TokenHash::of("abc");
        let known = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash.to_string(), known);
        assert!(!format!("{hash:?}").contains("ba78"));
    }
}
