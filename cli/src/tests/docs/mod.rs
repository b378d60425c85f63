//! Tests that keep the documents true: links resolve, commands parse, generated pages and bounds
//! match the code, and alerts and dashboards lead to the runbook.

mod alerts;
mod bounds;
mod commands;
mod dashboards;
mod fences;
mod links;
mod metrics;
mod schemas;

use std::fs;
use std::path::{Path, PathBuf};

struct Page {
    /// From the root of the repository.
    path: PathBuf,
    text: String,
}

/// A line of a page, and the language of its fence.
struct Line<'a> {
    number: usize,
    text: &'a str,
    fence: Option<&'a str>,
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Reads a file by its path from the root of the repository.
fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns every document: the Markdown files at the root and below `docs`.
fn pages() -> Vec<Page> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut folders = vec![PathBuf::from("docs")];
    let is_page = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    let entries = |folder: &Path| {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        entries
            .map(|entry| folder.join(entry.unwrap().file_name()))
            .collect::<Vec<_>>()
    };
    found.extend(entries(Path::new("")).into_iter().filter(is_page));
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            if root().join(&path).is_dir() {
                folders.push(path);
            } else if is_page(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(
        found.len() > 5,
        "the documents are where this test looks for them"
    );
    found
        .into_iter()
        .map(|path| Page {
            text: read(&path),
            path,
        })
        .collect()
}

impl Page {
    fn lines(&self) -> Vec<Line<'_>> {
        let mut fence = None;
        let mut lines = Vec::new();
        for (at, text) in self.text.lines().enumerate() {
            match (text.trim_start().strip_prefix("```"), fence) {
                (Some(_), Some(_)) => fence = None,
                (Some(language), None) => fence = Some(language.trim()),
                (None, _) => lines.push(Line {
                    number: at + 1,
                    text,
                    fence,
                }),
            }
        }
        assert!(
            fence.is_none(),
            "{}: a fence is not closed",
            self.path.display()
        );
        lines
    }
}
