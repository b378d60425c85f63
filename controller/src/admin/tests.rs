//! The callers that each route of a controller answers, as a complete table.

use plimsoll_admin::access::matrix;

use crate::admin::Commands;
use crate::{Controller, admin};

/// The columns: no token, an unknown one, viewer, operator, admin, no token where loopback is open, no token and viewer
/// where metrics need one. A status other than 401 and 403 is that of an accepted request.
const TABLE: &str = "
    GET /metrics metrics | 200 | 200 | 200 | 200 | 200 | 200 | 401 no_token | 200
    GET /healthz nothing | 200 | 200 | 200 | 200 | 200 | 200 | 200 | 200
    GET /readyz nothing | 200 | 200 | 200 | 200 | 200 | 200 | 200 | 200
    GET /status viewer | 401 no_token | 401 unknown_token | 200 | 200 | 200 | 200 | 401 no_token | 200
    GET /rollout viewer | 401 no_token | 401 unknown_token | 200 | 200 | 200 | 200 | 401 no_token | 200
    GET /rollout/history viewer | 401 no_token | 401 unknown_token | 200 | 200 | 200 | 200 | 401 no_token | 200
    POST /rollout/promote operator | 401 no_token | 401 unknown_token | 403 role | 400 | 400 | 400 | 401 no_token | 403 role
    POST /rollout/abort operator | 401 no_token | 401 unknown_token | 403 role | 400 | 400 | 400 | 401 no_token | 403 role
    GET /policy viewer | 401 no_token | 401 unknown_token | 200 | 200 | 200 | 200 | 401 no_token | 200
    POST /policy/ack admin | 401 no_token | 401 unknown_token | 403 role | 403 role | 400 | 400 | 401 no_token | 403 role
    GET /kill viewer | 401 no_token | 401 unknown_token | 200 | 200 | 200 | 200 | 401 no_token | 200
    POST /kill/on operator | 401 no_token | 401 unknown_token | 403 role | 400 | 400 | 400 | 401 no_token | 403 role
    POST /kill/off operator | 401 no_token | 401 unknown_token | 403 role | 400 | 400 | 400 | 401 no_token | 403 role
    POST /kill/drill operator | 401 no_token | 401 unknown_token | 403 role | 400 | 400 | 400 | 401 no_token | 403 role
    POST /aggregators/forget operator | 401 no_token | 401 unknown_token | 403 role | 400 | 400 | 400 | 401 no_token | 403 role
    POST /state/acknowledge-loss operator | 401 no_token | 401 unknown_token | 403 role | 200 | 200 | 200 | 401 no_token | 403 role
    GET /audit viewer | 401 no_token | 401 unknown_token | 200 | 200 | 200 | 200 | 401 no_token | 200
    GET /history viewer | 401 no_token | 401 unknown_token | 200 | 200 | 200 | 200 | 401 no_token | 200
    POST /history admin | 401 no_token | 401 unknown_token | 403 role | 403 role | 415 | 415 | 401 no_token | 403 role
";

#[tokio::test]
async fn every_route_answers_callers_of_its_role_alone() {
    let directory = tempfile::tempdir().unwrap();
    let controller = Controller::open(&crate::tasks::tests::args(directory.path())).unwrap();
    let routes = || {
        let (files, recorder) = (controller.policy.files.clone(), controller.recorder.clone());
        admin::routes(
            Commands { brain: controller.brain.clone(), audit: controller.audit.clone() },
            files,
            recorder,
            controller.events.clone(),
            controller.security.clone(),
        )
    };
    let table = matrix::table(routes).await;
    assert_eq!(table, TABLE.trim().lines().map(str::trim).collect::<Vec<_>>(), "{}", table.join("\n"));
}
