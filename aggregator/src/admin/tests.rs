//! The callers that each route of an aggregator answers, as a complete table.

use std::net::{Ipv4Addr, SocketAddr};

use plimsoll_admin::access::matrix;
use plimsoll_admin::security::SecurityArgs;
use plimsoll_core::report::DECISIONS_PER_S_MAX;
use plimsoll_proto::transport::PENDING_MAX_DEFAULT;

use crate::args::{Args, TENANTS_PER_BUCKET_MAX};
use crate::{Aggregator, admin};

/// The columns: no token, an unknown one, viewer, operator, admin, no token where loopback is open, no token and viewer
/// where metrics need one. A status other than 401 and 403 is that of an accepted request.
const TABLE: &str = "
    GET /metrics metrics | 200 | 200 | 200 | 200 | 200 | 200 | 401 no_token | 200
    GET /healthz nothing | 200 | 200 | 200 | 200 | 200 | 200 | 200 | 200
    GET /readyz nothing | 200 | 200 | 200 | 200 | 200 | 200 | 200 | 200
    GET /status viewer | 401 no_token | 401 unknown_token | 200 | 200 | 200 | 200 | 401 no_token | 200
    GET /kill viewer | 401 no_token | 401 unknown_token | 200 | 200 | 200 | 200 | 401 no_token | 200
    POST /kill/on operator | 401 no_token | 401 unknown_token | 403 role | 400 | 400 | 400 | 401 no_token | 403 role
    POST /kill/off operator | 401 no_token | 401 unknown_token | 403 role | 400 | 400 | 400 | 401 no_token | 403 role
    POST /kill/drill operator | 401 no_token | 401 unknown_token | 403 role | 400 | 400 | 400 | 401 no_token | 403 role
";

#[tokio::test]
async fn every_route_answers_callers_of_its_role_alone() {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let args = Args {
        zone: "a".to_owned(),
        name: None,
        controller: "http://127.0.0.1:7400".to_owned(),
        listen: any,
        tenants_per_bucket_max: TENANTS_PER_BUCKET_MAX,
        decisions_per_s_max: DECISIONS_PER_S_MAX,
        pending_max: PENDING_MAX_DEFAULT,
        admin: any,
        security: SecurityArgs::default(),
    };
    let aggregator = Aggregator::new(&args).unwrap();
    let routes =
        || admin::routes(aggregator.zone.clone(), aggregator.events.clone(), aggregator.security.clone());
    let table = matrix::table(routes).await;
    assert_eq!(table, TABLE.trim().lines().map(str::trim).collect::<Vec<_>>(), "{}", table.join("\n"));
}
