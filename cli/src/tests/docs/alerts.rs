//! Compares the alerts of `docs/reference/metrics.md` with the shipped rules.

use super::{pages, read};

const RULES: &str = "charts/plimsoll/alerts.yaml";

/// Returns the name, the condition and the wait of every rule.
fn rules() -> Vec<[String; 3]> {
    let mut rules: Vec<[String; 3]> = Vec::new();
    for line in read(RULES).lines().map(str::trim_start) {
        if let Some(name) = line.strip_prefix("- alert: ") {
            rules.push([name.to_owned(), String::new(), String::new()]);
        }
        for (prefix, cell) in [("expr: ", 1), ("for: ", 2)] {
            if let (Some(value), Some(rule)) = (line.strip_prefix(prefix), rules.last_mut()) {
                value.clone_into(&mut rule[cell]);
            }
        }
    }
    rules
}

#[test]
fn every_alert_is_listed_with_its_condition() {
    let page = pages()
        .into_iter()
        .find(|page| page.path.ends_with("reference/metrics.md"))
        .unwrap();
    let listed: Vec<[String; 3]> = page
        .lines()
        .into_iter()
        .filter_map(|line| {
            // A bar within a cell is escaped.
            let line = line.text.replace("\\|", "\u{0}");
            let cells: Vec<String> = line
                .split('|')
                .map(|cell| cell.trim().trim_matches('`').replace('\u{0}', "|"))
                .collect();
            let [_, name, condition, wait, _, _] = &cells[..] else {
                return None;
            };
            name.starts_with("Plimsoll")
                .then(|| [name.clone(), condition.clone(), wait.clone()])
        })
        .collect();
    assert_eq!(listed, rules());
    assert!(listed.len() > 10, "{listed:?}");
}
