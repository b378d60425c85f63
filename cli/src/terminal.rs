//! The terminal, shared by the log and a table that is redrawn in place: log lines are printed above the table, because
//! a redraw would erase lines below its top.

use std::io::{self, Write};
use std::sync::LazyLock;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What this process draws on its terminal: nothing until a table is shown.
static TERMINAL: LazyLock<MultiProgress> =
    LazyLock::new(|| MultiProgress::with_draw_target(ProgressDrawTarget::hidden()));

/// A table at the bottom of the terminal. Removed on drop.
pub(crate) struct Table(ProgressBar);

impl Table {
    /// A table on standard output; `None` if that is no terminal.
    pub(crate) fn on_stdout() -> Option<Self> {
        let stdout = ProgressDrawTarget::stdout();
        (!stdout.is_hidden()).then(|| Self::on(&TERMINAL, stdout))
    }

    fn on(terminal: &MultiProgress, target: ProgressDrawTarget) -> Self {
        terminal.set_draw_target(target);
        let table = terminal.add(ProgressBar::no_length());
        if let Ok(text_only) = ProgressStyle::with_template("{msg}") {
            table.set_style(text_only);
        }
        Self(table)
    }

    /// Replaces the text of the table.
    pub(crate) fn show(&self, text: &str) {
        self.0.set_message(text.trim_end().to_owned());
    }
}

/// A writer of whole lines to the terminal, which takes the table away while it writes one.
pub(crate) struct AboveTable<W> {
    out: W,
    terminal: MultiProgress,
}

impl<W> AboveTable<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, terminal: TERMINAL.clone() }
    }
}

impl<W: Write> Write for AboveTable<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.terminal.suspend(|| self.out.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use indicatif::{InMemoryTerm, TermLike};

    use super::*;

    /// Standard error of a terminal.
    struct Stderr(InMemoryTerm);

    impl Write for Stderr {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write_line(String::from_utf8_lossy(bytes).trim_end())?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            self.0.flush()
        }
    }

    #[test]
    fn log_lines_stay_above_the_table() {
        let screen = InMemoryTerm::new(24, 80);
        let terminal = MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
        let table = Table::on(&terminal, ProgressDrawTarget::term_like(Box::new(screen.clone())));
        let mut log = AboveTable { out: Stderr(screen.clone()), terminal };
        for second in 1..=3 {
            table.show(&format!("second {second}\nbucket\n"));
            log.write_all(format!("event {second}\n").as_bytes()).unwrap();
        }
        table.show("second 4\nbucket\n");
        assert_eq!(screen.contents(), "event 1\nevent 2\nevent 3\nsecond 4\nbucket");
        drop(table);
        assert_eq!(screen.contents(), "event 1\nevent 2\nevent 3");
    }
}
