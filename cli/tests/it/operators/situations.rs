//! Commands that look, in every situation: each has an exit code and a text that leads on.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use plimsoll_testing::fleet::{TENANTS, controller_on, save, start_controller};
use plimsoll_testing::process::{add_token, free_addresses, outcome, succeed, until_true};

const COMMANDS: [&str; 8] = [
    "status",
    "why acme",
    "diff",
    "events",
    "rollout status",
    "kill status",
    "doctor",
    "audit show",
];
const SMALL: &str = "buckets: { api: { limit: 1000, mode: enforce } }\n";
const UNRECORDED: (i32, &str) = (1, "nothing is recorded yet");
const BUCKETS: usize = 10_000;
const CUSTOMERS: usize = 100_000;

/// Runs each command, and compares its exit code and a part of its text.
fn look(situation: &str, flags: &[&str], expected: [(i32, &str); COMMANDS.len()]) {
    for (command, (code, part)) in COMMANDS.iter().zip(expected) {
        let args: Vec<&str> = command.split(' ').chain(flags.iter().copied()).collect();
        let (actual, text) = outcome(&args);
        assert!(
            actual == code && text.contains(part),
            "{situation}: {command}: {actual} in place of {code} with {part:?}: {text}"
        );
    }
}

/// A server of another kind, or of a version without these routes.
fn foreign() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4_096]);
            let _ = stream.write_all(
                b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            );
        }
    });
    format!("http://{address}")
}

#[test]
fn commands_without_an_answer_say_why() {
    let [nothing] = free_addresses();
    let mut silent = [(1, "nothing answers at"); COMMANDS.len()];
    silent[6] = (1, "fail  leader: no controller leads");
    look(
        "dead",
        &["--controller", &format!("http://{nothing}")],
        silent,
    );

    let unexpected = [(1, "404 Not Found; is it the admin port"); COMMANDS.len()];
    look("another server", &["--controller", &foreign()], unexpected);

    let folder = tempfile::tempdir().unwrap();
    let others = tempfile::tempdir().unwrap();
    add_token(folder.path(), "ann", "admin");
    let ben = add_token(others.path(), "ben", "admin");
    fs::write(folder.path().join("policy.yaml"), SMALL).unwrap();
    let tokens = folder.path().join("tokens").display().to_string();
    let controller = controller_on(&folder, &["--tokens", &tokens]);
    let refused = [(1, "add one there with `plimsoll tokens add`"); COMMANDS.len()];
    let url = controller.url("admin");
    look(
        "wrong token",
        &["--controller", &url, "--token-file", &ben],
        refused,
    );
}

#[test]
fn commands_say_what_a_fleet_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let controller = start_controller(&folder, "buckets: {}\n", TENANTS);
    look(
        "empty",
        &["--controller", &controller.url("admin")],
        [
            (1, "1 problem: no aggregator is known"),
            UNRECORDED,
            (0, "nothing is held back"),
            (0, "the first one of this controller"),
            (0, "no entries"),
            (0, "fleet  off"),
            (0, "no aggregator is known"),
            (0, "a controller without an earlier policy starts"),
        ],
    );
}

#[test]
fn commands_say_what_is_killed_and_held() {
    let folder = tempfile::tempdir().unwrap();
    let controller = start_controller(&folder, SMALL, TENANTS);
    let at = controller.url("admin");
    save(folder.path(), "policy.yaml", &SMALL.replace("1000", "100"));
    until_true("the policy to be held back", || {
        outcome(&["diff", "--controller", &at])
            .1
            .contains("held back: ")
    });
    succeed(&["kill", "on", "--reason", "practice", "--controller", &at]);
    let held_and_killed = [
        (1, "3 problems: "),
        UNRECORDED,
        (1, "buckets.api.limit: 1000 -> 100"),
        (0, "kill switch on for the whole fleet"),
        (0, "api: shadow, killed"),
        (0, "practice"),
        (0, "warn  policy"),
        (0, "practice"),
    ];
    look(
        "killed, and a policy held back",
        &["--controller", &at],
        held_and_killed,
    );
}

#[test]
fn commands_answer_about_a_large_fleet() {
    let folder = tempfile::tempdir().unwrap();
    let row = |number| format!("  b{number:05}: {{ limit: 100, mode: enforce }}\n");
    let policy = format!("buckets:\n{}", (0..BUCKETS).map(row).collect::<String>());
    let row = |number| format!("customer-{number},free\n");
    let catalogue = format!(
        "tenant,plan\n{}",
        (0..CUSTOMERS).map(row).collect::<String>()
    );
    let path = |name: &str| folder.path().join(name).display().to_string();
    let files = [
        ("policy.yaml", &*policy),
        (
            "tenants.yaml",
            "plans: { free: { weight: 1 } }\ntenants: { default: {} }\n",
        ),
        ("catalogue.csv", &catalogue),
    ];
    for (name, text) in files {
        fs::write(path(name), text).unwrap();
    }
    let controller = controller_on(&folder, &["--catalogue", &path("catalogue.csv")]);
    let at = controller.url("admin");
    let no_requests = (1, "has had no requests in any bucket then");
    until_true("the first record", || {
        let why = outcome(&["why", "acme", "--controller", &at]).1;
        why.contains(no_requests.1)
    });
    look(
        "large",
        &["--controller", &at],
        [
            (1, "1 problem: no aggregator is known"),
            no_requests,
            (0, "nothing is held back"),
            (0, "the first one of this controller"),
            (0, "b09999: enforce"),
            (0, "fleet  off"),
            (0, "no aggregator is known"),
            (0, "a controller without an earlier policy starts"),
        ],
    );
}
