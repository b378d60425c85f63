//! Every command in a `console` fence parses: the flags of `plimsoll` by its own parser, others by their
//! name.

use clap::{Parser, error::ErrorKind};

use super::{pages, read};
use crate::command::Plimsoll;

/// Commands of the reader's machine that documents may show. Others are misspelt or must be added.
const KNOWN: [&str; 36] = [
    "caddy",
    "traefik",
    "cat",
    "cd",
    "chmod",
    "cp",
    "curl",
    "echo",
    "envoy",
    "etcd",
    "etcdctl",
    "export",
    "git",
    "grep",
    "haproxy",
    "helm",
    "install",
    "ip",
    "jq",
    "kill",
    "kubectl",
    "mkdir",
    "nginx",
    "promtool",
    "redis-cli",
    "redis-server",
    "sed",
    "sha256sum",
    "sort",
    "spire-server",
    "systemctl",
    "touch",
    "tr",
    "ulimit",
    "uniq",
    "useradd",
];

/// Splits a command line into simple commands and their words. Quotes group words; nothing is
/// expanded.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars().chain([' ']) {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ') => {
                if let (Some(word), Some(command)) = (word.take(), commands.last_mut()) {
                    match word.as_str() {
                        "|" | "&&" | ";" | "&" => commands.push(Vec::new()),
                        _ => command.push(word),
                    }
                }
            }
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    commands.retain(|command| !command.is_empty());
    commands
}

/// Returns the fault of a simple command; `None` if it may be right.
fn fault(command: &[String]) -> Option<String> {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let is_assignment = |word: &&str| {
        word.split_once('=')
            .is_some_and(|(name, _)| name == name.to_uppercase())
    };
    let start = words.iter().position(|word| !is_assignment(word))?;
    let end = words
        .iter()
        .position(|word| word.starts_with('>') || word.starts_with("2>"))
        .unwrap_or(words.len());
    match words.get(start..end)? {
        ["plimsoll" | "./target/release/plimsoll", args @ ..] => usage(args),
        ["cargo", "run", "--release", "--", args @ ..] => usage(args),
        [
            "cargo",
            "build" | "test" | "bench" | "run" | "add" | "new" | "doc" | "tree",
            ..,
        ] => None,
        ["./test", ..] => None,
        ["./measure", parts @ ..] => {
            let script = read("measure");
            let unknown = parts
                .iter()
                .find(|part| !part.starts_with('-') && !script.contains(*part))?;
            Some(format!("./measure has no part `{unknown}`"))
        }
        [name, ..] if KNOWN.contains(name) => None,
        [name, ..] => Some(format!("`{name}` is not a known command")),
        [] => None,
    }
}

fn usage(args: &[&str]) -> Option<String> {
    match Plimsoll::try_parse_from(std::iter::once(&"plimsoll").chain(args)) {
        Ok(_) => None,
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            ) =>
        {
            None
        }
        Err(error) => error.to_string().lines().next().map(str::to_owned),
    }
}

#[test]
fn every_command_of_the_documents_parses() {
    let mut faults = Vec::new();
    let mut parsed = 0;
    for page in pages() {
        let mut continued = String::new();
        for line in page
            .lines()
            .iter()
            .filter(|line| matches!(line.fence, Some("console")))
        {
            let text = match (
                continued.is_empty(),
                line.text.trim_start().strip_prefix("$ "),
            ) {
                (true, None) => continue,
                (true, Some(command)) => command.to_owned(),
                (false, _) => format!("{continued} {}", line.text.trim()),
            };
            if let Some(open) = text.strip_suffix('\\') {
                continued = open.trim_end().to_owned();
                continue;
            }
            continued.clear();
            for command in commands(&text) {
                parsed += 1;
                if let Some(fault) = fault(&command) {
                    faults.push(format!(
                        "{}:{}: {text}\n    {fault}",
                        page.path.display(),
                        line.number
                    ));
                }
            }
        }
    }
    assert!(parsed > 20, "only {parsed} commands were found");
    assert!(
        faults.is_empty(),
        "commands that do not work:\n{}",
        faults.join("\n")
    );
}

#[test]
fn faults_are_found() {
    let faults = |line: &str| {
        commands(line)
            .iter()
            .filter_map(|command| fault(command))
            .count()
    };
    for good in [
        "cargo run --release -- up",
        "plimsoll kill on --reason 'too many refusals' && curl http://127.0.0.1:7401/status",
        "PLIMSOLL_LOG=debug ./target/release/plimsoll aggregator --zone a --name b > log",
        "./measure decision",
    ] {
        assert_eq!(faults(good), 0, "{good}");
    }
    for bad in [
        "plimsol up",
        "plimsoll upp",
        "plimsoll kill on --raeson x",
        "./measure precision",
        "cargo runn",
    ] {
        assert_eq!(faults(bad), 1, "{bad}");
    }
}
