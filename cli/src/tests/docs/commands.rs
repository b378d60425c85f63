//! Generates `docs/reference/commands.md` from the definitions of the commands, and fails when the page is
//! out of date.

use std::fmt::Write;
use std::fs;

use clap::{Arg, Command, CommandFactory};

use super::{read, root};
use crate::command::Plimsoll;

const PAGE: &str = "docs/reference/commands.md";
const INTRODUCTION: &str = "\
# Commands

Every command with its flags, as `plimsoll COMMAND --help` prints them. This page is generated:
`UPDATE_DOCS=1 cargo test -p plimsoll-cli docs::commands` writes it anew.

Every flag can also be given by the environment variable that stands beside it. Exit codes: 0 success, 1 failure, 2 invalid
arguments or input. What all commands share stands once, with `plimsoll`; what all share that ask a controller, with
`plimsoll resign`, which has no other flags.
";
/// The command whose section has the flags of all that ask a controller.
const ASKING: &str = "plimsoll resign";
/// The variables of those flags.
const SHARED_BY_ASKING: [&str; 5] = [
    "PLIMSOLL_CONTEXT",
    "PLIMSOLL_CONTROLLER_ADMIN",
    "PLIMSOLL_CA",
    "PLIMSOLL_TOKEN_FILE",
    "PLIMSOLL_OUTPUT",
];
/// The flags of all commands.
const SHARED_BY_ALL: [&str; 4] = ["help", "version", "log", "log-format"];

fn generate() -> String {
    let mut page = INTRODUCTION.to_owned();
    let mut root = Plimsoll::command().term_width(100);
    root.build();
    section(&mut page, root, "plimsoll");
    page
}

fn section(page: &mut String, command: Command, name: &str) {
    let is_repeated = |arg: &Arg| {
        let by_all = arg.get_long().is_some_and(|it| SHARED_BY_ALL.contains(&it));
        let variable = arg.get_env().and_then(|it| it.to_str());
        let by_asking = variable.is_some_and(|it| SHARED_BY_ASKING.contains(&it));
        by_all && name != "plimsoll" || by_asking && name != ASKING
    };
    let mut command = command.mut_args(|arg| {
        let is_hidden = arg.is_hide_set() || is_repeated(&arg);
        arg.hide(is_hidden)
    });
    let help = command.render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    writeln!(
        page,
        "\n## {name}\n\n```text\n{}\n```",
        help.join("\n").trim_end()
    )
    .unwrap();
    for child in command
        .get_subcommands()
        .filter(|child| child.get_name() != "help" && !child.is_hide_set())
    {
        section(
            page,
            child.clone().term_width(100),
            &format!("{name} {}", child.get_name()),
        );
    }
}

#[test]
fn the_page_of_commands_is_current() {
    let page = generate();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(root().join(PAGE), &page).unwrap();
    }
    assert!(
        read(PAGE) == page,
        "{PAGE} is out of date: UPDATE_DOCS=1 cargo test -p plimsoll-cli docs::commands writes it anew"
    );
}
