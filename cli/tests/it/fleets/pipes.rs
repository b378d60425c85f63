//! Commands with a reader of only a part of their output, such as `head`: they end as if all of it
//! had been read.

use std::process::{Command, ExitStatus, Stdio};

use plimsoll_testing::process::command;

/// Returns the closed end of a pipe.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// Runs a command with a closed standard output, and returns its exit status and standard error.
fn without_reader(mut command: Command) -> (ExitStatus, String) {
    let ended = command
        .stdout(closed())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap();
    (ended.status, String::from_utf8(ended.stderr).unwrap())
}

#[test]
fn closed_pipe_is_no_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let good = file("good.yaml", "buckets: { b: { limit: 1 } }\n");
    let bad = file("bad.yaml", "buckets: { b: { limit: -1 } }\n");
    let scenario = file(
        "scenario.yaml",
        "name: brief\nduration_s: 2\nzones: 1\nclients: 1\npolicy: { buckets: { b: { limit: 10 } } }\n\
         traffic: [ { bucket: b, load: { constant: 5 } } ]\n",
    );
    let commands: [(&[&str], i32); 6] = [
        (&["check", &good], 0),
        (&["check", &good, "--output", "json"], 0),
        (&["check", &bad, "--output", "json"], 2),
        (&["simulate", &scenario, "--seeds", "1"], 0),
        (
            &["simulate", &scenario, "--seeds", "1", "--output", "json"],
            0,
        ),
        (&["--help"], 0),
    ];
    for (args, code) in commands {
        let (status, errors) = without_reader(command("plimsoll", args));
        assert_eq!(
            (status.code(), errors.as_str()),
            (Some(code), ""),
            "{args:?}"
        );
    }
    // Without standard error the exit code remains.
    for (args, code) in [
        (&["check", &bad][..], 2),
        (
            &["rollout", "status", "--controller", "http://127.0.0.1:1"],
            1,
        ),
    ] {
        let mut command = command("plimsoll", args);
        let status = command
            .stdout(Stdio::null())
            .stderr(closed())
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(code), "{args:?}");
    }
}
