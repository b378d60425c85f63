//! Named fleets in a file of the operator: the addresses, the CA and the token file that commands use without flags.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::PathBuf;

use clap::builder::Resettable;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use plimsoll_host::atomic_file;
use plimsoll_policy::{Document, Source};
use plimsoll_tls::Tier;
use serde::{Deserialize, Serialize};

use super::Address;

/// The argument that names a context, and the one with the addresses of controllers.
const CONTEXT: &str = "context";
const ADDRESSES: &str = "addresses";
const EXAMPLE: &str = "\
current: prod
contexts:
  prod: { controller: [\"https://controller:7401\"], ca: ca.crt, token_file: prod.token }";

/// The file with all contexts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contexts {
    #[serde(skip)]
    pub(crate) path: PathBuf,
    /// Used if neither --context nor PLIMSOLL_CONTEXT is given.
    pub(crate) current: Option<String>,
    pub(crate) contexts: BTreeMap<String, Context>,
}

/// A fleet. It names files of secrets and holds none.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Context {
    pub(crate) controller: Vec<String>,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) token_file: Option<PathBuf>,
}

impl Contexts {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, or is invalid, with file, line and remedy.
    pub(crate) fn read() -> Result<Self, String> {
        let path = path();
        let bytes = fs::read(&path).map_err(|error| {
            let path = path.display();
            format!(
                "cannot read the contexts in {path}: {error}; the file is written as\n{EXAMPLE}"
            )
        })?;
        Self::parse(path, &bytes)
    }

    fn parse(path: PathBuf, bytes: &[u8]) -> Result<Self, String> {
        let name = path.display().to_string();
        let source = Source::from_bytes(&name, bytes).map_err(|error| error.to_string())?;
        let read = || {
            let document = Document::open(source)?;
            let root = document.root();
            let mut file: Self = document.parse()?;
            file.path.clone_from(&path);
            for (name, context) in &mut file.contexts {
                let field = root.then("contexts").then(name).then("controller");
                for (at, address) in context.controller.iter().enumerate() {
                    let checked = Address::parse(address, Tier::Controller);
                    let field = field.then(&at.to_string());
                    checked.map_err(|why| field.refuse(why, "each item is one address"))?;
                }
                // A command may run in any directory.
                let files = [&mut context.ca, &mut context.token_file];
                files
                    .into_iter()
                    .flatten()
                    .for_each(|it| *it = path.with_file_name(&*it));
            }
            if let Some(current) = &file.current
                && let Err(reason) = file.get(current)
            {
                return Err(root.then("current").refuse(reason, "name one of these"));
            }
            Ok(file)
        };
        read().map_err(|fault: Box<_>| fault.to_string())
    }

    /// # Errors
    /// The file has no context of this name.
    pub(crate) fn get(&self, name: &str) -> Result<&Context, String> {
        self.contexts.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
            format!(
                "no context `{name}` in {}, only {}",
                self.path.display(),
                names.join(", ")
            )
        })
    }

    /// Writes the file with another current context, and leaves its other lines as they are.
    ///
    /// # Errors
    /// The file has no context of this name, or cannot be written.
    pub(crate) fn choose(&self, name: &str) -> Result<(), String> {
        self.get(name)?;
        let replace = || {
            let text = fs::read_to_string(&self.path)?;
            let others = text.lines().filter(|line| !line.starts_with("current:"));
            let lines: Vec<&str> = others.collect();
            let text = format!("current: {name:?}\n{}\n", lines.join("\n"));
            atomic_file::replace_for_its_owner(&self.path, text.as_bytes(), 0o600)
        };
        replace().map_err(|error| format!("cannot write {}: {error}", self.path.display()))
    }
}

fn path() -> PathBuf {
    let of = |name| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let home = || of("HOME").unwrap_or_default().join(".config");
    of("XDG_CONFIG_HOME")
        .unwrap_or_else(home)
        .join("plimsoll/contexts.yaml")
}

/// Gives the commands of operators the values of the context that the arguments name, or of the current one, for flags that
/// are absent. Returns `None` if there is no context to use, or its name is empty.
///
/// A named context is a whole fleet: no variable of the environment replaces a part of it, and no token of the environment
/// is sent there. The current one is left out where an address is given, which may be another fleet.
///
/// # Errors
/// The file is invalid, or has no such context.
pub(crate) fn apply(command: Command, given: &ArgMatches) -> Result<Option<Command>, String> {
    let mut innermost = given;
    while let Some((_, inner)) = innermost.subcommand() {
        innermost = inner;
    }
    let Ok(named) = innermost.try_get_one::<String>(CONTEXT) else {
        return Ok(None);
    };
    let has_address = innermost.value_source(ADDRESSES) != Some(ValueSource::DefaultValue);
    let is_out = named.map_or(has_address || !path().exists(), String::is_empty);
    if is_out {
        return Ok(None);
    }
    let contexts = Contexts::read()?;
    let context = match named.or(contexts.current.as_ref()) {
        Some(name) => contexts.get(name)?,
        None => return Ok(None),
    };
    Ok(Some(with_defaults(command, context, named.is_some())))
}

