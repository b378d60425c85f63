//! The list of targets.
#![allow(clippy::unwrap_used, clippy::panic)] // a broken rule ends the target

mod files;
mod hostile;
mod quota;
mod sidecar;
mod texts;
mod tiers;
mod trust;
mod web;
mod wire;

use crate::dictionary::Dictionary;

/// Function of foreign bytes, with hints for the mutator.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the target and of its corpus folder.
    pub name: &'static str,
    /// Panics if the bytes break a rule.
    pub run: fn(&[u8]),
    /// Tokens of the format.
    pub dictionary: Dictionary,
    /// Makes inputs in addition to the corpus.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Every target.
pub const TARGETS: [Target; 23] = [
    Target {
        name: "report",
        run: wire::report,
        dictionary: Dictionary::Report,
        seeds: wire::report_seeds,
    },
    Target {
        name: "parts",
        run: wire::parts,
        dictionary: Dictionary::Reports,
        seeds: wire::parts_seeds,
    },
    Target {
        name: "directives",
        run: wire::directives,
        dictionary: Dictionary::Directives,
        seeds: wire::directives_seeds,
    },
    Target {
        name: "hostile_client",
        run: hostile::client,
        dictionary: Dictionary::Script,
        seeds: Vec::new,
    },
    Target {
        name: "hostile_aggregator",
        run: hostile::aggregator,
        dictionary: Dictionary::Script,
        seeds: Vec::new,
    },
    Target {
        name: "policy",
        run: texts::policy,
        dictionary: Dictionary::Policy,
        seeds: Vec::new,
    },
    Target {
        name: "tenants",
        run: texts::tenants,
        dictionary: Dictionary::Policy,
        seeds: Vec::new,
    },
    Target {
        name: "scenario",
        run: texts::scenario,
        dictionary: Dictionary::Scenario,
        seeds: Vec::new,
    },
    Target {
        name: "csv",
        run: texts::csv,
        dictionary: Dictionary::Csv,
        seeds: Vec::new,
    },
    Target {
        name: "state",
        run: files::state,
        dictionary: Dictionary::Json,
        seeds: Vec::new,
    },
    Target {
        name: "kept_directives",
        run: files::kept_directives,
        dictionary: Dictionary::Json,
        seeds: Vec::new,
    },
    Target {
        name: "history",
        run: files::history,
        dictionary: Dictionary::Csv,
        seeds: Vec::new,
    },
    Target {
        name: "prometheus",
        run: web::prometheus,
        dictionary: Dictionary::Json,
        seeds: Vec::new,
    },
    Target {
        name: "traceparent",
        run: web::traceparent,
        dictionary: Dictionary::Http,
        seeds: Vec::new,
    },
    Target {
        name: "path",
        run: web::path,
        dictionary: Dictionary::Http,
        seeds: Vec::new,
    },
    Target {
        name: "admin",
        run: web::admin,
        dictionary: Dictionary::Json,
        seeds: Vec::new,
    },
    Target {
        name: "certificate",
        run: trust::certificate,
        dictionary: Dictionary::Trust,
        seeds: Vec::new,
    },
    Target {
        name: "certificate_files",
        run: trust::certificate_files,
        dictionary: Dictionary::Trust,
        seeds: trust::certificate_files_seeds,
    },
    Target {
        name: "identity",
        run: trust::identity,
        dictionary: Dictionary::Trust,
        seeds: Vec::new,
    },
    Target {
        name: "sidecar_rules",
        run: sidecar::rules,
        dictionary: Dictionary::Rules,
        seeds: sidecar::rules_seeds,
    },
    Target {
        name: "descriptor",
        run: sidecar::descriptor,
        dictionary: Dictionary::Descriptor,
        seeds: Vec::new,
    },
    Target {
        name: "resp",
        run: quota::resp,
        dictionary: Dictionary::Resp,
        seeds: Vec::new,
    },
    Target {
        name: "tokens",
        run: trust::tokens,
        dictionary: Dictionary::Trust,
        seeds: Vec::new,
    },
];

/// Runs the target of this name.
///
/// # Panics
/// If there is no such target, or the bytes break a rule.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.unwrap_or_else(|| panic!("no target `{name}`")).run)(data);
}
