//! The result of a check, as text and as JSON for scripts.

use std::io::{self, Write};
use std::path::Path;

use plimsoll_controller::policy_file::{PolicyFiles, ReadError};
use plimsoll_core::decision::Mode;
use plimsoll_policy::{Catalogue, Policy, PolicyFault, Warning};
use plimsoll_sidecar::rules::{self, RulesFile, RulesSize};
use serde::Serialize;

use crate::output::counted;

#[derive(Debug, Default, Serialize)]
pub(super) struct Findings {
    pub(super) valid: bool,
    /// Reasons why files could not be read, one on a line.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<Summary>,
    /// Contents of valid rules of a sidecar.
    #[serde(skip_serializing_if = "Option::is_none")]
    sidecar_rules: Option<RulesSummary>,
    faults: Vec<PolicyFault>,
    warnings: Vec<Warning>,
}

#[derive(Debug, Serialize)]
struct Summary {
    /// Hash of the content: 16 hex digits.
    hash: String,
    /// Entries with an exact bucket name.
    buckets: usize,
    /// Entries with a pattern, each for any number of buckets.
    patterns: usize,
    shadow: usize,
    canary: usize,
    enforce: usize,
    quotas: usize,
    /// Listed tenants, the class `default` included.
    tenants: usize,
    /// Rows of the catalogue.
    #[serde(skip_serializing_if = "Option::is_none")]
    catalogue: Option<usize>,
    kill_switch: bool,
}

#[derive(Debug, Serialize)]
struct RulesSummary {
    /// Hash of the content: 16 hex digits.
    hash: String,
    #[serde(flatten)]
    size: RulesSize,
}

impl Findings {
    pub(super) fn of(policy: Option<PolicyFiles>, rules: Option<&Path>) -> Self {
        let mut findings = Self::default();
        let policy = policy.and_then(|files| match files.read() {
            Ok((policy, warnings)) => {
                findings.summary = Some(Summary::new(&policy));
                findings.warnings.extend(warnings);
                Some(policy)
            }
            Err(ReadError::Invalid(error)) => {
                findings.faults.extend_from_slice(error.faults());
                None
            }
            Err(error @ ReadError::Unread(_)) => {
                findings.error = Some(error.to_string());
                None
            }
        });
        match rules.map(|path| (path, RulesFile::new(path).read())) {
            None => {}
            Some((path, Ok((rules, warnings)))) => {
                findings.warnings.extend(warnings);
                let file = path.display().to_string();
                findings
                    .warnings
                    .extend(policy.iter().flat_map(|policy| rules.beside(policy, &file)));
                let hash = rules.hash().to_string();
                findings.sidecar_rules = Some(RulesSummary {
                    hash,
                    size: rules.size(),
                });
            }
            Some((_, Err(rules::ReadError::Invalid(error)))) => {
                findings.faults.extend_from_slice(error.faults());
            }
            Some((_, Err(error @ rules::ReadError::Unread(_)))) => {
                let all = findings.error.into_iter().chain([error.to_string()]);
                findings.error = Some(all.collect::<Vec<_>>().join("\n"));
            }
        }
        findings.valid = findings.error.is_none() && findings.faults.is_empty();
        findings
    }

    pub(super) fn write_text(&self, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<()> {
        if let Some(error) = &self.error {
            writeln!(err, "{error}")?;
        }
        for fault in &self.faults {
            writeln!(err, "{fault}\n")?;
        }
        if !self.faults.is_empty() {
            writeln!(err, "invalid: {}", counted(self.faults.len(), "fault"))?;
        }
        for warning in &self.warnings {
            writeln!(out, "warning: {warning}")?;
        }
        if let Some(summary) = &self.summary {
            summary.write_text(out)?;
        }
        if let Some(RulesSummary { hash, size }) = &self.sidecar_rules {
            let (rules, domains) = (
                counted(size.descriptors, "rule"),
                counted(size.domains, "domain"),
            );
            writeln!(out, "valid: {rules} for descriptors of {domains},")?;
            writeln!(
                out,
                "       {} for HTTP, {}",
                counted(size.http, "rule"),
                counted(size.buckets, "bucket")
            )?;
            writeln!(out, "       rules {hash}")?;
        }
        if self.valid {
            writeln!(out, "       {}", counted(self.warnings.len(), "warning"))?;
        }
        Ok(())
    }
}

impl Summary {
    fn new(policy: &Policy) -> Self {
        let in_mode = |mode| {
            policy
                .entries()
                .filter(|(_, bucket)| bucket.mode == mode)
                .count()
        };
        Self {
            hash: policy.hash().to_string(),
            buckets: policy.exact_buckets().count(),
            patterns: policy.patterns().count(),
            shadow: in_mode(Mode::Shadow),
            canary: in_mode(Mode::Canary),
            enforce: in_mode(Mode::Enforce),
            quotas: policy.quotas().count(),
            tenants: policy.tenants().count(),
            catalogue: policy.catalogue().map(Catalogue::len),
            kill_switch: policy.kill_switch,
        }
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self {
            shadow,
            canary,
            enforce,
            ..
        } = self;
        let (buckets, patterns) = (
            counted(self.buckets, "bucket"),
            counted(self.patterns, "pattern"),
        );
        writeln!(
            out,
            "valid: {buckets} and {patterns} ({enforce} enforce, {canary} canary, {shadow} shadow),"
        )?;
        writeln!(
            out,
            "       {}, {}{}",
            counted(self.quotas, "quota"),
            counted(self.tenants, "tenant"),
            self.catalogue.map_or(String::new(), |rows| format!(
                ", {} in the catalogue",
                counted(rows, "row")
            ))
        )?;
        if self.kill_switch {
            writeln!(out, "       kill_switch is on: nothing is refused")?;
        }
        writeln!(out, "       policy {}", self.hash)
    }
}
