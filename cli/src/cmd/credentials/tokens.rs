//! `plimsoll tokens`: adds tokens of operators to the tokens file of a tier, lists and removes them. The file has
//! hashes only, so a token is shown or written once.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand, ValueHint};
use plimsoll_admin::access::{QuotaRights, Role, TOKEN_FILE_BYTES_MAX, Token as Entry, TokenHash, Tokens};
use plimsoll_core::names::Name;
use plimsoll_host::{atomic_file, regular_file};
use serde::Serialize;

use super::unusable;
use crate::admin_client::Token;
use crate::output::{self, OutputArgs};

/// Add, list or remove the tokens of operators in a tokens file
///
/// Processes that run with --tokens FILE take the changes within a second. Exit code 0: done; 1: a
/// file cannot be written; 2: invalid arguments or files.
#[derive(Debug, Args)]
pub(crate) struct TokensArgs {
    #[command(subcommand)]
    command: TokensCommand,
}

#[derive(Debug, Subcommand)]
enum TokensCommand {
    /// Make a token: its hash goes into the tokens file, and the token itself into a file of its own
    Add(AddArgs),
    /// Show the names and roles in the tokens file
    List {
        #[command(flatten)]
        file: FileArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Remove a token, which is refused from then on
    Remove {
        /// Name of the token
        #[arg(env = "PLIMSOLL_TOKEN_NAME")]
        name: Name,
        #[command(flatten)]
        file: FileArgs,
    },
}

#[derive(Debug, Args)]
struct AddArgs {
    /// Name of the operator or program that holds the token; logs show it
    #[arg(env = "PLIMSOLL_TOKEN_NAME")]
    name: Name,
    /// Role of the token: viewers read, operators also kill, promote, abort and forget, admins also release policies
    /// and import histories
    #[arg(long, env = "PLIMSOLL_ROLE", value_name = "ROLE")]
    role: Role,
    /// Rights at the Redis port of a quota server: quota:RIGHTS or quota:RIGHTS:PREFIX, for keys that begin with PREFIX,
    /// with some of take,give,read,reset. Without it take, read and give of what the token took; for operators and admins all
    #[arg(long, env = "PLIMSOLL_RIGHTS", value_name = "RIGHTS")]
    rights: Option<QuotaRights>,
    #[command(flatten)]
    file: FileArgs,
    /// New file for the token, readable by its owner alone; - prints it on standard output
    #[arg(long, env = "PLIMSOLL_OUT", value_name = "TOKEN_FILE", value_hint = ValueHint::FilePath)]
    out: PathBuf,
}

#[derive(Debug, Args)]
struct FileArgs {
    /// Tokens file of a process: lines of NAME ROLE sha256:HEX, and quota:RIGHTS or quota:RIGHTS:PREFIX if they have any
    #[arg(long, env = "PLIMSOLL_TOKENS", value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
}

/// One token in the form that scripts read.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    name: &'a Name,
    role: Role,
    #[serde(skip_serializing_if = "Option::is_none")]
    rights: Option<String>,
}

impl<'a> Listed<'a> {
    fn of(entry: &'a Entry) -> Self {
        Self { name: &entry.name, role: entry.role, rights: entry.rights.as_ref().map(ToString::to_string) }
    }
}

