//! Generates the tables of `docs/reference/metrics.md` from the tables of the tiers and the alerts, and fails when
//! the page is out of date, or when a dashboard or chart uses a metric that no tier has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_core::stats::metrics::{About, Kind};

use super::{read, root};

const PAGE: &str = "docs/reference/metrics.md";
const BEGIN: &str = "<!-- generated -->\n";
const END: &str = "<!-- end -->\n";

/// Returns every metric with the tiers that export it, in the order of the names.
fn metrics() -> Vec<(About, Vec<&'static str>)> {
    let tiers = [
        ("controller", plimsoll_controller::admin::described()),
        ("aggregator", plimsoll_aggregator::described_metrics()),
        ("service, sidecar", plimsoll_client::Metrics::described()),
        ("sidecar", plimsoll_sidecar::described_metrics()),
        ("quota server", plimsoll_quota::admin::described()),
    ];
    let mut metrics: BTreeMap<(&str, &str), (About, Vec<&str>)> = BTreeMap::new();
    for (tier, about) in tiers
        .into_iter()
        .flat_map(|(tier, all)| all.into_iter().map(move |about| (tier, about)))
    {
        metrics
            .entry((about.name, about.help))
            .or_insert((about, Vec::new()))
            .1
            .push(tier);
    }
    metrics.into_values().collect()
}

/// Returns the table of the metrics that an operator reads first, or of the others.
fn table(is_first: bool) -> String {
    let mut table = "| metric | of | type | labels | meaning |\n|---|---|---|---|---|\n".to_owned();
    for (
        About {
            name,
            kind,
            labels,
            help,
            ..
        },
        tiers,
    ) in metrics()
        .into_iter()
        .filter(|(about, _)| about.is_first == is_first)
    {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let (tiers, kind, labels) = (tiers.join(", "), kind.as_str(), labels.join(", "));
        writeln!(table, "| `{name}` | {tiers} | {kind} | {labels} | {help} |").unwrap();
    }
    table
}

#[test]
fn the_page_of_metrics_is_current() {
    let page = read(PAGE);
    let mut generated = String::new();
    let mut rest = page.as_str();
    for table in [super::alerts::table(), table(true), table(false)] {
        let (before, after) = rest.split_once(BEGIN).unwrap();
        generated += &format!("{before}{BEGIN}{table}{END}");
        rest = after.split_once(END).unwrap().1;
    }
    generated += rest;
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(root().join(PAGE), &generated).unwrap();
        return;
    }
    assert!(
        page == generated,
        "{PAGE} is out of date: UPDATE_DOCS=1 cargo test -p plimsoll-cli docs::metrics writes it"
    );
}

#[test]
fn metric_names_follow_the_convention() {
    for (
        About {
            name, kind, help, ..
        },
        _,
    ) in metrics()
    {
        assert!(name.starts_with("plimsoll_"), "{name}");
        assert_eq!(
            name.ends_with("_total"),
            kind == Kind::Counter,
            "{name} is a {}",
            kind.as_str()
        );
        assert!(help.ends_with('.') && !help.contains('|'), "{name}: {help}");
    }
}

#[test]
fn operator_reads_a_dozen_metrics_first() {
    let first = metrics()
        .into_iter()
        .filter(|(about, _)| about.is_first)
        .count();
    assert!((8..=14).contains(&first), "{first}");
}

#[test]
fn dashboards_and_charts_use_existing_metrics() {
    let mut known = BTreeSet::new();
    for (About { name, kind, .. }, _) in metrics() {
        known.insert(name.to_owned());
        if kind == Kind::Histogram {
            known.extend(["_bucket", "_sum", "_count"].map(|part| format!("{name}{part}")));
        }
    }
    let mut asked = BTreeSet::new();
    // The dashboards are part of the chart.
    for path in files(&root().join("charts")) {
        asked.extend(names(&fs::read_to_string(path).unwrap()).map(str::to_owned));
    }
    assert!(asked.len() > 10, "{asked:?}");
    let missing: Vec<&String> = asked.difference(&known).collect();
    assert!(missing.is_empty(), "no tier exports {missing:?}");
}

/// Returns the texts that look like the name of a metric.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let in_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    text.match_indices("plimsoll_").map(move |(start, _)| {
        let rest = &text[start..];
        &rest[..rest.find(|letter| !in_name(letter)).unwrap_or(rest.len())]
    })
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}
