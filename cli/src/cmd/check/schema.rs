//! `plimsoll schema`: the JSON Schemas of the YAML files, with which editors complete and check them.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};

use crate::output;

/// Print the JSON Schema of a file, for editors
///
/// Save it beside the file, and begin the file with `# yaml-language-server: $schema=policy.schema.json`. Relations between
/// fields are no part of a schema: `plimsoll check` finds all faults.
#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    /// File to describe
    #[arg(value_enum, env = "PLIMSOLL_SCHEMA")]
    file: SchemaOf,
}

/// A file with a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaOf {
    /// policy.yaml: buckets and their limits
    Policy,
    /// tenants.yaml: shares of tenants
    Tenants,
    /// Rules of a sidecar
    Sidecar,
}

impl SchemaOf {
    pub(crate) fn text(self) -> serde_json::Result<String> {
        let [policy, tenants] = plimsoll_policy::schemas();
        let schema = match self {
            Self::Policy => policy,
            Self::Tenants => tenants,
            Self::Sidecar => plimsoll_sidecar::rules::schema(),
        };
        Ok(serde_json::to_string_pretty(&schema)? + "\n")
    }
}

pub(crate) fn run(args: &SchemaArgs) -> anyhow::Result<ExitCode> {
    let mut out = output::stdout();
    let written = out.write_all(args.file.text()?.as_bytes());
    written.context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}
