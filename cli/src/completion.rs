//! `plimsoll completion`: scripts with which a shell completes commands, flags and their values.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;

use crate::output;

/// Print the script with which a shell completes commands and flags
///
/// For bash, `plimsoll completion bash > /etc/bash_completion.d/plimsoll`; for zsh, into the file `_plimsoll` of a folder of
/// `$fpath`; for fish, into `~/.config/fish/completions/plimsoll.fish`. Print it anew after an update.
#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    /// Shell that reads the script
    #[arg(value_enum, env = "PLIMSOLL_COMPLETION")]
    shell: Shell,
}

pub(crate) fn run(args: &CompletionArgs, command: Command) -> anyhow::Result<ExitCode> {
    let written = output::stdout().write_all(&script(args.shell, command));
    written.context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

fn script(shell: Shell, mut command: Command) -> Vec<u8> {
    // The generator panics if its output fails, which memory does not.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "plimsoll", &mut script);
    script
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use clap::CommandFactory;

    use super::*;
    use crate::command::Plimsoll;

    #[test]
    fn bash_completes_commands_and_files() {
        let mut bash = Command::new("bash");
        let words = "COMP_WORDS=(plimsoll rollout pro); COMP_CWORD=2; _plimsoll plimsoll pro rollout; echo ${COMPREPLY[@]}";
        let bash = bash.args(["--norc", "-c", &format!("eval \"$(cat)\"; {words}")]);
        let Ok(mut child) = bash.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
            return plimsoll_testing::skipped("completion: bash is not installed");
        };
        let script = script(Shell::Bash, Plimsoll::command());
        child.stdin.take().unwrap().write_all(&script).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "promote\n");
    }
}
