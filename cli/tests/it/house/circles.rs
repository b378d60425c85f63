//! Files of a crate that import each other in a circle.

use std::collections::{BTreeMap, BTreeSet};

use super::source::source_files;
use super::{METADATA, folder};

const CIRCLE_MAX: usize = 3;

/// Modules by path, such as `hot::table`, with the modules that each imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

#[test]
fn no_circle_of_files_is_large() {
    for package in METADATA.workspace_packages() {
        let folder = folder(package);
        let imports = imports(&folder);
        for module in imports.keys() {
            let reached = reached(&imports, module);
            let circle: Vec<&String> = reached
                .iter()
                .filter(|other| self::reached(&imports, other).contains(module))
                .collect();
            assert!(
                circle.len() <= CIRCLE_MAX,
                "{folder}: these files import each other in a circle: {circle:?}"
            );
        }
    }
}

/// Returns the modules of a crate. A module is a part of the modules above it, so that its imports of
/// these do not count.
fn imports(folder: &str) -> Imports {
    let files: BTreeMap<String, String> = source_files(folder)
        .into_iter()
        .filter_map(|file| Some((module(&file.path)?, file.lines.join("\n"))))
        .collect();
    let imports = files.iter().map(|(own, text)| {
        let imported = uses(text)
            .into_iter()
            .filter_map(|path| named(&files, own, &path))
            .filter(|other| other != own && !own.starts_with(&format!("{other}::")));
        (own.clone(), imported.collect())
    });
    imports.collect()
}

/// Returns the path of the module in a file; `None` for the root of a crate.
fn module(path: &str) -> Option<String> {
    let (_, below) = path.split_once("src/")?;
    let below = below.strip_suffix(".rs")?;
    let below = below.strip_suffix("/mod").unwrap_or(below);
    (!["lib", "main"].contains(&below)).then(|| below.replace('/', "::"))
}

/// Returns the paths that private `use` items name, without braces.
fn uses(text: &str) -> Vec<String> {
    let items = text.split("\nuse ").skip(1);
    items
        .filter_map(|item| Some(item.split_once(';')?.0))
        .flat_map(|item| {
            let words: String = item.split_whitespace().collect::<Vec<_>>().join(" ");
            expanded("", &words)
        })
        .collect()
}

fn expanded(prefix: &str, item: &str) -> Vec<String> {
    let item = item.trim();
    let Some((head, rest)) = item.split_once('{') else {
        return vec![format!("{prefix}{item}")];
    };
    let inner = rest.strip_suffix('}').unwrap_or(rest);
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for letter in inner.chars() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().unwrap().push(letter);
    }
    let prefix = format!("{prefix}{head}");
    parts
        .iter()
        .filter(|part| !part.trim().is_empty())
        .flat_map(|part| expanded(&prefix, part))
        .collect()
}

/// Returns the module of this crate that a path names, or names something in.
fn named(files: &BTreeMap<String, String>, own: &str, path: &str) -> Option<String> {
    let mut place: Vec<&str> = own.split("::").collect();
    let mut steps = path.split("::").peekable();
    match steps.peek() {
        Some(&"crate") => {
            place.clear();
            steps.next();
        }
        Some(&"self") => drop(steps.next()),
        _ => {
            while steps.next_if_eq(&"super").is_some() {
                place.pop();
            }
        }
    }
    place.extend(steps);
    (1..=place.len())
        .rev()
        .map(|length| place[..length].join("::"))
        .find(|module| files.contains_key(module))
}

/// Returns the modules that a module imports, directly or through others.
fn reached(imports: &Imports, module: &str) -> BTreeSet<String> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![module.to_owned()]);
    while let Some(module) = open.pop() {
        for next in imports.get(&module).into_iter().flatten() {
            if reached.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    reached
}
