//! The catalogue of tenants in `/status`, and the answer of `/catalogue`: what its row grants one tenant.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::Method;
use plimsoll_admin::access::Routes;
use plimsoll_admin::body::Parameters;
use plimsoll_core::names::{Bucket, Tenant};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TenantGrants;
use crate::admin::{BrainState, Commands};
use crate::brain::Brain;

/// The catalogue of tenants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CatalogueStatus {
    /// Its rows.
    pub rows: usize,
    /// The rows with terms of their own that have requests, and are listed for that time.
    pub listed: usize,
    /// Questions about such rows since the start that found no room: these tenants have the terms of their plan.
    pub no_room: u64,
    /// True while no further row finds room.
    #[serde(default)]
    pub full: bool,
}

impl CatalogueStatus {
    pub(super) fn of(brain: &Brain) -> Option<Self> {
        Some(Self {
            rows: brain.policy().catalogue()?.len(),
            listed: brain.rows.len(),
            no_room: brain.rows.no_room,
            full: brain.rows.is_full(),
        })
    }
}

/// What the row of a tenant grants it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RowGrants {
    /// The line of the row in the file.
    pub line: u32,
    /// By bucket, of those that the policy lists by their exact name.
    pub grants: BTreeMap<Bucket, TenantGrants>,
}

/// The tenant that is asked for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RowQuery {
    name: Tenant,
}

pub(crate) fn routes() -> Routes<Commands> {
    Routes::new().viewer(Method::GET, "/catalogue", row)
}

/// Answers with the row of a tenant, and with null if the catalogue has none.
async fn row(
    State(brain): BrainState,
    Parameters(RowQuery { name }): Parameters<RowQuery>,
) -> Json<Option<RowGrants>> {
    let policy = brain.with(|brain, _| Arc::clone(brain.policy()));
    let grants = policy.row(name.as_str()).map(|row| {
        let listing = policy.listing([name.clone()]);
        let buckets = listing.exact_buckets().map(|(bucket, _)| bucket);
        let grants = buckets.map(|bucket| {
            let grants = TenantGrants::in_bucket(&listing, bucket, &name);
            (bucket.clone(), grants)
        });
        RowGrants {
            line: row.line,
            grants: grants.collect(),
        }
    });
    Json(grants)
}
