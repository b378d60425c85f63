//! `plimsoll`, the one binary: parses the command line and runs the command.

mod admin_client;
mod cmd;
mod command;
#[cfg(test)]
mod docs;
mod load;
mod logging;
mod output;
mod shutdown;
mod terminal;
mod up;

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    command::Plimsoll::parse().run()
}
