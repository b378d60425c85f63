//! A line of free text from an operator, such as the reason of a kill, that is safe in logs, tables and
//! files.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A line of free text: 1 to [`Text::BYTES_MAX`] bytes, not all blank, no control characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("minLength" = 1, "maxLength" = Text::BYTES_MAX)))]
#[serde(try_from = "String", into = "String")]
pub struct Text(String);

/// The rule of free text that an input breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidText {
    /// No text, or only blanks.
    #[error("it is empty; write in a few words why")]
    Empty,
    /// Too many bytes.
    #[error("{0} bytes exceed the maximum of {max}; write a shorter text", max = Text::BYTES_MAX)]
    TooLong(usize),
    /// A character that does not print.
    #[error("it contains a control character; write one line of plain text")]
    Control,
}

impl Text {
    /// The most bytes, in UTF-8.
    pub const BYTES_MAX: usize = 256;

    /// Validates a line of text and trims the blanks around it.
    ///
    /// # Errors
    /// If it is empty, too long, or contains characters that do not print.
    pub fn new(text: &str) -> Result<Self, InvalidText> {
        let text = text.trim_matches(' ');
        if text.trim().is_empty() {
            return Err(InvalidText::Empty);
        }
        if text.len() > Self::BYTES_MAX {
            return Err(InvalidText::TooLong(text.len()));
        }
        if text.chars().any(Self::is_unfit) {
            return Err(InvalidText::Control);
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns true for control characters, and for line and paragraph separators and bidirectional controls, which
    /// could forge lines.
    pub fn is_unfit(c: char) -> bool {
        c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Text {
    type Error = InvalidText;

    fn try_from(text: String) -> Result<Self, InvalidText> {
        Self::new(&text)
    }
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_printable_line() {
        let long = "x".repeat(Text::BYTES_MAX + 1);
        for (text, due) in [
            (
                "checkout refuses paying callers",
                Ok("checkout refuses paying callers"),
            ),
            ("  zu viel  ", Ok("zu viel")),
            ("überlast", Ok("überlast")),
            ("", Err(InvalidText::Empty)),
            (" \u{a0} ", Err(InvalidText::Empty)),
            ("a\nb", Err(InvalidText::Control)),
            ("a\u{1b}[31mb", Err(InvalidText::Control)),
            ("a\u{2028}b", Err(InvalidText::Control)),
            (&long, Err(InvalidText::TooLong(257))),
            (&long[1..], Ok(&long[1..])),
        ] {
            assert_eq!(
                Text::new(text).as_ref().map(Text::as_str),
                due.as_ref().map(|due| *due),
                "{text:?}"
            );
        }
        assert!(
            Text::try_from("a\nb".to_owned()).is_err(),
            "nor is it taken up from a file"
        );
    }
}
