//! The document of the admin port, held against the routes that there are.

use crate::admin::console::Console;
use crate::admin::openapi::OPERATIONS;
use crate::{Controller, admin};

#[test]
fn document_names_every_route_and_its_callers() {
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
    let mut served: Vec<String> = routes.iter().map(ToString::to_string).collect();
    let mut described: Vec<String> = OPERATIONS.iter().map(|it| it.route.to_string()).collect();
    served.sort();
    described.sort();
    assert_eq!(described, served);
}
