//! Catalogues with one JSON object a line.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

use super::rows::{RawRow, Rows};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow)]
    tenant: Cow<'a, str>,
    #[serde(borrow, default)]
    plan: Option<Cow<'a, str>>,
    #[serde(default)]
    weight: Option<f64>,
    #[serde(default)]
    floor_rps: Option<f64>,
    #[serde(default)]
    limits: BTreeMap<String, f64>,
}

/// Reads all rows. Empty lines are left out.
pub(super) fn read(text: &str, rows: &mut Rows<'_>) {
    for (line, number) in text
        .lines()
        .zip(1..)
        .filter(|(line, _)| !line.trim().is_empty())
    {
        if !rows.goes_on() {
            break;
        }
        let row = serde_json::from_str(line).map(|line: Line<'_>| RawRow {
            tenant: line.tenant,
            plan: line.plan,
            weight: line.weight,
            floor_rps: line.floor_rps,
            limits: line
                .limits
                .into_iter()
                .map(|(bucket, limit)| (Cow::Owned(bucket), limit))
                .collect(),
        });
        let row = row.map_err(|error| {
            // The text ends with the place in this line, which is not that in the file.
            let what = error.to_string();
            let what = what
                .rsplit_once(" at line ")
                .map_or(what.as_str(), |(what, _)| what);
            let hint = r#"write an object such as {"tenant":"acme","plan":"pro"}"#;
            rows.fault(number, "", what, hint)
        });
        rows.add(number, row);
    }
}
