//! What the catalogue of tenants says of names that requests bring: a child asks for a name, and its parent answers with
//! the class that the name belongs to.

use crate::names::{KeyId, Tenant};

/// The names in one report or message, at most; further ones wait for the next.
pub const CATALOGUED_MAX: usize = 1_024;

/// Takes the next answers that wait for a child, at most as many as one message carries.
pub fn take_answers(waiting: &mut Vec<(Tenant, Tenant)>) -> Vec<(Tenant, Tenant)> {
    let next = waiting.len().min(CATALOGUED_MAX);
    waiting.drain(..next).collect()
}

/// News of the catalogue in one message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CatalogueNews {
    /// The hash of the catalogue; absent without one.
    pub hash: Option<u64>,
    /// To an aggregator: names that it asked for, each with its class. At most [`CATALOGUED_MAX`].
    pub names: Vec<(Tenant, Tenant)>,
    /// To a client: the class of names, by its own ids. At most [`CATALOGUED_MAX`].
    pub keys: Vec<(KeyId, Tenant)>,
}
