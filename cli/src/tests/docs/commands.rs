//! Generates `docs/reference/commands.md` from the definitions of the commands, and fails when the page is
//! out of date.

use std::fmt::Write;
use std::fs;

use clap::{Command, CommandFactory};

use super::{read, root};
use crate::command::Plimsoll;

const PAGE: &str = "docs/reference/commands.md";
const INTRODUCTION: &str = "\
# Commands

Every command with its flags, as `plimsoll COMMAND --help` prints them. This page is generated:
`UPDATE_DOCS=1 cargo test -p plimsoll-cli docs::commands` writes it anew.

Every flag can also be given by the environment variable that stands beside it. Exit codes: 0 success, 1 failure, 2 invalid
arguments or input.
";

fn generate() -> String {
    let mut page = INTRODUCTION.to_owned();
    let mut root = Plimsoll::command().term_width(100);
    root.build();
    section(&mut page, root, "plimsoll");
    page
}

fn section(page: &mut String, mut command: Command, name: &str) {
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
