//! `plimsoll`, the one binary: parses the command line and runs the command.

mod admin_client;
mod cmd;
mod command;
mod completion;
mod load;
mod logging;
mod output;
mod shutdown;
#[cfg(test)]
mod tests;
mod up;

use std::process::ExitCode;

#[cfg(not(windows))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    command::Plimsoll::read().map_or_else(|code| code, command::Plimsoll::run)
}
