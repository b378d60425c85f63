//! The one printer of the commands: text for people, or JSON documents of one line each for scripts.

use std::io::{self, Write};

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde::Serialize;

/// The format of an answer on standard output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Text,
    /// For scripts: JSON on standard output, each document on one line
    Json,
}

/// The flag `--output` of the commands that answer in text or JSON.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct OutputArgs {
    /// Format of the output
    #[arg(
        long = "output",
        short = 'o',
        value_enum,
        default_value_t,
        env = "PLIMSOLL_OUTPUT",
        value_name = "FORMAT"
    )]
    pub(crate) format: Format,
}

impl OutputArgs {
    /// Prints an answer on standard output in the chosen format.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(crate) fn print(
        self,
        answer: &impl Serialize,
        text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        self.write(&mut io::stdout().lock(), answer, text)
    }

    /// Writes an answer in the chosen format.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub(crate) fn write(
        self,
        out: &mut dyn Write,
        answer: &impl Serialize,
        text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        match self.format {
            Format::Text => {
                let written = text(out).and_then(|()| out.flush());
                written.context("cannot write to standard output")
            }
            Format::Json => json_line(out, answer),
        }
    }
}

/// Writes one JSON document on one line.
///
/// # Errors
/// `out` cannot be written.
pub(crate) fn json_line(out: &mut dyn Write, document: &impl Serialize) -> anyhow::Result<()> {
    let line = serde_json::to_string(document)?;
    let written = writeln!(out, "{line}").and_then(|()| out.flush());
    written.context("cannot write to standard output")
}

/// A number and its noun, in the plural unless the number is 1.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_text_or_one_line_of_json() {
        let answer = serde_json::json!({ "buckets": { "checkout": "a\nb" } });
        let written = |format| {
            let mut out = Vec::new();
            let args = OutputArgs { format };
            args.write(&mut out, &answer, |out| writeln!(out, "1 bucket")).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(Format::Text), "1 bucket\n");
        assert_eq!(written(Format::Json), "{\"buckets\":{\"checkout\":\"a\\nb\"}}\n");
    }
}
