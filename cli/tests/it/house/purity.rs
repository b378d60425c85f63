//! Purity: state machines take the time and random draws as arguments, and never read a clock or a
//! source of entropy.

use super::source::{SourceFile, source_files};

/// Pure files and folders below the `src` of each crate. An empty list means the whole crate.
const PURE: [(&str, &[&str]); 9] = [
    ("core", &[]),
    ("policy", &[]),
    ("simulator", &[]),
    (
        "client",
        &[
            "feed/cache/snapshot",
            "hot/decision",
            "hot/directive_word",
            "hot/guard_pool",
            "hot/guards",
            "hot/interner",
            "hot/shared_key",
            "hot/table",
            "hot/thread_counters",
            "limiter/quota/book",
            "limiter/quota/calls/breaker",
            "limiter/waiting/pace",
            "limiter/waiting/queues",
            "subscription",
        ],
    ),
    (
        "aggregator",
        &[
            "downstream",
            "fast_loop",
            "key_counts",
            "schedule/push_schedule",
            "schedule/report_interval",
            "upstream",
            "warmup",
            "zone",
        ],
    ),
    (
        "controller",
        &[
            "aggregators",
            "audit/line",
            "audit/verify",
            "brain",
            "bucket",
            "history",
            "prometheus/answer",
            "rollout",
            "state",
        ],
    ),
    ("cli", &["cmd/service/capacity", "load/schedule"]),
    (
        "quota",
        &[
            "admin/api",
            "admin/key_text",
            "engine/apply",
            "engine/shard",
            "engine/take",
            "operation",
            "resp/commands",
            "resp/input",
            "resp/reply",
            "store/row",
        ],
    ),
    (
        "sidecar",
        &[
            "http/json",
            "http/openapi",
            "limits",
            "rls/counters",
            "rls/grpc",
            "rls/input",
            "rules/bounds",
            "rules/http",
            "rules/read",
            "rules/spec",
            "rules/tree",
        ],
    ),
];
/// Ways to read a clock or a source of entropy.
const AMBIENT: [&str; 5] = [
    "Instant::now",
    "SystemTime",
    "getrandom",
    "rand::rng(",
    "thread_rng",
];

#[test]
fn state_machines_use_no_clock_or_randomness() {
    for (folder, pure) in PURE {
        let files = source_files(folder);
        for path in pure {
            let found = files.iter().any(|file| is_below(file, folder, path));
            assert!(
                found,
                "{folder}/src/{path} is gone: list its new place here"
            );
        }
        let is_pure = |file: &&SourceFile| {
            pure.is_empty() || pure.iter().any(|path| is_below(file, folder, path))
        };
        for file in files.iter().filter(is_pure) {
            for line in &file.lines {
                let code = line.split("//").next().unwrap_or_default();
                let ambient = AMBIENT.iter().find(|ambient| code.contains(**ambient));
                assert_eq!(ambient, None, "{}: {line}", file.path);
            }
        }
    }
}

/// Returns true if a file is the module at `path` or in its folder.
fn is_below(file: &SourceFile, folder: &str, path: &str) -> bool {
    let rest = file.path.strip_prefix(&format!("{folder}/src/{path}"));
    rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}
