//! Callers that each route of a quota server accepts, as a complete table.

use std::path::Path;
use std::sync::Arc;

use plimsoll_admin::security::Opened;

use super::{Ports, Sources, routes};
use crate::args::Durability;
use crate::engine::{Engine, Settings};

/// Method, path, and the callers that the route answers.
const TABLE: &str = "
    GET /metrics metrics
    GET /healthz nothing
    GET /readyz nothing
    GET /status viewer
    GET /quotas viewer
    GET /quotas/get viewer
    GET /quotas/top viewer
    POST /quotas/reset operator
";

fn sources(directory: &Path) -> Sources {
    let settings = Settings {
        data: directory.join("data"),
        durability: Durability::default(),
        cache_bytes: 16 << 20,
    };
    Sources {
        engine: Engine::open(&settings).unwrap(),
        ports: Ports::new(),
        resp: Arc::default(),
        security: Opened::default(),
    }
}

#[tokio::test]
async fn every_route_names_its_callers() {
    let directory = tempfile::tempdir().unwrap();
    let sources = sources(directory.path());
    let table: Vec<String> = routes(sources.clone())
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        table,
        TABLE.trim().lines().map(str::trim).collect::<Vec<_>>()
    );
    sources.engine.close().await.unwrap();
}
