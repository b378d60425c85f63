//! The status on a terminal: lines that fit, and `--watch`.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use serde::Serialize;

use crate::admin_client::AdminError;
use crate::output::{self, Format, OutputArgs, is_closed, printable};

const CLEAR: &str = "\x1b[H\x1b[2J";
const REDRAWN_EVERY: Duration = Duration::from_secs(1);
/// Interval between blocks in a pipe, and between documents for scripts.
const PRINTED_EVERY: Duration = Duration::from_secs(2);

/// Columns and rows of the terminal.
type Size = (usize, usize);

/// Prints an answer. On a terminal, text is broken at blanks.
pub(super) fn print(
    output: OutputArgs,
    answer: &impl Serialize,
    text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    let columns = size().map_or(usize::MAX, |(columns, _)| columns);
    output.print(answer, |out| {
        out.write_all(fitted(text, (columns, usize::MAX))?.as_bytes())
    })
}

/// Prints what `look` returns again and again: on a terminal in place, in a pipe one block after the other. Errors are
/// shown in place of it, and it goes on.
///
/// # Errors
/// The arguments cannot be used, or the output.
pub(super) fn watch<T: Serialize>(
    output: OutputArgs,
    look: impl Fn() -> anyhow::Result<T>,
    text: impl Fn(&mut dyn Write, &T) -> io::Result<()>,
) -> anyhow::Result<ExitCode> {
    loop {
        let size = size().filter(|_| output.format == Format::Text);
        let looked = look();
        let out = &mut io::stdout().lock();
        let written = match looked {
            Err(error) if error.downcast_ref().is_some_and(AdminError::is_usage) => {
                return Err(error);
            }
            Err(error) if size.is_some() => writeln!(out, "{CLEAR}error: {error}")
                .and_then(|()| out.flush())
                .map_err(Into::into),
            Err(error) => writeln!(output::stderr(), "error: {error}").map_err(Into::into),
            Ok(answer) => output.write(out, &answer, |out| {
                let clear = if size.is_some() { CLEAR } else { "" };
                let size = size.unwrap_or((usize::MAX, usize::MAX));
                let shown = fitted(|shown| text(shown, &answer), size)?;
                write!(out, "{clear}{shown}")
            }),
        };
        match written {
            Err(error) if is_closed(&error) => return Ok(ExitCode::SUCCESS),
            written => written?,
        }
        thread::sleep(if size.is_some() {
            REDRAWN_EVERY
        } else {
            PRINTED_EVERY
        });
    }
}

fn size() -> Option<Size> {
    let stdout = io::stdout();
    let size = stdout
        .is_terminal()
        .then(|| rustix::termios::tcgetwinsize(&stdout))?;
    let size = size
        .ok()
        .filter(|size| size.ws_col > 0 && size.ws_row > 0)?;
    Some((size.ws_col.into(), size.ws_row.into()))
}

/// Returns a text whose lines are not wider than the columns where they have blanks, cut after the rows. Characters that
/// could control the terminal are replaced.
fn fitted(
    text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    (columns, rows): Size,
) -> io::Result<String> {
    let mut bytes = Vec::new();
    text(&mut bytes)?;
    let text = printable(&String::from_utf8_lossy(&bytes));
    let mut lines: Vec<String> = text
        .lines()
        .flat_map(|line| broken(line, columns))
        .collect();
    if lines.len() >= rows {
        lines.truncate(rows.saturating_sub(2));
        lines.push("..".to_owned());
    }
    Ok(lines.into_iter().map(|line| line + "\n").collect())
}

/// Breaks a line at blanks. Its later parts are indented deeper.
fn broken(line: &str, columns: usize) -> Vec<String> {
    let indent = line.chars().take_while(|at| *at == ' ').count();
    let mut lines: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let width = word.chars().count();
        match lines.last_mut() {
            Some(last) if last.chars().count() + 1 + width <= columns => {
                *last = format!("{last} {word}");
            }
            last => {
                let deeper = if last.is_some() { indent + 4 } else { indent };
                lines.push(format!("{:deeper$}{word}", ""));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, size: Size) -> String {
        fitted(|out| out.write_all(text.as_bytes()), size).unwrap()
    }

    #[test]
    fn lines_fit_the_terminal() {
        let text = "bucket checkout: enforce\n  refused 38.2 % in 10 s, by\x1b[2J guards\n";
        assert_eq!(
            shown(text, (usize::MAX, usize::MAX)),
            "bucket checkout: enforce\n  refused 38.2 % in 10 s, by?[2J guards\n"
        );
        assert_eq!(
            shown(text, (20, usize::MAX)),
            "bucket checkout:\n    enforce\n  refused 38.2 % in\n      10 s, by?[2J\n      guards\n"
        );
        assert_eq!(shown("a\nb\nc\nd\n", (80, 4)), "a\nb\n..\n");
        assert_eq!(shown("a\nb\nc\n", (80, 4)), "a\nb\nc\n");
    }
}
