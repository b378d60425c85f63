//! Reads rules from a text: structure first, then shape, then values; every fault has its place.

mod descriptors;
mod http;
mod names;

use std::fmt::Display;

use plimsoll_core::names::InvalidName;
use plimsoll_policy::{
    Checked, Document, FAULTS_MAX, Field, Number, PolicyError, PolicyFault, Source, Warning,
};

use super::spec::RulesSpec;
use super::{HttpRules, Rules, RulesHash};
use descriptors::DescriptorReader;
use names::Names;

const COSTS: std::ops::RangeInclusive<f64> = 1.0..=plimsoll_client::COST_MAX as f64;

const NAME_HINT: &str = "1 to 128 letters, digits and . _ : / @ -";

#[derive(Default)]
struct Findings {
    faults: Vec<PolicyFault>,
    warnings: Vec<Warning>,
}

pub(super) fn read(source: Source<'_>) -> Result<(Rules, Vec<Warning>), PolicyError> {
    let document = Document::open(source)?;
    let root = document.root();
    let spec: RulesSpec = document.parse()?;
    let mut findings = Findings::default();
    let mut names = Names::read(spec.buckets, &root.then("buckets"), &mut findings);
    let domains = spec.rls.map(|spec| {
        DescriptorReader::new(&mut names, &mut findings).domains(spec, &root.then("rls"))
    });
    let http = match spec.http {
        Some(spec) => http::read(spec, &root.then("http"), &mut names, &mut findings),
        None => HttpRules::default(),
    };
    if !findings.faults.is_empty() {
        return Err(PolicyError::of(findings.faults));
    }
    let mut warnings = findings.warnings;
    warnings.sort_by_key(|warning| warning.at);
    Ok((
        Rules {
            domains,
            http,
            listed: names.listed,
            buckets: names.all,
            hash: RulesHash::of(source.text.as_bytes()),
        },
        warnings,
    ))
}

impl Findings {
    fn take<T>(&mut self, checked: Checked<T>) -> Option<T> {
        checked.map_err(|fault| self.faults.push(*fault)).ok()
    }

    fn refuse(&mut self, field: &Field<'_>, why: impl Display, hint: &str) {
        self.faults.push(*field.refuse(why, hint));
    }

    fn refuse_name(&mut self, field: &Field<'_>, why: impl Display, hint: &str) {
        self.faults.push(*field.refuse_name(why, hint));
    }

    /// Returns true if the maximum of reported faults is reached: reading on would find no other
    /// result, and each fault takes time in the length of the file.
    const fn is_full(&self) -> bool {
        self.faults.len() >= FAULTS_MAX
    }

    fn warn(&mut self, field: &Field<'_>, message: impl Into<String>) {
        self.warnings.push(Warning::of(field, message.into()));
    }
}

/// Validates a tenant: the text that a caller would send, and not its name in policies.
fn tenant(text: &str, field: &Field<'_>) -> Checked<()> {
    if text.is_empty() {
        return Err(field.refuse(
            InvalidName::Empty,
            "leave it out, or write `default` for the class",
        ));
    }
    if text.contains('%') {
        let hint =
            "write the text that is sent, such as `auth0|1a`, which a policy names `auth0%7C1a`";
        return Err(field.refuse(
            "a tenant in rules has no `%`, because it is encoded after that",
            hint,
        ));
    }
    Ok(())
}

fn cost(number: Option<Number>, field: &Field<'_>) -> Checked<u32> {
    let Some(number) = number else { return Ok(1) };
    let number = field.within(
        number.0,
        COSTS,
        "write the number of requests that one counts as, from 1 on",
    )?;
    Ok(u32::try_from(field.whole(number)?).unwrap_or(u32::MAX))
}
