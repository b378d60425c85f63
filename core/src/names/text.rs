//! A line of a person's own words, such as the reason of a kill: what may stand in a log, a table and a file.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A line of a person's own words: 1 to [`Text::BYTES_MAX`] bytes, not all blank, no control characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Text(String);

/// Words that cannot be taken as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidText {
    /// Nothing was said.
    #[error("it is empty; say in a few words why, for those who come after")]
    Empty,
    /// Too much was said.
    #[error("{0} bytes are more than {max}; say it shorter", max = Text::BYTES_MAX)]
    TooLong(usize),
    /// Something that does not print.
    #[error("it holds a control character; write it in one line of plain text")]
    Control,
}

impl Text {
    /// The most bytes, in UTF-8.
    pub const BYTES_MAX: usize = 256;

    /// Takes a line of words, without the blanks around it.
    ///
    /// # Errors
    /// When there are none, too many, or some that do not print.
    pub fn new(text: &str) -> Result<Self, InvalidText> {
        let text = text.trim_matches(' ');
        if text.trim().is_empty() {
            return Err(InvalidText::Empty);
        }
        if text.len() > Self::BYTES_MAX {
            return Err(InvalidText::TooLong(text.len()));
        }
        // Separators of lines and paragraphs, and what turns the direction of writing, would forge log lines.
        let is_unfit =
            |c: char| c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if text.chars().any(is_unfit) {
            return Err(InvalidText::Control);
        }
        Ok(Self(text.to_owned()))
    }

    /// The words.
    #[must_use]
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
    fn words_are_a_line_that_says_something() {
        let long = "x".repeat(Text::BYTES_MAX + 1);
        for (text, due) in [
            ("checkout refuses paying callers", Ok("checkout refuses paying callers")),
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
            assert_eq!(Text::new(text).as_ref().map(Text::as_str), due.as_ref().map(|due| *due), "{text:?}");
        }
        assert!(Text::try_from("a\nb".to_owned()).is_err(), "nor is it taken up from a file");
    }
}
