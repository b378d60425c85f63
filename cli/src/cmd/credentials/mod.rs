//! `plimsoll certs`, `plimsoll tokens` and `plimsoll context`: the credentials of processes and of operators.

pub(crate) mod certs;
pub(crate) mod context;
pub(crate) mod tokens;
