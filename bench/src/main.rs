//! `plimsoll-bench`: measures what Plimsoll claims, on real processes. `./measure` builds and runs it.

#[allow(dead_code)] // the tests of the cli use the rest
#[path = "../../cli/tests/it/fleet.rs"]
mod fleet;
#[path = "../tests/it/books.rs"]
mod fleet_books;
mod measure;
#[allow(dead_code)] // the tests of the cli use the rest
#[path = "../../cli/tests/it/process.rs"]
mod process;
mod streams;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures what Plimsoll claims, on this machine, in real time
#[derive(Debug, Parser)]
#[command(name = "plimsoll-bench", version, max_term_width = 100)]
struct Bench {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure, print each figure beside its bar, and write docs/benchmarks.md
    Measure(measure::Args),
    /// Open many client streams to aggregators and time decisions and kills
    Streams(streams::Args),
}

fn main() -> ExitCode {
    match Bench::parse().command {
        Command::Measure(args) => measure::run(&args),
        Command::Streams(args) => streams::main(args),
    }
}
