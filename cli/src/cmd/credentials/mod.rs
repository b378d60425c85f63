//! `plimsoll certs` and `plimsoll tokens`: the credentials of processes and of operators.

pub(crate) mod certs;
pub(crate) mod tokens;

/// Arguments, or files that they name, that the command cannot use: the same command fails again.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unusable(String);

fn unusable(reason: impl ToString) -> anyhow::Error {
    Unusable(reason.to_string()).into()
}