fn with_defaults(command: Command, context: &Context, is_named: bool) -> Command {
    let has_context = command.get_arguments().any(|arg| arg.get_id() == CONTEXT);
    let command = command.mut_args(|arg| {
        let path = |path: &Option<PathBuf>| {
            path.iter()
                .map(|it| it.clone().into_os_string().into())
                .collect()
        };
        let values: Vec<clap::builder::OsStr> = match arg.get_id().as_str() {
            ADDRESSES if has_context => context.controller.iter().map(Into::into).collect(),
            "ca" if has_context => path(&context.ca),
            "token_file" if has_context => path(&context.token_file),
            _ => return arg,
        };
        let arg = arg.default_values(values);
        if is_named {
            arg.env(Resettable::Reset)
        } else {
            arg
        }
    });
    command.mut_subcommands(|inner| with_defaults(inner, context, is_named))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::ControllerArgs;
    use super::*;

    fn read(text: &str) -> Result<Contexts, String> {
        Contexts::parse("/etc/p/contexts.yaml".into(), text.as_bytes())
    }

    #[test]
    fn faults_name_file_line_and_remedy() {
        assert_eq!(read(EXAMPLE).unwrap().current.as_deref(), Some("prod"));
        for (text, parts) in [
            (
                "contexts:\n  a: { controler: [\"http://a\"] }",
                ["contexts.yaml:2:8", "did you mean `controller`"],
            ),
            (
                "contexts:\n  a: { controller: [\"a:1\"] }",
                ["contexts.yaml:2:21", "write it as http"],
            ),
            (
                "contexts:\n  a: { controller: [\"http://a\"], token: x }",
                ["contexts.yaml:2:34", "`token_file`"],
            ),
            (
                "current: b\ncontexts:\n  a: { controller: [\"http://a\"] }",
                ["contexts.yaml:1:10", "only a"],
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }

    #[test]
    fn choice_leaves_other_lines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("contexts.yaml");
        let text = "# fleets\ncurrent: a\ncontexts:\n  a: { controller: [\"http://a\"] }\n  b: { controller: [\"http://b\"] }\n";
        fs::write(&path, text).unwrap();
        let contexts = Contexts::parse(path.clone(), text.as_bytes()).unwrap();
        assert!(contexts.choose("c").unwrap_err().contains("only a, b"));
        contexts.choose("b").unwrap();
        let expected = text.replace("# fleets\ncurrent: a\n", "current: \"b\"\n# fleets\n");
        assert_eq!(fs::read_to_string(path).unwrap(), expected);
    }

    #[derive(Parser)]
    struct Asks {
        #[command(flatten)]
        args: ControllerArgs,
    }

    #[test]
    fn flags_win_and_named_context_is_whole() {
        let contexts =
            read("contexts: { a: { controller: [\"http://a\", \"http://b\"], ca: a.crt } }")
                .unwrap();
        let of = |args: &[&str], is_named| {
            let command = <Asks as clap::CommandFactory>::command();
            // PATH stands for a variable of the caller, as it is always set.
            let command = command.mut_arg("token_file", |arg| arg.env("PATH"));
            let command = with_defaults(command, contexts.get("a").unwrap(), is_named);
            let matches = command
                .try_get_matches_from([&["x"], args].concat())
                .unwrap();
            let Asks { args } = clap::FromArgMatches::from_arg_matches(&matches).unwrap();
            let addresses: Vec<String> = args.addresses.iter().map(ToString::to_string).collect();
            let ca = args.credentials.ca.map(|path| path.display().to_string());
            (
                addresses.join(" "),
                ca.unwrap_or_default(),
                args.credentials.token_file.is_some(),
            )
        };
        let all = "http://a http://b".to_owned();
        assert_eq!(
            of(&[], true),
            (all.clone(), "/etc/p/a.crt".to_owned(), false)
        );
        assert_eq!(of(&[], false), (all, "/etc/p/a.crt".to_owned(), true));
        let flags = [
            "--controller",
            "http://c",
            "--ca",
            "c.crt",
            "--token-file",
            "t",
        ];
        assert_eq!(
            of(&flags, true),
            ("http://c".to_owned(), "c.crt".to_owned(), true)
        );
    }
}
