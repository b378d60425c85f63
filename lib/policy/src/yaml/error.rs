//! Errors of a policy: file, place, field, fault and remedy.

use std::fmt;

use serde::Serialize;

use super::Source;

/// Maximum number of faults in one report.
pub const FAULTS_MAX: usize = 20;

/// Room for one line of source around the caret, in characters.
const SNIPPET_CHARS_MAX: usize = 100;
/// Room for a message or a path, in characters: both may quote the file.
const QUOTED_CHARS_MAX: usize = 400;

/// A place in a text as editors count: lines and columns from 1, one column per character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct SourcePlace {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

/// One fault of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyFault {
    /// The file, by the name it was read under.
    pub file: String,
    /// The place in the file.
    pub place: SourcePlace,
    /// The field, such as `buckets.checkout.limit`; empty for the file as a whole.
    pub path: String,
    /// The fault.
    pub message: String,
    /// The line of source at the place, with a caret below; absent if the place has no text.
    pub snippet: Option<String>,
    /// The remedy.
    pub hint: String,
}

/// A refused policy with its faults: at least one and at most [`FAULTS_MAX`], in the order of the files and
/// of the places in them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{}", self.rendered())]
pub struct PolicyError {
    faults: Vec<PolicyFault>,
}

/// The result of checking one value; boxed because faults are large and rare.
pub type Checked<T> = Result<T, Box<PolicyFault>>;

impl PolicyError {
    /// Builds the error of one file for `faults`, at least one. The first [`FAULTS_MAX`] in the
    /// order of places are kept.
    pub fn of(mut faults: Vec<PolicyFault>) -> Self {
        faults.sort_by_key(|fault| fault.place);
        faults.truncate(FAULTS_MAX);
        Self { faults }
    }

    /// Joins the errors of two files; at least one is refused.
    pub(crate) fn of_either(first: Option<Self>, second: Option<Self>) -> Self {
        let mut faults: Vec<PolicyFault> = first
            .into_iter()
            .chain(second)
            .flat_map(|error| error.faults)
            .collect();
        faults.truncate(FAULTS_MAX);
        Self { faults }
    }

    /// The faults; never empty.
    pub fn faults(&self) -> &[PolicyFault] {
        &self.faults
    }

    fn rendered(&self) -> String {
        self.faults
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n\n")
    }
}

impl From<Box<PolicyFault>> for PolicyError {
    fn from(fault: Box<PolicyFault>) -> Self {
        Self::of(vec![*fault])
    }
}

impl PolicyFault {
    /// Builds a fault at `place` of a file.
    pub(crate) fn new(
        file: Source<'_>,
        place: SourcePlace,
        path: &str,
        message: &str,
        hint: &str,
    ) -> Box<Self> {
        Box::new(Self {
            file: file.name.to_owned(),
            place,
            path: legible(path, QUOTED_CHARS_MAX),
            message: legible(message, QUOTED_CHARS_MAX),
            snippet: snippet(file.text, place),
            hint: legible(hint, QUOTED_CHARS_MAX),
        })
    }

    /// The fault on one line, without the snippet: for logs.
    pub fn summary(&self) -> String {
        let at = if self.path.is_empty() {
            String::new()
        } else {
            format!("{}: ", self.path)
        };
        format!(
            "{}:{}: {at}{} ({})",
            self.file, self.place, self.message, self.hint
        )
    }
}

impl fmt::Display for SourcePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

impl fmt::Display for PolicyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file, self.place)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "{}", self.message)?;
        if let Some(snippet) = &self.snippet {
            write!(f, "\n{snippet}")?;
        }
        write!(f, "\n  = hint: {}", self.hint)
    }
}

/// The line at `place` with a caret under the column, cut to a window around it.
fn snippet(text: &str, place: SourcePlace) -> Option<String> {
    // YAML has three line breaks: `\r\n`, `\r` and `\n`.
    let text = text.replace("\r\n", "\n");
    let line = text.split(['\r', '\n']).nth(place.line.checked_sub(1)?)?;
    if line.trim().is_empty() {
        return None;
    }
    let column = place.column.saturating_sub(1);
    let from = if column < SNIPPET_CHARS_MAX {
        0
    } else {
        column - SNIPPET_CHARS_MAX / 2
    };
    let shown: String = line
        .chars()
        .skip(from)
        .take(SNIPPET_CHARS_MAX)
        .map(printable)
        .collect();
    let number = place.line.to_string();
    let margin = " ".repeat(number.len());
    let caret = " ".repeat(column - from);
    Some(format!(
        "{margin} |\n{number} | {}\n{margin} | {caret}^",
        shown.trim_end()
    ))
}

/// Cuts `text` to `chars_max` characters and replaces characters that could move a terminal's cursor.
fn legible(text: &str, chars_max: usize) -> String {
    let mut out: String = text.chars().take(chars_max).map(printable).collect();
    if out.len() < text.len() && text.chars().nth(chars_max).is_some() {
        out.push_str("...");
    }
    out
}

fn printable(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') => {
            '\u{fffd}'
        }
        c => c,
    }
}
