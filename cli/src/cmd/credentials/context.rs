//! `plimsoll context`: the named fleets that commands can ask.

use std::env;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use serde::Serialize;

use crate::admin_client::{Context, Contexts};
use crate::cmd::unusable;
use crate::output::{self, OutputArgs, write_table};

/// List or choose named fleets, so that commands need no address and no files of credentials
///
/// They are in ~/.config/plimsoll/contexts.yaml, or below $XDG_CONFIG_HOME: for each a list `controller` of admin ports, and
/// the files `ca` and `token_file`, relative to that file. Commands use the one of --context or PLIMSOLL_CONTEXT, else the
/// current one. Flags have precedence over it. Environment variables have precedence over the current one, but not over
/// --context. PLIMSOLL_CONTEXT= without a name uses none. The commands below are about the file alone: PLIMSOLL_CONTEXT does
/// not change which one is current, and PLIMSOLL_CONTEXT_NAME is only the argument NAME of `use` and `show`.
#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// List the contexts; `*` marks the current one
    List {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Make a context the current one
    Use {
        /// Context of the file
        #[arg(env = "PLIMSOLL_CONTEXT_NAME")]
        name: String,
    },
    /// Show a context, and its file
    Show {
        /// Context of the file; the current one by default
        #[arg(env = "PLIMSOLL_CONTEXT_NAME")]
        name: Option<String>,
        #[command(flatten)]
        output: OutputArgs,
    },
}

#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    current: bool,
    #[serde(flatten)]
    context: &'a Context,
}

pub(crate) fn run(command: &ContextCommand) -> anyhow::Result<ExitCode> {
    let contexts = Contexts::read().map_err(unusable)?;
    let current = contexts.current.as_deref();
    let (only, output) = match command {
        ContextCommand::Use { name } => {
            contexts.choose(name).map_err(unusable)?;
            let other = env::var("PLIMSOLL_CONTEXT").ok();
            let unless = match other.filter(|other| other != name) {
                Some(other) => format!(", unless PLIMSOLL_CONTEXT is set: it is \"{other}\" here"),
                None => String::new(),
            };
            writeln!(output::stdout(), "commands ask {name} now{unless}")?;
            return Ok(ExitCode::SUCCESS);
        }
        ContextCommand::List { output } => (None, output),
        ContextCommand::Show { name, output } => {
            let none =
                || unusable("no context is current: `plimsoll context use NAME` chooses one");
            let name = name.as_deref().or(current).ok_or_else(none)?;
            contexts.get(name).map_err(unusable)?;
            (Some(name), output)
        }
    };
    let all = contexts.contexts.iter().map(|(name, context)| Shown {
        name,
        current: current == Some(name),
        context,
    });
    let shown: Vec<Shown<'_>> = all
        .filter(|it| only.is_none_or(|only| only == it.name))
        .collect();
    output.report(&shown, |out| {
        writeln!(out, "{}", contexts.path.display())?;
        let headings = ["", "NAME", "CONTROLLER", "CA", "TOKEN FILE"];
        write_table(out, &headings, shown.iter().map(row))
    })
}

fn row(shown: &Shown<'_>) -> Vec<String> {
    let file = |file: &Option<PathBuf>| {
        file.as_ref()
            .map_or("-".to_owned(), |it| it.display().to_string())
    };
    let of = shown.context;
    let mark = if shown.current { "*" } else { "" };
    vec![
        mark.to_owned(),
        shown.name.to_owned(),
        of.controller.join(","),
        file(&of.ca),
        file(&of.token_file),
    ]
}
