//! Checks the Grafana dashboards without a Grafana: each is complete, fits the grid, and leads to the runbook. What the
//! queries answer is checked with a real Prometheus in `cli/tests/it/prometheus`.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use super::alerts::{RUNBOOK, RUNBOOK_URL};
use super::links::sections;
use super::root;

const NAMES: [&str; 6] = [
    "bucket",
    "control-plane",
    "overview",
    "quotas",
    "rollout",
    "tenants",
];
/// Schema of Grafana 10, which later ones migrate.
const SCHEMA: u64 = 39;
/// Columns of the grid.
const COLUMNS: u64 = 24;

/// Returns the dashboards by the names of their files.
fn dashboards() -> Vec<(String, Value)> {
    let entries = fs::read_dir(root().join("dashboards")).unwrap();
    let mut found: Vec<(String, Value)> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let value = serde_json::from_str(&text);
            (
                name.clone(),
                value.unwrap_or_else(|error| panic!("{name}: {error}")),
            )
        })
        .collect();
    found.sort_by(|(left, _), (right, _)| left.cmp(right));
    found
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    let text = value[key].as_str().unwrap_or_default();
    assert!(!text.is_empty(), "no {key}: {value}");
    text
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key]
        .as_array()
        .unwrap_or_else(|| panic!("no {key}: {value}"))
}

/// Returns the fields of the grid that a panel covers.
fn fields(panel: &Value) -> Vec<(u64, u64)> {
    let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
    assert!(w > 0 && h > 0 && x + w <= COLUMNS, "{panel}");
    (x..x + w)
        .flat_map(|x| (y..y + h).map(move |y| (x, y)))
        .collect()
}

#[test]
fn every_dashboard_is_shipped() {
    let names: Vec<String> = dashboards().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, NAMES);
}

#[test]
fn dashboards_have_titles_and_variables() {
    for (name, dashboard) in dashboards() {
        assert_eq!(text(&dashboard, "uid"), format!("plimsoll-{name}"));
        text(&dashboard, "title");
        text(&dashboard, "description");
        assert_eq!(dashboard["schemaVersion"], SCHEMA, "{name}");
        let variables = list(&dashboard["templating"], "list");
        let named = |wanted: &str| variables.iter().find(|variable| variable["name"] == wanted);
        assert_eq!(named("datasource").unwrap()["type"], "datasource", "{name}");
        let runbook = text(named("runbook").unwrap(), "query");
        assert_eq!(format!("{runbook}#"), RUNBOOK_URL, "{name}");
        let uses_bucket = dashboard["panels"].to_string().contains("$bucket");
        assert_eq!(uses_bucket, named("bucket").is_some(), "{name}");
    }
}

#[test]
fn panels_fit_the_grid() {
    for (name, dashboard) in dashboards() {
        let mut taken = BTreeSet::new();
        let mut ids = BTreeSet::new();
        for panel in list(&dashboard, "panels") {
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{name}: {panel}");
            for field in fields(panel) {
                assert!(taken.insert(field), "{name}: {field:?} is taken: {panel}");
            }
        }
    }
}

#[test]
fn panels_explain_themselves() {
    let sections = sections(RUNBOOK);
    for (name, dashboard) in dashboards() {
        for panel in list(&dashboard, "panels") {
            text(panel, "title");
            if panel["type"] == "row" {
                continue;
            }
            assert!(text(panel, "description").ends_with('.'), "{name}: {panel}");
            assert_eq!(
                panel["datasource"]["uid"], "${datasource}",
                "{name}: {panel}"
            );
            let url = text(&panel["links"][0], "url");
            let anchor = url
                .strip_prefix("${runbook}#")
                .unwrap_or_else(|| panic!("{url}"));
            assert!(
                sections.contains_key(anchor),
                "{name}: {RUNBOOK} has no #{anchor}"
            );
            let targets = list(panel, "targets");
            let refs: BTreeSet<&str> = targets.iter().map(|it| text(it, "refId")).collect();
            assert!(
                !refs.is_empty() && refs.len() == targets.len(),
                "{name}: {panel}"
            );
            for target in targets {
                let expr = text(target, "expr");
                assert!(
                    expr.contains("plimsoll_") || expr.contains("ALERTS"),
                    "{name}: {expr}"
                );
            }
        }
    }
}
