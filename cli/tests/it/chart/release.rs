//! A release of the chart, as helm renders it.

use std::collections::BTreeMap;

use crate::chart::{chart, helm, parts};

/// Documents and notes of a release.
pub(super) struct Rendered {
    /// Texts of all objects by kind and name.
    pub(super) objects: BTreeMap<(String, String), String>,
    pub(super) notes: String,
}

/// Renders the chart with a zone `eu-1a`, unless a value names another. `None` if helm is not
/// installed, and then `test` is recorded as skipped.
pub(super) fn render(test: &str, values: &[&str]) -> Option<Rendered> {
    Some(install(test, values)?.unwrap_or_else(|error| panic!("{error}")))
}

/// Returns helm's error for values that it refuses, as [`render`].
pub(super) fn refused(test: &str, values: &[&str]) -> Option<String> {
    Some(install(test, values)?.err().unwrap())
}

fn install(test: &str, values: &[&str]) -> Option<Result<Rendered, String>> {
    let chart = chart();
    let mut args = vec![
        "install",
        "p",
        chart.to_str().unwrap(),
        "--dry-run=client",
        "--set",
        "zones[0].name=eu-1a",
    ];
    args.extend(values.iter().flat_map(|value| ["--set", value]));
    let (code, out, err) = parts(helm(&format!("chart::{test}"), &args)?);
    if code != Some(0) {
        return Some(Err(err));
    }
    let (manifest, notes) = out.split_once("\nNOTES:\n").unwrap();
    let value = |document: &str, mark: &str| {
        document
            .lines()
            .find_map(|line| line.strip_prefix(mark))
            .unwrap_or_default()
            .to_owned()
    };
    let objects = manifest.split("\n---\n").map(|document| {
        (
            (value(document, "kind: "), value(document, "  name: ")),
            document.to_owned(),
        )
    });
    Some(Ok(Rendered {
        objects: objects.collect(),
        notes: notes.to_owned(),
    }))
}

impl Rendered {
    pub(super) fn object(&self, kind: &str, name: &str) -> &str {
        let object = self.objects.get(&(kind.to_owned(), name.to_owned()));
        object.unwrap_or_else(|| panic!("no {kind} {name}: {:?}", self.objects.keys()))
    }

    pub(super) fn has_kind(&self, wanted: &str) -> bool {
        self.objects.keys().any(|(kind, _)| kind == wanted)
    }
}

pub(super) fn assert_has(text: &str, wanted: &[&str]) {
    wanted
        .iter()
        .for_each(|wanted| assert!(text.contains(wanted), "{wanted:?} is missing:\n{text}"));
}

pub(super) fn assert_has_none(text: &str, unwanted: &[&str]) {
    unwanted
        .iter()
        .for_each(|unwanted| assert!(!text.contains(unwanted), "{unwanted:?}:\n{text}"));
}
