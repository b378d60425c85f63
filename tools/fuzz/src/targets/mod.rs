//! The list of targets.

mod files;
mod hostile;
mod quota;
mod sidecar;
mod texts;
mod tiers;
mod trust;
mod web;
mod wire;

use crate::mutation::Format;

/// Function of foreign bytes, with what its test makes inputs of.
pub(crate) struct Target {
    /// Name of the target and of its corpus folder.
    pub(crate) name: &'static str,
    /// Panics if the bytes break a rule.
    pub(crate) run: fn(&[u8]),
    pub(crate) format: Format,
    /// Makes inputs in addition to the corpus.
    pub(crate) generated: fn() -> Vec<Vec<u8>>,
}

/// Lists the targets, and makes a test of each.
macro_rules! targets {
    ($($name:ident($run:path, $format:expr, $generated:expr);)*) => {
        const TARGETS: &[Target] = &[$(Target {
            name: stringify!($name),
            run: $run,
            format: $format,
            generated: $generated,
        }),*];

        $(#[test]
        fn $name() {
            crate::check(stringify!($name));
        })*
    };
}

targets! {
    report(wire::report, Format::Message("Report"), wire::report_seeds);
    parts(wire::parts, Format::Messages("Report"), wire::parts_seeds);
    directives(wire::directives, Format::Messages("Directives"), wire::directives_seeds);
    hostile_client(hostile::client, Format::Script, Vec::new);
    hostile_aggregator(hostile::aggregator, Format::Script, Vec::new);
    policy(texts::policy, Format::Text, Vec::new);
    tenants(texts::tenants, Format::Text, Vec::new);
    scenario(texts::scenario, Format::Text, Vec::new);
    csv(texts::csv, Format::Text, Vec::new);
    state(files::state, Format::Text, Vec::new);
    kept_directives(files::kept_directives, Format::Text, Vec::new);
    history(files::history, Format::Text, Vec::new);
    prometheus(web::prometheus, Format::Text, Vec::new);
    traceparent(web::traceparent, Format::Text, Vec::new);
    path(web::path, Format::Text, Vec::new);
    admin(web::admin, Format::Text, Vec::new);
    certificate(trust::certificate, Format::Text, Vec::new);
    certificate_files(trust::certificate_files, Format::Text, trust::certificate_files_seeds);
    identity(trust::identity, Format::Text, Vec::new);
    sidecar_rules(sidecar::rules, Format::Text, sidecar::rules_seeds);
    descriptor(sidecar::descriptor, Format::Text, Vec::new);
    resp(quota::resp, Format::Text, Vec::new);
    tokens(trust::tokens, Format::Text, Vec::new);
}

/// Runs the target of this name.
///
/// # Panics
/// If there is no such target, or the bytes break a rule.
pub fn run(name: &str, data: &[u8]) {
    (target(name).run)(data);
}

pub(crate) fn target(name: &str) -> &'static Target {
    let target = TARGETS.iter().find(|target| target.name == name);
    target.unwrap_or_else(|| panic!("no target `{name}`"))
}
