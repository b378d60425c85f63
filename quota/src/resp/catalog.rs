//! The replies of `COMMAND` and its subcommands.

use std::sync::LazyLock;

use bytes::BytesMut;

use super::commands::{ENTRIES, Entry, entry};
use super::reply::{Reply, Version};

/// The replies about all commands, written once: a short question must not cost much more than another.
static WHOLE: LazyLock<[BytesMut; 4]> = LazyLock::new(|| {
    let docs: [&[u8]; 1] = [b"DOCS"];
    let cases = [
        (&[] as &[&[u8]], Version::Two),
        (&[], Version::Three),
        (&docs, Version::Two),
        (&docs, Version::Three),
    ];
    cases.map(|(arguments, version)| {
        let mut written = BytesMut::new();
        describe(arguments).write(version, &mut written);
        written
    })
});

/// Returns the reply about all commands in the bytes of a version; `None` where the arguments ask for something else.
pub(super) fn whole(arguments: &[&[u8]], version: Version) -> Option<&'static [u8]> {
    let [all_two, all_three, docs_two, docs_three] = &*WHOLE;
    let [two, three] = match arguments {
        [] => [all_two, all_three],
        [docs] if docs.eq_ignore_ascii_case(b"DOCS") => [docs_two, docs_three],
        [info] if info.eq_ignore_ascii_case(b"INFO") => [all_two, all_three],
        _ => return None,
    };
    Some(if version == Version::Two { two } else { three })
}

/// Answers `COMMAND` with these arguments.
pub(super) fn describe(arguments: &[&[u8]]) -> Reply {
    let [subcommand, names @ ..] = arguments else { return all() };
    match (subcommand.to_ascii_uppercase().as_slice(), names) {
        (b"COUNT", []) => Reply::Number(i64::try_from(ENTRIES.len()).unwrap_or(i64::MAX)),
        (b"LIST", []) => Reply::Array(ENTRIES.iter().map(|entry| Reply::bulk(entry.name)).collect()),
        (b"INFO", []) => all(),
        (b"INFO", names) => {
            Reply::Array(names.iter().map(|name| entry(name).map_or(Reply::Null, details)).collect())
        }
        (b"DOCS", []) => Reply::Map(ENTRIES.iter().map(documentation).collect()),
        (b"DOCS", names) => {
            Reply::Map(names.iter().filter_map(|name| entry(name)).map(documentation).collect())
        }
        _ => Reply::error("ERR Syntax error; COMMAND takes COUNT, LIST, INFO or DOCS"),
    }
}

fn all() -> Reply {
    Reply::Array(ENTRIES.iter().map(details).collect())
}

/// Returns the ten fields of an entry.
fn details(entry: &Entry) -> Reply {
    let (first, last, step) = entry.keys;
    let flags = entry.flags.iter().map(|flag| Reply::Simple(flag)).collect();
    let category = if first == 0 { "@connection" } else { "@write" };
    Reply::Array(vec![
        Reply::bulk(entry.name),
        Reply::Number(entry.arity),
        Reply::Set(flags),
        Reply::Number(first),
        Reply::Number(last),
        Reply::Number(step),
        Reply::Set(vec![Reply::Simple(category)]),
        Reply::Array(Vec::new()),
        Reply::Array(Vec::new()),
        Reply::Array(Vec::new()),
    ])
}

fn documentation(entry: &Entry) -> (Reply, Reply) {
    let text = |text: &str| Reply::bulk(text);
    let argument = Reply::Map(vec![
        (text("name"), text(entry.syntax)),
        (text("type"), text("string")),
        (text("display_text"), text(entry.syntax)),
    ]);
    let arguments = if entry.syntax.is_empty() { Vec::new() } else { vec![argument] };
    let fields = vec![
        (text("summary"), text(entry.summary)),
        (text("since"), text(env!("CARGO_PKG_VERSION"))),
        (text("group"), text(if entry.keys.0 == 0 { "connection" } else { "quota" })),
        (text("arguments"), Reply::Array(arguments)),
    ];
    (text(entry.name), Reply::Map(fields))
}
