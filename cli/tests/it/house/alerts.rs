//! The shipped alerts are valid, and each has a case in which it is silent and one in which it fires.

use std::fs;
use std::process::Command;

use super::root;

const FOLDER: &str = "charts/plimsoll";

fn read(name: &str) -> String {
    fs::read_to_string(root().join(FOLDER).join(name)).unwrap()
}

/// Returns the rest of each line that begins with a mark.
fn after<'a>(text: &'a str, mark: &str) -> Vec<&'a str> {
    let lines = text.lines().map(str::trim_start);
    lines.filter_map(|line| line.strip_prefix(mark)).collect()
}

#[test]
fn every_alert_has_cases() {
    let (rules, cases) = (read("alerts.yaml"), read("alerts.test.yaml"));
    let alerts = after(&rules, "- alert: ");
    assert!(alerts.len() > 30, "{alerts:?}");
    assert_eq!(
        alerts,
        after(&cases, "- name: "),
        "in the order of the rules"
    );
    for case in cases.split("- name: ").skip(1) {
        let name = case.lines().next().unwrap();
        let asks = format!("expr: 'ALERTS{{alertname=\"{name}\", alertstate=\"firing\"}}'");
        assert_eq!(case.matches(&asks).count(), 2, "{case}");
        assert!(case.contains("exp_samples: []"), "{name} is never silent");
        let fires =
            format!("value: 1, labels: 'ALERTS{{alertname=\"{name}\", alertstate=\"firing\"");
        assert!(case.contains(&fires), "{name} never fires");
    }
}

#[test]
fn alerts_pass_their_cases() {
    for (what, file) in [("check", "alerts.yaml"), ("test", "alerts.test.yaml")] {
        let path = root().join(FOLDER).join(file);
        let ended = Command::new("promtool")
            .args([what, "rules"])
            .arg(path)
            .output();
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => {
                return plimsoll_testing::skipped(&format!(
                    "house::alerts::alerts_pass_their_cases: promtool is not installed: {error}"
                ));
            }
        };
        let output = [ended.stdout, ended.stderr].concat();
        let output = String::from_utf8_lossy(&output);
        assert!(
            ended.status.success(),
            "promtool {what} rules {file}: {output}"
        );
    }
}
