//! Callers that each route of a quota server accepts, as a complete table.

use std::path::Path;
use std::sync::Arc;

use plimsoll_admin::access::matrix;
use plimsoll_admin::security::Opened;

use super::{Ports, Sources, routes};
use crate::args::Durability;
use crate::engine::{Engine, Settings};

/// Columns: no token, an unknown one, viewer, operator, admin, no token where loopback is open, no
/// token and viewer where metrics need one. Any status except 401 and 403 means that the request
/// was accepted.
const TABLE: &str = "
    GET /metrics metrics | 200 | 200 | 200 | 200 | 200 | 200 | 401 no_token | 200
    GET /healthz nothing | 200 | 200 | 200 | 200 | 200 | 200 | 200 | 200
    GET /readyz nothing | 200 | 200 | 200 | 200 | 200 | 200 | 200 | 200
    GET /status viewer | 401 no_token | 401 unknown_token | 200 | 200 | 200 | 200 | 401 no_token | 200
    GET /quotas viewer | 401 no_token | 401 unknown_token | 200 | 200 | 200 | 200 | 401 no_token | 200
    GET /quotas/get viewer | 401 no_token | 401 unknown_token | 400 | 400 | 400 | 400 | 401 no_token | 400
    GET /quotas/top viewer | 401 no_token | 401 unknown_token | 200 | 200 | 200 | 200 | 401 no_token | 200
    POST /quotas/reset operator | 401 no_token | 401 unknown_token | 403 role | 400 | 400 | 400 | 401 no_token | 403 role
";

fn sources(directory: &Path) -> Sources {
    let durability = Durability::default();
    let settings = Settings { data: directory.join("data"), durability, cache_bytes: 16 << 20 };
    Sources {
        engine: Engine::open(&settings).unwrap(),
        ports: Ports::new(),
        resp: Arc::default(),
        security: Opened::default(),
        durability,
    }
}

#[tokio::test]
async fn every_route_answers_callers_of_its_role_alone() {
    let directory = tempfile::tempdir().unwrap();
    let sources = sources(directory.path());
    let table = matrix::table(|| routes(sources.clone())).await;
    assert_eq!(table, TABLE.trim().lines().map(str::trim).collect::<Vec<_>>(), "{}", table.join("\n"));
    sources.engine.close().await.unwrap();
}
