//! The Rust files of a crate without their tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{entries, path_of, root};

#[derive(Debug)]
pub(super) struct SourceFile {
    /// From the root of the workspace.
    pub(super) path: String,
    /// Lines outside tests.
    pub(super) lines: Vec<String>,
    /// Files and folders of modules that are `#[cfg(test)] mod x;` here.
    test_modules: Vec<PathBuf>,
}

impl SourceFile {
    fn parse(path: &Path, text: &str) -> Self {
        let mut file = Self {
            path: path
                .strip_prefix(root())
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned(),
            lines: Vec::new(),
            test_modules: Vec::new(),
        };
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line.trim() != "#[cfg(test)]" {
                file.lines.push(line.to_owned());
                continue;
            }
            // rustfmt ends an item with a bracket below its first letter, or with a semicolon.
            let indent = &line[..line.len() - line.trim_start().len()];
            let item = lines
                .by_ref()
                .find(|line| !line.trim().starts_with("#["))
                .unwrap_or_default();
            if let Some(name) = item
                .trim()
                .strip_suffix(';')
                .and_then(|item| item.split("mod ").nth(1))
            {
                let folder = match path.file_stem().and_then(|stem| stem.to_str()) {
                    Some("lib" | "main" | "mod") => path.with_file_name(""),
                    _ => path.with_extension(""),
                };
                file.test_modules
                    .extend([folder.join(name), folder.join(name).with_extension("rs")]);
            }
            let ends = |line: &str| line.ends_with(';') || line == format!("{indent}}}");
            if !ends(item) {
                lines.by_ref().find(|line| *line == format!("{indent}}}"));
            }
        }
        file
    }
}

/// Returns the files below the `src` of a crate, without test modules.
pub(super) fn source_files(folder: &str) -> Vec<SourceFile> {
    let paths = rust_files(&path_of(folder).join("src"));
    assert!(!paths.is_empty(), "{folder} has no source files");
    let read_file = |path: PathBuf| {
        let file = SourceFile::parse(&path, &fs::read_to_string(&path).unwrap());
        (path, file)
    };
    let files: Vec<(PathBuf, SourceFile)> = paths.into_iter().map(read_file).collect();
    let test_modules: BTreeSet<PathBuf> = files
        .iter()
        .flat_map(|(_, file)| file.test_modules.clone())
        .collect();
    let is_test = |path: &Path| {
        path.ancestors()
            .any(|ancestor| test_modules.contains(ancestor))
    };
    files
        .into_iter()
        .filter(|(path, _)| !is_test(path))
        .map(|(_, file)| file)
        .collect()
}

pub(super) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let files = entries(folder).into_iter().flat_map(|path| {
        if path.is_dir() {
            rust_files(&path)
        } else {
            vec![path]
        }
    });
    files
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

#[test]
fn tests_are_excluded_from_source_files() {
    let text = "\
//! Why.
mod kept;
#[cfg(test)]
mod model;
#[cfg(test)]
use left::out;

fn kept() {
    #[cfg(test)]
    if left_out() {
        return;
    }
}

#[cfg(test)]
mod tests {
    fn left_out() {
    }
}
";
    let path = root().join("lib/core/src/noun.rs");
    let file = SourceFile::parse(&path, text);
    assert_eq!(file.path, "lib/core/src/noun.rs");
    assert_eq!(
        file.lines,
        ["//! Why.", "mod kept;", "", "fn kept() {", "}", ""]
    );
    let folder = root().join("lib/core/src/noun");
    assert_eq!(
        file.test_modules,
        [folder.join("model"), folder.join("model.rs")]
    );
    let lib = SourceFile::parse(
        &root().join("lib/core/src/lib.rs"),
        "#[cfg(test)]\npub(crate) mod model;\n",
    );
    assert_eq!(lib.test_modules[0], root().join("lib/core/src/model"));
}
