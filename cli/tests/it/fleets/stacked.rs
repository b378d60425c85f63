//! Aggregators below aggregators, as real processes: counts travel up to the controller and drop
//! ratios down, and an aggregator in an invalid place of the tree reports the reason and keeps
//! retrying.

use plimsoll_testing::fleet::{BUCKET, LOAD, TENANTS, policy, service, start_controller};
use plimsoll_testing::process::{FREE, Process, until_true};
use plimsoll_testing::turns::turn;

const LIMIT: u32 = 200;
const OFFERED: u32 = 1_000;

fn aggregator(name: &str, parent: &Process) -> Process {
    let parent = parent.url("listen");
    let place = ["--zone", "a", "--name", name, "--controller", &parent];
    Process::start(&[&["aggregator"], &place[..], &FREE].concat())
}

#[test]
fn counts_and_ratios_pass_through_two_aggregators() {
    let _turn = turn(OFFERED);
    let directory = tempfile::tempdir().unwrap();
    let controller = start_controller(&directory, &policy(LIMIT, "enforce", false), TENANTS);
    let upper = aggregator("upper", &controller);
    let lower = aggregator("lower", &upper);
    // One service below both aggregators, and one below only the upper one.
    let services = [("below", &lower), ("beside", &upper)]
        .map(|(name, parent)| service("a", parent.address("listen"), &["--name", name]));
    let decisions = |service: &Process, result: &str| {
        service.metric("listen", "plimsoll_decisions_total", result)
    };
    let decided = |result| -> f64 { services.iter().map(|it| decisions(it, result)).sum() };
    let counted = || {
        let status = controller.status();
        status["buckets"][BUCKET]["offered"].as_f64().unwrap()
    };

    let targets = services
        .each_ref()
        .map(|it| it.url("listen") + "/" + BUCKET);
    let (targets, rps) = (targets.join(","), OFFERED.to_string());
    let mut load = Process::spawn(&[&LOAD[..], &["--target", &targets, "--rps", &rps]].concat());
    until_true("both services to refuse", || {
        let mut services = services.iter();
        services.all(|it| decisions(it, "result=\"drop\"") > 100.0)
    });
    until_true("both aggregators to get directives", || {
        let on_hold =
            |aggregator: &Process| aggregator.metric("admin", "plimsoll_zone_on_hold", BUCKET);
        on_hold(&upper) + on_hold(&lower) == 0.0
    });
    let hold = |aggregator: &Process| aggregator.metric("admin", "plimsoll_zone_hold", BUCKET);
    until_true(
        "the lower aggregator to get a part of the upper one's limit",
        || {
            let (lower, upper) = (hold(&lower), hold(&upper));
            0.25 * upper < lower && lower < 0.75 * upper
        },
    );
    let status = upper.status();
    let names = [
        &status["clients"][0]["name"],
        &status["aggregators"][0]["name"],
    ];
    assert_eq!(names, ["beside", "lower"], "{status}");
    until_true("the limit to be admitted", || {
        decided("result=\"admit\"") > f64::from(LIMIT)
    });
    assert!(load.terminate().success());

    until_true("all requests to be counted", || {
        let (counted, decided) = (counted(), decided(""));
        assert!(
            counted <= decided,
            "{counted} of {decided}: a request was counted twice"
        );
        counted == decided
    });
    let unconfirmed =
        |process: &Process| process.metric("admin", "plimsoll_counts_unconfirmed_total", "");
    assert_eq!([&controller, &upper, &lower].map(unconfirmed), [0.0; 3]);
}
