//! A release of the chart, as helm renders it.

use std::collections::BTreeMap;

use crate::chart::{chart, helm};

/// Documents and notes of a release.
pub(super) struct Rendered {
    /// Texts of all objects by kind and name.
    pub(super) objects: BTreeMap<(String, String), String>,
    pub(super) notes: String,
}

/// Renders the chart with a zone `eu-1a`, unless a value names another. `None` if helm is not
/// installed, and then `test` is recorded as skipped.
pub(super) fn render(test: &str, values: &[&str]) -> Option<Result<Rendered, String>> {
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
    let output = helm(&format!("chart::{test}"), &args)?;
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if !output.status.success() {
        return Some(Err(text(output.stderr)));
    }
    let out = text(output.stdout);
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
