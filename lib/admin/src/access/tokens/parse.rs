//! The text of a tokens file: lines of a name, a role, the hash of a token, and rights that differ
//! from the role's. Errors name the line and repeat nothing of it but a valid name, because a token
//! may be in the wrong place.

use std::collections::HashMap;
use std::str::FromStr;

use clap::ValueEnum;
use plimsoll_core::names::{InvalidName, Name};

use super::{AdminTokens, SHA256_OUTPUT_LEN, TOKENS_MAX, Token, TokenHash, is_token};
use crate::access::{AdminCaller, InvalidQuotaRights, QuotaRights, Role};

pub(super) const HASH_PREFIX: &str = "sha256:";
/// The names of other causes of changes, in the log of changes too.
const RESERVED: [&str; 3] = [AdminCaller::LOOPBACK, "file", "gate"];

/// A text that is no tokens file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokensError {
    /// A line is invalid.
    #[error("line {line}: {fault}")]
    Line {
        /// The line, from 1.
        line: usize,
        /// The rule that it breaks.
        fault: TokenFault,
    },
    /// There is no entry: a file that is just being written looks like this.
    #[error(
        "it has no token; `plimsoll tokens` makes one, and without --tokens no token is accepted"
    )]
    Empty,
    /// There are too many entries.
    #[error("it has more than {TOKENS_MAX} tokens; remove unused ones")]
    TooMany,
}

/// The rule that a line of a tokens file breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    /// The number of fields is not three or four.
    #[error("write it as NAME ROLE sha256:HEX [quota:RIGHTS[:PREFIX]], not with {0} fields")]
    Fields(usize),
    /// The first field is no name.
    #[error("the name of the token: {0}")]
    Name(#[from] InvalidName),
    /// The name has another meaning.
    #[error("the name `{0}` is reserved; choose another one")]
    Reserved(Name),
    /// The second field is no role.
    #[error("the second field is the role: viewer, operator or admin")]
    Role,
    /// The third field is a token.
    #[error(
        "this is a token, and the file takes only its hash; replace the token, because it may have been read here"
    )]
    Plain,
    /// The third field is no hash.
    #[error("the third field is the hash of the token: {HASH_PREFIX} and 64 hex digits")]
    Hash,
    /// The fourth field is no rights.
    #[error("the fourth field: {0}")]
    Rights(#[from] InvalidQuotaRights),
    /// The name is that of an earlier line.
    #[error("the name `{0}` is in line {1} already; a log that names it would be ambiguous")]
    SameName(Name, usize),
    /// The token is that of an earlier line.
    #[error("the token of `{0}` is in line {1} already; each name needs a token of its own")]
    SameToken(Name, usize),
}

impl FromStr for AdminTokens {
    type Err = TokensError;

    fn from_str(text: &str) -> Result<Self, TokensError> {
        let mut entries: Vec<Token> = Vec::new();
        let mut names = HashMap::new();
        let mut hashes = HashMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if entries.len() == TOKENS_MAX {
                return Err(TokensError::TooMany);
            }
            let at_line = |fault| TokensError::Line {
                line: number,
                fault,
            };
            let token: Token = line.parse().map_err(at_line)?;
            if let Some(earlier) = names.insert(token.name.clone(), number) {
                return Err(at_line(TokenFault::SameName(token.name, earlier)));
            }
            if let Some(earlier) = hashes.insert(token.hash.0, number) {
                return Err(at_line(TokenFault::SameToken(token.name, earlier)));
            }
            entries.push(token);
        }
        if entries.is_empty() {
            Err(TokensError::Empty)
        } else {
            Ok(Self { entries })
        }
    }
}

impl FromStr for Token {
    type Err = TokenFault;

    fn from_str(line: &str) -> Result<Self, TokenFault> {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        if fields.iter().any(|field| is_token(field)) {
            return Err(TokenFault::Plain);
        }
        let (own, rights) = match fields.as_slice() {
            [own @ .., rights] if own.len() == 3 => (own, Some(*rights)),
            own => (own, None),
        };
        let &[name, role, hash] = own else {
            return Err(TokenFault::Fields(fields.len()));
        };
        let name = Name::new(name)?;
        if RESERVED.contains(&name.as_str()) {
            return Err(TokenFault::Reserved(name));
        }
        let role = Role::from_str(role, false).map_err(|_| TokenFault::Role)?;
        let hash = hash.parse()?;
        Ok(Self {
            name,
            role,
            hash,
            rights: rights.map(QuotaRights::from_str).transpose()?,
        })
    }
}

impl FromStr for TokenHash {
    type Err = TokenFault;

