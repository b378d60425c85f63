//! Alerts and dashboards of the chart, as helm renders them.

use super::release::{assert_has, render};
use super::trust::ISSUER;

#[test]
fn alerts_and_dashboards_link_to_the_runbook() {
    let watched = [
        "alerts=true",
        "dashboards=true",
        "runbook=https://wiki/plimsoll",
    ];
    let values = [ISSUER, &watched].concat();
    let Some(rendered) = render("alerts_and_dashboards_link_to_the_runbook", &values) else {
        return;
    };
    let rules = rendered.object("PrometheusRule", "p-plimsoll");
    assert_has(
        rules,
        &["runbook_url: https://wiki/plimsoll#lost-aggregators\n"],
    );
    let dashboards = rendered.object("ConfigMap", "p-plimsoll-dashboards");
    assert_has(
        dashboards,
        &[
            "grafana_dashboard: \"1\"\n",
            "  plimsoll-overview.json: |\n    {\n",
            "  plimsoll-quotas.json: |\n",
            "\"query\": \"https://wiki/plimsoll\"",
        ],
    );
    for text in [rules, dashboards] {
        assert!(!text.contains("plimsoll.example"), "{text}");
    }
}

#[test]
fn nothing_watches_by_default() {
    let Some(rendered) = render("nothing_watches_by_default", ISSUER) else {
        return;
    };
    assert!(!rendered.has_kind("PrometheusRule"));
    assert!(
        !rendered
            .objects
            .keys()
            .any(|(_, name)| name.ends_with("-dashboards"))
    );
}
