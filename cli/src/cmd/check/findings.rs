//! The result of a check, as text and in the form that scripts read.

use std::io::{self, Write};

use plimsoll_controller::policy_file::ReadError;
use plimsoll_core::decision::Mode;
use plimsoll_policy::{Fault, Policy, Warning};
use plimsoll_sidecar::rules::{self, Rules, RulesSize};
use serde::Serialize;

use crate::output::counted;

/// The findings about all files.
#[derive(Debug, Serialize)]
pub(super) struct Findings {
    valid: bool,
    /// The reason why a file could not be read at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<Summary>,
    /// The contents of the rules of a sidecar, if they are valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    sidecar_rules: Option<RulesSummary>,
    faults: Vec<Fault>,
    warnings: Vec<Warning>,
}

/// The contents of a valid policy in figures.
#[derive(Debug, Serialize)]
struct Summary {
    /// The hash of the content: 16 hex digits.
    hash: String,
    /// Entries with an exact bucket name.
    buckets: usize,
    /// Entries with a pattern, each for any number of buckets.
    patterns: usize,
    shadow: usize,
    canary: usize,
    enforce: usize,
    /// Exact quotas.
    quotas: usize,
    /// Listed tenants, the class `default` included.
    tenants: usize,
    kill_switch: bool,
    #[serde(skip)]
    warnings: usize,
}

/// The contents of valid rules in figures.
#[derive(Debug, Serialize)]
struct RulesSummary {
    /// The hash of the content: 16 hex digits.
    hash: String,
    #[serde(flatten)]
    size: RulesSize,
    #[serde(skip)]
    warnings: usize,
}

impl Default for Findings {
    fn default() -> Self {
        Self {
            valid: true,
            error: None,
            summary: None,
            sidecar_rules: None,
            faults: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

impl Findings {
    /// Adds the findings about a policy, and returns it if it is valid.
    pub(super) fn of_policy(&mut self, read: Result<(Policy, Vec<Warning>), ReadError>) -> Option<Policy> {
        match read {
            Ok((policy, warnings)) => {
                self.summary = Some(Summary::new(&policy, warnings.len()));
                self.warnings.extend(warnings);
                return Some(policy);
            }
            Err(ReadError::Invalid(error)) => self.refuse(error.faults()),
            Err(error @ ReadError::Unread(_)) => self.fail(&error),
        }
        None
    }

    /// Adds the findings about the rules of a sidecar, beside those about the policy.
    pub(super) fn of_rules(
        &mut self,
        read: Result<(Rules, Vec<Warning>), rules::ReadError>,
        policy: Option<&Policy>,
        file: &str,
    ) {
        match read {
            Ok((rules, mut warnings)) => {
                warnings.extend(policy.into_iter().flat_map(|policy| rules.beside(policy, file)));
                let hash = rules.hash().to_string();
                self.sidecar_rules =
                    Some(RulesSummary { hash, size: rules.size(), warnings: warnings.len() });
                self.warnings.extend(warnings);
            }
            Err(rules::ReadError::Invalid(error)) => self.refuse(error.faults()),
            Err(error @ rules::ReadError::Unread(_)) => self.fail(&error),
        }
    }

    fn refuse(&mut self, faults: &[Fault]) {
        self.valid = false;
        self.faults.extend_from_slice(faults);
    }

    fn fail(&mut self, error: &dyn std::error::Error) {
        self.valid = false;
        let earlier = self.error.take().map_or_else(String::new, |earlier| format!("{earlier}\n"));
        self.error = Some(format!("{earlier}{error}"));
    }

    /// Returns true if all files are valid.
    pub(super) const fn is_valid(&self) -> bool {
        self.valid
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
        if let Some(summary) = &self.sidecar_rules {
            summary.write_text(out)?;
        }
        Ok(())
    }
}

impl Summary {
    fn new(policy: &Policy, warnings: usize) -> Self {
        let modes: Vec<Mode> = policy.entries().map(|(_, bucket)| bucket.mode).collect();
        let in_mode = |mode| modes.iter().filter(|m| **m == mode).count();
        Self {
            hash: policy.hash().to_string(),
            buckets: policy.exact_buckets().count(),
            patterns: policy.patterns().count(),
            shadow: in_mode(Mode::Shadow),
            canary: in_mode(Mode::Canary),
            enforce: in_mode(Mode::Enforce),
            quotas: policy.quotas().count(),
            tenants: policy.tenants().count(),
            kill_switch: policy.kill_switch(),
            warnings,
        }
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let entries =
            format!("{} and {}", counted(self.buckets, "bucket"), counted(self.patterns, "pattern"));
        let (shadow, canary, enforce) = (self.shadow, self.canary, self.enforce);
        writeln!(out, "valid: {entries} ({enforce} enforce, {canary} canary, {shadow} shadow),")?;
        let quotas = match self.quotas {
            0 => String::new(),
            quotas => format!("{}, ", counted(quotas, "quota")),
        };
        let (tenants, warnings) = (counted(self.tenants, "tenant"), counted(self.warnings, "warning"));
        writeln!(out, "       {quotas}{tenants}, {warnings}")?;
        if self.kill_switch {
            writeln!(out, "       kill_switch is on: nothing is refused")?;
        }
        writeln!(out, "       policy {}", self.hash)
    }
}

impl RulesSummary {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let RulesSize { domains, descriptors, http, buckets } = self.size;
        let of_descriptors = counted(descriptors, "rule");
        writeln!(out, "valid: {of_descriptors} for descriptors of {},", counted(domains, "domain"))?;
        let (http, buckets) = (counted(http, "rule"), counted(buckets, "bucket"));
        writeln!(out, "       {http} for HTTP, {buckets}, {}", counted(self.warnings, "warning"))?;
        writeln!(out, "       rules {}", self.hash)
    }
}
