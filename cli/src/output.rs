//! The one printer of the commands: text for people, or for scripts JSON documents of one line each, or YAML.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};
use plimsoll_core::names::Text;
use serde::Serialize;

/// The format of an answer on standard output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Text,
    /// For scripts: JSON on standard output, each document on one line
    Json,
    /// YAML on standard output, each document after a line `---`
    Yaml,
}

/// The flag `--output` of the commands that answer in each format.
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
    pub(crate) fn print(
        self,
        answer: &impl Serialize,
        text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        self.write(&mut stdout(), answer, text)
    }

    /// Prints the answer of a command that has succeeded.
    pub(crate) fn report(
        self,
        answer: &impl Serialize,
        text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<ExitCode> {
        self.print(answer, text)?;
        Ok(ExitCode::SUCCESS)
    }

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
            format => format.document(out, answer),
        }
    }
}

impl Format {
    /// Writes a document for scripts: YAML, or else JSON.
    pub(crate) fn document(
        self,
        out: &mut dyn Write,
        document: &impl Serialize,
    ) -> anyhow::Result<()> {
        let text = match self {
            Self::Yaml => format!("---\n{}", serde_yaml::to_string(document)?),
            Self::Text | Self::Json => serde_json::to_string(document)? + "\n",
        };
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        written.context("cannot write to standard output")
    }
}

/// Standard output or standard error. Text after the reader closed the pipe is dropped: a reader
/// such as `head` has read enough, and the command ends normally.
pub(crate) struct Pipe<W>(pub(crate) W);

pub(crate) fn stdout() -> Pipe<io::StdoutLock<'static>> {
    Pipe(io::stdout().lock())
}

pub(crate) fn stderr() -> Pipe<io::StderrLock<'static>> {
    Pipe(io::stderr().lock())
}

impl<W: Write> Write for Pipe<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        unless_closed(self.0.write(bytes), bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        unless_closed(self.0.flush(), ())
    }
}

/// Returns true if an output failed because its reader closed the pipe.
pub(crate) fn is_closed(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

fn unless_closed<T>(done: io::Result<T>, closed: T) -> io::Result<T> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(closed),
        done => done,
    }
}

/// Maximum padding of a column.
const WIDTH_MAX: usize = 60;

/// Writes rows in columns below their headings. Characters that could control the terminal are
/// replaced.
pub(crate) fn write_table(
    out: &mut dyn Write,
    headings: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> io::Result<()> {
    let headings = headings
        .iter()
        .map(|heading| (*heading).to_owned())
        .collect();
    let mut rows: Vec<Vec<String>> = std::iter::once(headings).chain(rows).collect();
    rows.iter_mut()
        .flatten()
        .for_each(|cell| *cell = cell.replace(Text::is_unfit, "?"));
    let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column));
    let width = |column| {
        cells(column)
            .map(|cell| cell.chars().count().min(WIDTH_MAX))
            .max()
    };
    let widths: Vec<usize> = (0..).map_while(width).collect();
    for row in &rows {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

/// Warns that the controller could not save the change.
pub(crate) fn write_unless_saved(out: &mut dyn Write, is_saved: bool) -> io::Result<()> {
    if is_saved {
        return Ok(());
    }
    writeln!(
        out,
        "warning: the controller could not save this to its disk; see its log"
    )
}

/// Formats a number and its noun, in the plural unless the number is 1.
pub(crate) fn counted<N: Display + From<u8> + PartialEq>(number: N, noun: &str) -> String {
    let plural = if number == 1.into() { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Returns lines without characters that could control the terminal.
pub(crate) fn printable(text: &str) -> String {
    text.replace(|at: char| at != '\n' && Text::is_unfit(at), "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn text_for_a_closed_pipe_is_dropped() {
        let args = OutputArgs {
            format: Format::Text,
        };
        args.write(&mut Pipe(Closed), &1, |out| writeln!(out, "1"))
            .unwrap();
        let error = args
            .write(&mut Closed, &1, |out| writeln!(out, "1"))
            .unwrap_err();
        assert!(is_closed(&error), "{error:#}");
    }

    #[test]
    fn table_cannot_control_the_terminal() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let mut out = Vec::new();
        write_table(
            &mut out,
            &["A", "B"],
            [vec!["a\u{1b}[2\u{202e}".to_owned(), "b".to_owned()]],
        )
        .unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "A      B\na?[2?  b\n");
        let mut out = Vec::new();
        write_table(&mut out, &["A", "B", "C"], [row(["é", "", "x"])]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "A  B  C\né     x\n");
    }

    #[test]
    fn answer_is_text_or_one_json_line() {
        let answer = serde_json::json!({ "buckets": { "checkout": "a\nb" } });
        let written = |format| {
            let mut out = Vec::new();
            let args = OutputArgs { format };
            args.write(&mut out, &answer, |out| writeln!(out, "1 bucket"))
                .unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(Format::Text), "1 bucket\n");
        assert_eq!(
            written(Format::Json),
            "{\"buckets\":{\"checkout\":\"a\\nb\"}}\n"
        );
        assert_eq!(
            written(Format::Yaml),
            "---\nbuckets:\n  checkout: |-\n    a\n    b\n"
        );
    }
}
