//! Variants of a scenario: the same file for other limits and fleets.

use std::path::Path;

use plimsoll_policy::{Document, Number, Source};
use serde::Deserialize;

use super::bounds::{Checked, RPS_MAX, entries, within};
use super::spec::ScenarioSpec;
use super::{Scenario, check};
use crate::error::ScenarioError;

const VARIANTS_MAX: usize = 100;

/// The part of a file that names its variants and their limits. The whole file is read again for
/// each of them, because its numbers depend on the limit.
#[derive(Debug, Deserialize)]
struct Listed {
    variants: Option<Vec<ListedVariant>>,
}

#[derive(Debug, Deserialize)]
struct ListedVariant {
    name: String,
    limit: Number,
}

/// Reads every variant of a file, or the one scenario of a file without variants.
pub(super) fn read(source: Source<'_>, folder: &Path) -> Result<Vec<Scenario>, ScenarioError> {
    let document = Document::open(source)?;
    let Listed { variants } = document.parse()?;
    let Some(variants) = variants else {
        return Ok(vec![check::scenario(
            document.parse()?,
            None,
            source,
            &document,
            folder,
        )?]);
    };
    let field = document.root().then("variants");
    if variants.is_empty() || variants.len() > VARIANTS_MAX {
        let why = format!("{} variants: there are 1 to {VARIANTS_MAX}", variants.len());
        return Err(field.refuse(why, "write { name, limit } for each").into());
    }
    let mut all: Vec<Scenario> = Vec::new();
    for (index, (field, variant)) in entries(&field, variants).enumerate() {
        let limit = check_variant(&variant, &field)?;
        let text = in_requests(source.text, limit);
        let source = Source {
            text: &text,
            ..source
        };
        let document = Document::open(source)?;
        let spec: ScenarioSpec = document.parse()?;
        let scenario = check::scenario(spec, Some(index), source, &document, folder)?;
        if all.iter().any(|other| other.name == scenario.name) {
            return Err(field
                .then("name")
                .refuse("another variant has this name", "rename one of them")
                .into());
        }
        all.push(scenario);
    }
    Ok(all)
}

fn check_variant(variant: &ListedVariant, field: &plimsoll_policy::Field<'_>) -> Checked<f64> {
    if variant.name.trim().is_empty() {
        return Err(field.then("name").refuse(
            "an empty name",
            "name it after what differs, such as 240-rps",
        ));
    }
    within(variant.limit, &field.then("limit"), 1e-3, RPS_MAX)
}

/// Replaces every multiple of the limit, such as `0.25 L`, by its requests/s. Places do not change
/// unless a number is longer than the multiple.
fn in_requests(text: &str, limit: f64) -> String {
    const UNIT: &str = " L";
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(UNIT) {
        let (before, after) = (&rest[..at], &rest[at + UNIT.len()..]);
        let is_digit = |c: char| c.is_ascii_digit() || c == '.';
        let (kept, multiple) = before.split_at(before.trim_end_matches(is_digit).len());
        out.push_str(kept);
        match multiple.parse::<f64>() {
            Ok(number) if !after.starts_with(char::is_alphanumeric) => {
                let number = (number * limit * 1e6).round() / 1e6;
                let (plain, short) = (number.to_string(), format!("{number:e}"));
                let number = if short.len() < plain.len() {
                    short
                } else {
                    plain
                };
                out.push_str(&format!(
                    "{number:<width$}",
                    width = multiple.len() + UNIT.len()
                ));
            }
            _ => {
                out.push_str(multiple);
                out.push_str(UNIT);
            }
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_multiples_become_requests_in_place() {
        for (text, limit, expected) in [
            ("limit: 1 L, mode: x", 240.0, "limit: 240, mode: x"),
            ("{ rps: 0.55 L }", 240.0, "{ rps: 132    }"),
            ("{ rps: 0.0125 L }", 10_000.0, "{ rps: 125      }"),
            ("{ rps: 10 L }", 10_000.0, "{ rps: 1e5  }"),
            (
                "rps: 1\nname: a Load, 5 Loads, x L",
                7.0,
                "rps: 1\nname: a Load, 5 Loads, x L",
            ),
            ("no units", 7.0, "no units"),
        ] {
            assert_eq!(in_requests(text, limit), expected);
        }
    }
}
