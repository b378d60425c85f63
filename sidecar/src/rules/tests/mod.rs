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

/// Returns the cells of each line of a table, which ` |` divides. `\n` stands for a line break.
pub(crate) fn rows<const N: usize>(table: &str) -> impl Iterator<Item = [String; N]> {
    let lines = table.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| {
        let cells = line.split(" |");
        let cells: Vec<String> = cells.map(|it| it.trim().replace("\\n", "\n")).collect();
        cells.try_into().unwrap_or_else(|_| panic!("{line}"))
    })
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
