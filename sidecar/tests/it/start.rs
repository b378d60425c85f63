//! Arguments and files that prevent the start of a sidecar: each error names the flag and is a
//! usage error.

use std::path::Path;

use clap::Parser;
use plimsoll_sidecar::{Args, Sidecar};

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: Args,
}

pub(crate) fn parsed(flags: &[&str]) -> Args {
    Command::try_parse_from([&["sidecar"], flags].concat())
        .unwrap()
        .args
}

fn refused(flags: &[&str]) -> (String, bool) {
    let error = Sidecar::new(&parsed(flags)).unwrap_err();
    let source = std::iter::successors(std::error::Error::source(&error), |error| error.source());
    (
        source.fold(error.to_string(), |text, source| {
            format!("{text}: {source}")
        }),
        error.is_usage(),
    )
}

#[test]
fn invalid_argument_errors_name_the_flag() {
    for (flags, words) in [
        (&["--zone", "a b"][..], &["--zone `a b`"][..]),
        (&["--service", ""], &["--service ``"]),
        (&["--name", "a b"], &["--name `a b`"]),
        (
            &["--rls", "192.0.2.1:7420"],
            &["--rls 192.0.2.1:7420", "--certs", "--insecure"],
        ),
        (
            &["--http", "0.0.0.0:7421"],
            &["--http 0.0.0.0:7421", "--certs", "--insecure"],
        ),
        (
            &["--http", "0.0.0.0:7421", "--insecure"],
            &["--http 0.0.0.0:7421", "--tokens"],
        ),
        (
            &["--admin", "[::]:7422"],
            &["--admin [::]:7422", "--certs", "--insecure"],
        ),
        (
            &["--aggregator", "http://192.0.2.1:7410"],
            &[
                "--aggregator http://192.0.2.1:7410",
                "--certs",
                "--insecure",
            ],
        ),
        (
            &["--aggregator", "https://127.0.0.1:7410"],
            &["--aggregator https://127.0.0.1:7410", "--certs"],
        ),
        (
            &["--aggregator", "shop"],
            &["--aggregator shop", "https://HOST:PORT"],
        ),
        (&["--certs", "/nonexistent"], &["--certs", "/nonexistent"]),
        (&["--tokens", "/nonexistent"], &["--tokens", "/nonexistent"]),
        (&["--rules", "/nonexistent"], &["/nonexistent"]),
        (&["--cold-rps", "a=-1"], &["-1"]),
    ] {
        let (text, is_usage) = refused(flags);
        assert!(is_usage, "{flags:?}: {text}");
        assert!(
            words.iter().all(|word| text.contains(word)),
            "{flags:?}: {text}"
        );
        assert!(!text.contains("LimiterBuilder"), "{flags:?}: {text}");
    }
}

#[test]
fn invalid_rules_error_shows_the_place() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rules.yaml");
    let started_with = |text: &str| {
        std::fs::write(&path, text).unwrap();
        refused(&["--rules", path.to_str().unwrap()])
    };
    let (text, is_usage) = started_with(
        "rls:\n  domains:\n    shop:\n      descriptors:\n        - { key: a, bukket: b }\n",
    );
    assert!(is_usage && text.contains("rules.yaml:5:"), "{text}");
    let names: Vec<String> = (0..3).map(|number| format!("bucket-{number}")).collect();
    std::fs::write(&path, format!("buckets: [{}]\n", names.join(", "))).unwrap();
    let rules = Path::new(&path).to_str().unwrap();
    let (text, is_usage) = refused(&["--rules", rules, "--buckets-max", "2"]);
    assert!(is_usage && text.contains("--buckets-max"), "{text}");
}

#[test]
fn ports_default_to_loopback_or_tls() {
    let args = parsed(&[]);
    let ports = [args.rls, args.http, args.admin].map(|address| address.to_string());
    assert_eq!(
        ports,
        ["127.0.0.1:7420", "127.0.0.1:7421", "127.0.0.1:7422"]
    );
    assert_eq!(args.limiter.aggregator, ["http://127.0.0.1:7410"]);
    assert_eq!(
        parsed(&["--certs", "a"]).limiter.aggregator,
        ["https://127.0.0.1:7410"]
    );
}