    fn from_str(text: &str) -> Result<Self, TokenFault> {
        let digits = text
            .strip_prefix(HASH_PREFIX)
            .ok_or(TokenFault::Hash)?
            .as_bytes();
        let mut hash = Self([0; SHA256_OUTPUT_LEN]);
        if digits.len() != 2 * hash.0.len() {
            return Err(TokenFault::Hash);
        }
        let value = |digit: u8| {
            char::from(digit)
                .to_digit(16)
                .and_then(|value| u8::try_from(value).ok())
        };
        for (byte, pair) in hash.0.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = value(pair[0])
                .zip(value(pair[1]))
                .map(|(high, low)| high << 4 | low)
                .ok_or(TokenFault::Hash)?;
        }
        Ok(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::super::TOKEN_PREFIX;
    use super::*;

    fn hash(number: u32) -> String {
        TokenHash::of(&number.to_string()).to_string()
    }

    #[test]
    fn file_has_names_roles_hashes_and_comments() {
        let text = format!(
            "# team\n\n  ann\tviewer  {}  \r\nci/deploy:1 operator {} quota:take,read\n#x\nroot@ops admin {}  quota:give:{{a:b}}:",
            hash(1),
            hash(2),
            hash(3).to_ascii_uppercase().replace("SHA256:", "sha256:"),
        );
        let tokens: AdminTokens = text.parse().unwrap();
        let lines: Vec<String> = tokens.entries().iter().map(ToString::to_string).collect();
        let expected = [
            format!("ann viewer {}", hash(1)),
            format!("ci/deploy:1 operator {} quota:take,read", hash(2)),
            format!("root@ops admin {} quota:give:{{a:b}}:", hash(3)),
        ];
        assert_eq!(lines, expected);
        assert_eq!(
            lines.join("\n").parse(),
            Ok(tokens),
            "a printed entry is a line of the file"
        );
    }

    #[test]
    fn invalid_lines_are_named_with_their_fault() {
        let good = format!("ann viewer {}", hash(1));
        let faults = "
            ann viewer | not with 2 fields
            GOOD # comment | not with 5 fields
            ännie viewer sha256:00 | the name of the token
            129_XS viewer HASH | at most 128 bytes
            loopback admin HASH | `loopback` is reserved
            file admin HASH | `file` is reserved
            gate admin HASH | `gate` is reserved
            ben Admin HASH | viewer, operator or admin
            ben root HASH | viewer, operator or admin
            ben admin HASH quota:take,fill | some of take,give,read,reset
            ben admin HASH quota: | some of take,give,read,reset
            ben admin HASH take | quota:RIGHTS
            ben admin sha256: | 64 hex digits
            ben admin HASH0 | 64 hex digits
            ben admin DIGITS | 64 hex digits
            ben admin sha256:64_GS | 64 hex digits
            ben admin sha256:32_ES | 64 hex digits
            ann admin HASH | `ann` is in line 2 already
            ben admin ANNS | token of `ben` is in line 2 already
        "
        .replace("GOOD", &good)
        .replace("HASH", &hash(2))
        .replace("ANNS", &hash(1))
        .replace("DIGITS", &hash(2)[7..])
        .replace("129_XS", &"x".repeat(129))
        .replace("64_GS", &"g".repeat(64))
        .replace("32_ES", &"é".repeat(32));
        for row in faults.trim().lines() {
            let (line, part) = row.split_once(" | ").unwrap();
            let line = line.trim();
            let error = format!("#\n{good}\n{line}\n")
                .parse::<AdminTokens>()
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with("line 3: ") && error.contains(part),
                "{line}: {error}"
            );
        }
    }

    #[test]
    fn plain_token_in_file_is_not_repeated() {
        let token = format!("{TOKEN_PREFIX}{:043}", 7);
        for line in [
            format!("ann viewer {token}"),
            token.clone(),
            format!("{token} viewer {}", hash(1)),
        ] {
            let error = line.parse::<AdminTokens>().unwrap_err().to_string();
            assert!(
                error.contains("only its hash") && !error.contains(&token),
                "{error}"
            );
        }
    }

    #[test]
    fn empty_and_very_long_files_are_refused() {
        for empty in ["", "\n\n", "# all removed\n"] {
            assert_eq!(
                empty.parse::<AdminTokens>(),
                Err(TokensError::Empty),
                "{empty:?}"
            );
        }
        let lines = |count: usize| -> String {
            (0..count)
                .map(|number| format!("n{number} viewer {}\n", hash(number as u32)))
                .collect()
        };
        assert_eq!(
            lines(TOKENS_MAX)
                .parse::<AdminTokens>()
                .unwrap()
                .entries()
                .len(),
            TOKENS_MAX
        );
        assert_eq!(
            lines(TOKENS_MAX + 1).parse::<AdminTokens>(),
            Err(TokensError::TooMany)
        );
    }
}
