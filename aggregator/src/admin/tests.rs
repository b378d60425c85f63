//! The callers that each route of an aggregator answers, as a complete table.

use std::net::{Ipv4Addr, SocketAddr};

use plimsoll_admin::security::SecurityArgs;
use plimsoll_core::report::DECISIONS_PER_S_MAX;
use plimsoll_net::PENDING_MAX_DEFAULT;

use crate::args::{Args, TENANTS_PER_BUCKET_MAX};
use crate::{Aggregator, admin};

const TABLE: &str = "
    GET /metrics metrics
    GET /healthz nothing
    GET /readyz nothing
    GET /status viewer
    GET /kill viewer
    POST /kill/on operator
    POST /kill/off operator
    POST /kill/drill operator
";

#[test]
fn every_route_names_its_callers() {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let args = Args {
        zone: "a".to_owned(),
        name: None,
        controller: vec!["http://127.0.0.1:7400".to_owned()],
        listen: any,
        tenants_per_bucket_max: TENANTS_PER_BUCKET_MAX,
        decisions_per_s_max: DECISIONS_PER_S_MAX,
        pending_max: PENDING_MAX_DEFAULT,
        admin: any,
        security: SecurityArgs::default(),
    };
    let aggregator = Aggregator::new(&args).unwrap();
    let routes = admin::routes(
        aggregator.zone.clone(),
        aggregator.events.clone(),
        aggregator.security.clone(),
    );
    let table: Vec<String> = routes.iter().map(ToString::to_string).collect();
    assert_eq!(
        table,
        TABLE.trim().lines().map(str::trim).collect::<Vec<_>>()
    );
}