/// Runs the command.
///
/// # Errors
/// An argument or a file cannot be used, or a file cannot be written.
pub(crate) fn run(args: &TokensArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        TokensCommand::Add(args) => add(args)?,
        TokensCommand::List { file, output } => list(&file.file, *output)?,
        TokensCommand::Remove { name, file } => remove(name, &file.file)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn add(args: &AddArgs) -> anyhow::Result<()> {
    let path = &args.file.file;
    let before = match regular_file::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        _ => read_text(path)?,
    };
    let token = Token::generate().context("the system has no random bytes")?;
    let entry = Entry {
        name: args.name.clone(),
        role: args.role,
        hash: TokenHash::of(token.secret()),
        rights: args.rights.clone(),
    };
    let separator = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
    let after = format!("{before}{separator}{entry}\n");
    parse(path, &after)?;
    if args.out == Path::new("-") {
        write(path, &after)?;
        return writeln!(output::stdout(), "{}", token.secret()).context("cannot write to standard output");
    }
    create(&args.out, token.secret())?;
    if let Err(error) = write(path, &after) {
        // A token that no tier knows must not stay.
        let _ = std::fs::remove_file(&args.out);
        return Err(error);
    }
    let (name, role, out) = (&args.name, args.role, args.out.display());
    writeln!(output::stdout(), "added {name} as {role}; use it with --token-file {out}")?;
    Ok(())
}

fn list(path: &Path, output: OutputArgs) -> anyhow::Result<()> {
    let (_, tokens) = read(path)?;
    let listed: Vec<Listed<'_>> = tokens.entries().iter().map(Listed::of).collect();
    output.print(&listed, |out| {
        listed.iter().try_for_each(|token| {
            let rights = token.rights.as_deref().map(|rights| format!("  {rights}"));
            writeln!(out, "{:<8}  {}{}", token.role, token.name, rights.unwrap_or_default())
        })
    })
}

fn remove(name: &Name, path: &Path) -> anyhow::Result<()> {
    let (before, tokens) = read(path)?;
    if !tokens.entries().iter().any(|entry| entry.name == *name) {
        let path = path.display();
        return Err(unusable(format_args!(
            "{path} has no token `{name}`; `plimsoll tokens list --file {path}` shows those that it has"
        )));
    }
    if tokens.entries().len() == 1 {
        return Err(unusable(format_args!(
            "`{name}` is the last token of {}, and a running tier keeps its tokens when the file has none: add \
             another one first, or restart the tier without --tokens",
            path.display()
        )));
    }
    let is_kept = |line: &&str| line.trim().parse::<Entry>().map_or(true, |entry| entry.name != *name);
    let after: String = before.split_inclusive('\n').filter(is_kept).collect();
    write(path, &after)?;
    writeln!(output::stdout(), "removed {name}; running tiers refuse its token within a second")?;
    Ok(())
}

/// Reads a tokens file, with its comments and as tokens.
fn read(path: &Path) -> anyhow::Result<(String, Tokens)> {
    let text = read_text(path)?;
    let tokens = parse(path, &text)?;
    Ok((text, tokens))
}

fn read_text(path: &Path) -> anyhow::Result<String> {
    let unread = |cause: &dyn Display| {
        unusable(format_args!("cannot read the tokens file {}: {cause}", path.display()))
    };
    let bytes = regular_file::read_whole(path, TOKEN_FILE_BYTES_MAX).map_err(|error| unread(&error))?;
    String::from_utf8(bytes).map_err(|_| unread(&"it is not UTF-8 text"))
}

fn parse(path: &Path, text: &str) -> anyhow::Result<Tokens> {
    text.parse().map_err(|error| unusable(format_args!("the tokens file {}: {error}", path.display())))
}

/// Replaces the tokens file. Its owner and mode stay, so that the tier can still read it.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    // A link stays, and its target is replaced.
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mode = path.metadata().map_or(0o600, |metadata| metadata.permissions().mode() & 0o777);
    let written = atomic_file::replace_for_its_owner(path, text.as_bytes(), mode);
    written.with_context(|| format!("cannot write the tokens file {}", path.display()))
}

/// Creates the file of a token, for its owner alone.
fn create(path: &Path, secret: &str) -> anyhow::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let place = path.display();
    let written = |mut file: File| -> io::Result<()> {
        file.write_all(secret.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()
    };
    match File::options().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Err(unusable(format_args!("{place} exists and is not overwritten: give another --out")))
        }
        created => created.and_then(written).with_context(|| format!("cannot write the token file {place}")),
    }
}
