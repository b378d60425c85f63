//! The callers that each route of a controller answers.

use crate::admin::console::Console;
use crate::members::OF_THE_LEADER;
use crate::{Controller, admin};

/// Routes that a standby serves itself.
const OF_ALL: [&str; 7] = [
    "/metrics",
    "/healthz",
    "/readyz",
    "/",
    "/console/{file}",
    "/kill/on",
    "/lead",
];

const TABLE: &str = "
    GET /metrics metrics
    GET /healthz nothing
    GET /readyz nothing
    GET / nothing
    GET /console/{file} nothing
    GET /console/stream viewer
    GET /status viewer
    GET /catalogue viewer
    GET /why viewer
    GET /rollout viewer
    GET /rollout/history viewer
    POST /rollout/promote operator
    POST /rollout/abort operator
    GET /rollout/resume viewer
    POST /rollout/resume operator
    POST /rollout/reset operator
    GET /policy viewer
    POST /policy/ack admin
    GET /policy/forecast viewer
    POST /policy/dry-run viewer
    GET /policy/undo viewer
    POST /policy/undo admin
    GET /kill viewer
    POST /kill/on operator
    POST /kill/off operator
    POST /kill/drill operator
    POST /aggregators/forget operator
    POST /state/acknowledge-loss operator
    GET /audit viewer
    GET /events viewer
    GET /history viewer
    POST /history admin
    GET /lead nothing
";

#[test]
fn every_route_names_its_callers() {
    let directory = tempfile::tempdir().unwrap();
    let controller = Controller::open(&crate::tasks::tests::args(directory.path())).unwrap();
    let source = controller.source();
    let (console, _) = Console::new(source.clone());
    let routes = admin::routes(
        source,
        controller.policy.files.clone(),
        controller.recorder.clone(),
        controller.counters.clone(),
        console,
    );
    let table: Vec<String> = routes.iter().map(ToString::to_string).collect();
    assert_eq!(
        table,
        TABLE.trim().lines().map(str::trim).collect::<Vec<_>>()
    );
}

#[test]
fn standby_names_the_leader_for_its_routes() {
    let mut routes = TABLE.trim().lines().map(str::trim);
    let missing = routes.find(|line| {
        let mut of_leader = OF_THE_LEADER.iter();
        let is_led = of_leader.any(|(method, path)| line.starts_with(&format!("{method} {path} ")));
        !is_led && !OF_ALL.contains(&line.split(' ').nth(1).unwrap_or_default())
    });
    assert_eq!(missing, None);
}
