//! Rules as text: matches, faults and warnings.

mod docs;
mod matching;
mod model;
mod refusals;

use plimsoll_policy::{PolicyError, Source, Warning};

use super::*;

fn read(text: &str) -> Result<(Rules, Vec<Warning>), PolicyError> {
    Rules::read(Source {
        name: "rules.yaml",
        text,
    })
}

fn rules(text: &str) -> Rules {
    read(text)
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
        .0
}

/// Returns a match in short: `bucket/tenant`, and everything else that is not the default.
fn short(found: Found<'_>) -> String {
    match found {
        Found::NoRule => "none".to_owned(),
        Found::Unlimited(_) => "unlimited".to_owned(),
        Found::Limited(Ask {
            bucket,
            tenant,
            plan,
            cost,
            refusal,
            ..
        }) => {
            let mut text = format!("{bucket}/{tenant}");
            if let Some(plan) = plan {
                text.push_str(&format!(" in {plan}"));
            }
            if cost != 1 {
                text.push_str(&format!(" x{cost}"));
            }
            if refusal != RefusalForm::Problem {
                text.push_str(&format!(" {refusal:?}"));
            }
            text
        }
    }
}

fn found(rules: &Rules, domain: &str, descriptor: &str) -> String {
    let entries = descriptor.split(',').filter(|entry| !entry.is_empty());
    let entries = entries.map(|entry| entry.split_once('=').unwrap());
    short(rules.descriptor(domain, entries))
}
