//! `plimsoll tokens add`: adds tokens of operators to the tokens file of a tier. The file has only
//! hashes, so a token is shown or written once.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand, ValueHint};
use plimsoll_admin::access::{
    AdminTokens, QuotaRights, Role, TOKEN_FILE_BYTES_MAX, Token as Entry, TokenHash,
};
use plimsoll_core::names::Name;
use plimsoll_host::{atomic_file, regular_file};

use crate::admin_client::Token;
use crate::cmd::unusable;
use crate::output;

/// Add the tokens of operators to a tokens file
///
/// The file has a line for each token: delete the line, and the token is refused. Processes that run with --tokens FILE
/// take the changes within a second. Exit code 0: done; 1: a file cannot be written; 2: invalid arguments or files.
#[derive(Debug, Subcommand)]
pub(crate) enum TokensCommand {
    /// Make a token: its hash is added to the tokens file, and the token itself to a file of its own
    Add(AddArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
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
    /// Tokens file of a process: lines of NAME ROLE sha256:HEX, and quota:RIGHTS or quota:RIGHTS:PREFIX if they have any
    #[arg(long, env = "PLIMSOLL_TOKENS", value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// New file for the token, readable by its owner alone; - prints it on standard output
    #[arg(long, env = "PLIMSOLL_OUT", value_name = "TOKEN_FILE", value_hint = ValueHint::FilePath)]
    out: PathBuf,
}

pub(crate) fn run(TokensCommand::Add(args): &TokensCommand) -> anyhow::Result<ExitCode> {
    let path = &args.file;
    let refuse =
        |cause: String| unusable(format_args!("the tokens file {}: {cause}", path.display()));
    let before = match regular_file::read_whole(path, TOKEN_FILE_BYTES_MAX) {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        read => read.map_err(|error| refuse(format!("cannot read it: {error}")))?,
    };
    let before =
        String::from_utf8(before).map_err(|_| refuse("it is not UTF-8 text".to_owned()))?;
    let token = Token::generate().context("the system has no random bytes")?;
    let entry = Entry {
        name: args.name.clone(),
        role: args.role,
        hash: TokenHash::of(token.secret()),
        rights: args.rights.clone(),
    };
    let separator = if before.is_empty() || before.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    let after = format!("{before}{separator}{entry}\n");
    after
        .parse::<AdminTokens>()
        .map_err(|error| refuse(error.to_string()))?;
    if args.out == Path::new("-") {
        write(path, &after)?;
        writeln!(output::stdout(), "{}", token.secret())
            .context("cannot write to standard output")?;
        return Ok(ExitCode::SUCCESS);
    }
    create(&args.out, token.secret())?;
    if let Err(error) = write(path, &after) {
        // A token that no tier accepts must not stay.
        let _ = std::fs::remove_file(&args.out);
        return Err(error);
    }
    let (name, role, out) = (&args.name, args.role, args.out.display());
    writeln!(
        output::stdout(),
        "added {name} as {role}; use it with --token-file {out}"
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Replaces the tokens file. Its owner and mode stay, so that the tier can still read it.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    // A link stays, and its target is replaced.
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mode = path
        .metadata()
        .map_or(0o600, |metadata| metadata.permissions().mode() & 0o777);
    let written = atomic_file::replace_for_its_owner(path, text.as_bytes(), mode);
    written.with_context(|| format!("cannot write the tokens file {}", path.display()))
}

/// Creates the file of a token for only its owner.
fn create(path: &Path, secret: &str) -> anyhow::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let place = path.display();
    let written = |mut file: File| -> io::Result<()> {
        file.write_all(secret.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()
    };
    match File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
    {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(unusable(format_args!(
            "{place} exists and is not overwritten: give another --out"
        ))),
        created => created
            .and_then(written)
            .with_context(|| format!("cannot write the token file {place}")),
    }
}
