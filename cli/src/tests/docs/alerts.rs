//! Generates the table of alerts in `docs/reference/metrics.md` from the shipped rules, and fails when an alert does not
//! lead to its section of the runbook.

use std::fmt::Write;

use super::links::sections;
use super::read;

const RULES: &str = "charts/plimsoll/alerts.yaml";
pub(super) const RUNBOOK: &str = "docs/runbook.md";
/// Address that the chart replaces.
pub(super) const RUNBOOK_URL: &str = "https://plimsoll.example/docs/runbook.md#";

/// A rule, with the texts of its keys.
#[derive(Debug, Default)]
struct Rule {
    alert: String,
    expr: String,
    wait: String,
    severity: String,
    summary: String,
    description: String,
    runbook_url: String,
}

fn rules() -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for line in read(RULES).lines().map(str::trim_start) {
        let Some((key, value)) = line.split_once(": ") else {
            continue;
        };
        if key == "- alert" {
            rules.push(Rule::default());
        }
        let Some(rule) = rules.last_mut() else {
            continue;
        };
        let text = match key {
            "- alert" => &mut rule.alert,
            "expr" => &mut rule.expr,
            "for" => &mut rule.wait,
            "labels" => &mut rule.severity,
            "summary" => &mut rule.summary,
            "description" => &mut rule.description,
            "runbook_url" => &mut rule.runbook_url,
            _ => panic!("{}: unknown key {key}", rule.alert),
        };
        value.trim_matches('"').clone_into(text);
    }
    for rule in &mut rules {
        let severity = rule.severity.strip_prefix("{ severity: ");
        rule.severity = severity
            .and_then(|rest| rest.strip_suffix(" }"))
            .unwrap_or_default()
            .to_owned();
    }
    rules
}

/// Returns a summary with its templates as words: the name of the label, or N for the value.
fn plain(summary: &str) -> String {
    let summary = summary.replace(
        "{{ with $labels.bucket }}Bucket {{ . }}{{ else }}The whole fleet{{ end }}",
        "A bucket or the whole fleet",
    );
    let mut parts = summary.split("{{");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (template, rest) = part.split_once("}}").unwrap();
        match template.trim().strip_prefix("$labels.") {
            Some(label) => plain += &label.to_uppercase(),
            None => plain.push('N'),
        }
        plain += rest;
    }
    plain
}

/// Returns the table of the alerts.
pub(super) fn table() -> String {
    let mut table =
        "| alert | condition | for | severity | meaning |\n|---|---|---|---|---|\n".to_owned();
    for rule in rules() {
        let anchor = rule.runbook_url.trim_start_matches(RUNBOOK_URL);
        // A bar within a cell is escaped.
        let (expr, meaning) = (rule.expr.replace('|', "\\|"), plain(&rule.summary));
        let Rule {
            alert,
            wait,
            severity,
            ..
        } = rule;
        let link = format!("[`{alert}`](../runbook.md#{anchor})");
        writeln!(
            table,
            "| {link} | `{expr}` | {wait} | {severity} | {meaning} |"
        )
        .unwrap();
    }
    table
}

#[test]
fn every_alert_leads_to_its_section() {
    let sections = sections(RUNBOOK);
    let rules = rules();
    assert!(rules.len() > 30, "{rules:?}");
    for rule in rules {
        assert!(
            ["critical", "warning"].contains(&rule.severity.as_str()),
            "{rule:?}"
        );
        for text in [&rule.summary, &rule.description] {
            assert!(!text.is_empty() && !plain(text).contains('|'), "{rule:?}");
        }
        let anchor = rule.runbook_url.strip_prefix(RUNBOOK_URL);
        let anchor = anchor.unwrap_or_else(|| panic!("{rule:?}"));
        let section = sections
            .get(anchor)
            .unwrap_or_else(|| panic!("{RUNBOOK} has no #{anchor}"));
        assert!(
            section.contains(&rule.alert),
            "section {anchor} of {RUNBOOK} does not name {}",
            rule.alert
        );
    }
}
