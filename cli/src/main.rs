//! `plimsoll`, the one binary: parse and run.

mod apply;
mod ask;
mod capacity;
mod check;
mod command;
mod history;
mod kill;
mod load;
mod logging;
mod rollout;
mod service;
mod shutdown;
mod simulate;
mod streams;
mod up;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    command::Plimsoll::parse().run()
}
