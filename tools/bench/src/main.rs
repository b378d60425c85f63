//! `plimsoll-bench`: measures what Plimsoll claims, on real processes. `./measure` builds and runs it.

#[allow(clippy::unwrap_used)] // a measurement that fails stops the program
#[path = "../tests/it/books.rs"]
mod books;
mod figures;
mod frozen;
#[allow(clippy::unwrap_used)] // a measurement that fails stops the program
mod fuzz;
mod measure;
#[allow(clippy::unwrap_used, clippy::panic)] // a measurement that fails stops the program
mod quota;
#[path = "../../../cli/src/shutdown.rs"]
mod shutdown;
#[allow(clippy::unwrap_used)] // a measurement that fails stops the program
mod sidecar;
#[allow(clippy::unwrap_used)] // a measurement that fails stops the program
mod soak;
mod streams;
#[allow(clippy::unwrap_used, clippy::expect_used)] // a measurement that fails stops the program
mod tenants;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measure what Plimsoll claims, on this machine, in real time
#[derive(Debug, Parser)]
#[command(name = "plimsoll-bench", version, max_term_width = 100)]
struct Bench {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure on real processes and print each figure beside its bar
    Measure(measure::Args),
    /// Serve a rate limit service and HTTP routes that do nothing, to compare a sidecar with
    Nothing(sidecar::nothing::Args),
    /// Open client streams to aggregators and time how fast a limit reaches the clients
    Streams(streams::Args),
}

fn main() -> ExitCode {
    match Bench::parse().command {
        Command::Measure(args) => measure::run(&args),
        Command::Nothing(args) => sidecar::nothing::main(args),
        Command::Streams(args) => streams::main(args),
    }
}
