//! Operators at the admin port of a quota server, with the real commands: the tokens of their roles
//! show, list and reset buckets, and errors name the remedy.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use plimsoll_core::exchange::PeerRole;
use plimsoll_testing::fleet::controller_in;
use plimsoll_testing::process::{FREE, FREE_PORT, Process, add_token, outcome};
use plimsoll_tls::testing::{Authority, Validity};
use serde_json::Value;
use tempfile::TempDir;

use crate::operators::kill::own_address;

const HOUR_S: &str = "3600";

/// A server with a token of each role at its admin port, and the operators' files.
struct Scene {
    server: Process,
    place: TempDir,
}

impl Scene {
    fn start() -> Self {
        let place = tempfile::tempdir().unwrap();
        for role in ["viewer", "operator"] {
            add_token(place.path(), role, role);
        }
        let server = Self::server(&place);
        Self { server, place }
    }

    fn server(place: &TempDir) -> Process {
        let path = |name: &str| place.path().join(name).display().to_string();
        let (data, tokens) = (path("data"), path("tokens"));
        let files = ["quota", "--data", &data, "--tokens", &tokens];
        Process::start(&[&files[..], &FREE].concat())
    }

    /// Takes tokens of a bucket with 10 that is refilled each hour, and returns how many there
    /// were.
    fn reduce(&self, key: &[u8], take: &str) -> u64 {
        let reply = send(
            self.server.address("listen"),
            &[
                b"RL.REDUCE",
                key,
                b"10",
                HOUR_S.as_bytes(),
                b"TAKE",
                take.as_bytes(),
            ],
        );
        reply
            .strip_prefix(':')
            .unwrap_or_else(|| panic!("{reply}"))
            .parse()
            .unwrap()
    }

    /// Runs `plimsoll quota` as a role, and returns the exit code with both outputs.
    fn quota(&self, role: &str, args: &[&str]) -> (i32, String) {
        let server = self.server.url("admin");
        let token = self.place.path().join(role).display().to_string();
        let trust = ["--server", &server, "--token-file", &token];
        outcome(&[&["quota"], args, &trust].concat())
    }

    fn succeed(&self, role: &str, args: &[&str]) -> String {
        let (code, text) = self.quota(role, args);
        assert_eq!(code, 0, "{args:?}: {text}");
        text
    }

    /// Resets as an operator, without a controller that could be told, and returns the rest of the output.
    fn reset(&self, args: &[&str]) -> String {
        let nowhere = ["--controller", "http://127.0.0.1:1"];
        let text = self.succeed("operator", &[&["reset"], args, &nowhere].concat());
        let at = text.find("not among the events: nothing answers at http://127.0.0.1:1:");
        text[..at.expect(&text)].to_owned()
    }
}

/// Sends one command of the Redis protocol, and returns the first line of the reply.
pub(super) fn send(address: SocketAddr, words: &[&[u8]]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut command = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        command.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        command.extend_from_slice(word);
        command.extend_from_slice(b"\r\n");
    }
    stream.write_all(&command).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

fn row<'a>(table: &'a str, key: &str) -> Vec<&'a str> {
    let line = table
        .lines()
        .find(|line| line.split("  ").next() == Some(key));
    let line = line.unwrap_or_else(|| panic!("no row of {key}:\n{table}"));
    line.split("  ")
        .map(str::trim)
        .filter(|cell| !cell.is_empty())
        .collect()
}

#[test]
fn viewers_see_quota_buckets_in_pages() {
    let scene = Scene::start();
    assert_eq!(scene.reduce(b"{acme}:api_calls", "7"), 10);
    scene.reduce(b"{acme}:exports", "1");
    scene.reduce(b"{beta}:api_calls", "10");
    scene.reduce(b"odd\xff\n", "1");

    let table = scene.succeed("viewer", &["get", "{acme}:api_calls"]);
    assert!(table.starts_with("KEY  "), "{table}");
    let cells = row(&table, "{acme}:api_calls");
    assert_eq!(
        &cells[..4],
        ["{acme}:api_calls", "3", "10", "10 every 1h"],
        "{table}"
    );
    // The next refill makes it full, and its time is by the server's clock.
    assert_eq!(cells[4], cells[5], "{table}");
    let left = humantime::parse_rfc3339(cells[4])
        .unwrap()
        .duration_since(std::time::SystemTime::now());
    assert!(left.unwrap().as_secs() <= 3_600, "{table}");
    assert_eq!(table.lines().count(), 2, "{table}");
    let of_tenant = scene.succeed("viewer", &["list", "--prefix", "{acme}:"]);
    assert_eq!(of_tenant.lines().count(), 3, "{of_tenant}");
    assert_eq!(row(&of_tenant, "{acme}:exports")[1], "9");

    let all = scene.succeed("viewer", &["list"]);
    assert_eq!(all.lines().count(), 5, "{all}");
    assert_eq!(row(&all, "odd\\xff\\x0a")[1], "9");
    assert_eq!(
        row(
            &scene.succeed("viewer", &["get", "odd\\xff\\x0a"]),
            "odd\\xff\\x0a"
        )[1],
        "9"
    );
    let some = scene.succeed("viewer", &["list", "--prefix", "{", "--limit", "2"]);
    assert!(
        some.contains("{acme}:exports") && !some.contains("{beta}"),
        "{some}"
    );
    assert!(some.contains("there are more: raise --limit"), "{some}");

    let json = scene.succeed("viewer", &["get", "{beta}:api_calls", "--output", "json"]);
    let bucket: Value = serde_json::from_str(&json).unwrap();
    let bucket = &bucket["buckets"][0];
    assert_eq!(bucket["key"], "{beta}:api_calls", "{json}");
    assert_eq!(
        (&bucket["kind"], &bucket["tokens"]),
        (&"tokens".into(), &0.into()),
        "{json}"
    );
    assert_eq!(
        (&bucket["max"], &bucket["every_ms"]),
        (&10.into(), &3_600_000.into()),
        "{json}"
    );
}

#[test]
fn refilled_quota_bucket_survives_a_crash() {
    let mut scene = Scene::start();
    for key in [
        &b"{acme}:api_calls"[..],
        b"{acme}:exports",
        b"{acmex}:api_calls",
    ] {
        scene.reduce(key, "10");
    }
    let (code, text) = scene.quota("viewer", &["reset", "{acme}:api_calls"]);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("this route needs the role operator"),
        "{text}"
    );
    assert_eq!(
        scene.reduce(b"{acme}:api_calls", "1"),
        0,
        "nothing was reset"
    );

    let text = scene.reset(&["{acme}:api_calls"]);
    assert_eq!(text, "full again: 1 bucket\n");
    scene.server.kill_9();
    scene.server = Scene::server(&scene.place);
    assert_eq!(scene.reduce(b"{acme}:api_calls", "4"), 10);
    let text = scene.reset(&["--prefix", "{acme}:"]);
    assert_eq!(text, "full again: 2 buckets\n");
    let ordered = scene.server.wait_for(|line| {
        line["fields"]["message"]
            .as_str()
            .is_some_and(|text| text.starts_with("quotas reset by command"))
    });
    let fields = &ordered["fields"];
    assert_eq!(
        (&fields["key"], &fields["by"]),
        (&"{acme}:".into(), &"operator".into()),
        "{ordered}"
    );
    assert_eq!(scene.reduce(b"{acme}:exports", "1"), 10);
    assert_eq!(
        scene.reduce(b"{acmex}:api_calls", "1"),
        0,
        "another tenant's bucket stays"
    );
}

#[test]
fn operator_mistakes_are_named_with_remedies() {
    let scene = Scene::start();
    let server = scene.server.url("admin");
    for (args, code, wanted) in [
        (&["get", "nobody"][..], 1, "no bucket of `nobody` is known"),
        (&["reset", "nobody"], 1, "no bucket of `nobody` is known"),
        (&["get", "a\\n"], 2, "begins neither"),
        (&["get"], 2, "<KEY>"),
        (&["reset"], 2, "<KEY>"),
        (&["list", "--limit", "0"], 2, "--limit"),
    ] {
        let (actual, text) = scene.quota("operator", args);
        assert_eq!(actual, code, "{args:?}: {text}");
        assert!(text.contains(wanted), "{args:?}: {text}");
    }
    let (code, text) = outcome(&["quota", "list", "--server", &server]);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("needs the role viewer") && text.contains("--token-file FILE"),
        "{text}"
    );
    let (code, text) = outcome(&["quota", "list", "--server", "http://127.0.0.1:1"]);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("nothing answers at http://127.0.0.1:1") && text.contains("--server URL"),
        "{text}"
    );
    let (code, text) = outcome(&["quota", "list", "--server", "127.0.0.1:7432"]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("http://127.0.0.1:7432"), "{text}");
}

#[test]
fn quota_commands_verify_the_quota_server() {
    let Some(own) = own_address("quota::admin") else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).display().to_string();
    let authority = Authority::new("fleet.example");
    for (name, role) in [
        ("quota", PeerRole::Quota),
        ("controller", PeerRole::Controller),
    ] {
        fs::create_dir(place.path().join(name)).unwrap();
        authority.write(&place.path().join(name), role, Validity::default());
    }
    let tokens = path("tokens");
    let token = add_token(place.path(), "viewer", "viewer");
    fs::write(path("policy.yaml"), "buckets: {}\n").unwrap();
    let ports = [
        "--listen",
        FREE_PORT,
        "--admin",
        "0.0.0.0:0",
        "--tokens",
        &tokens,
    ];
    let (data, own_certs, others) = (path("data"), path("quota"), path("controller"));
    // A certificate of another role does not start the server.
    let (code, text) =
        outcome(&[&["quota", "--data", &data, "--certs", &others], &ports[..]].concat());
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("plimsoll certs issue quota --ca CA-DIR"),
        "{text}"
    );

    let of_server = ["quota", "--data", &data, "--certs", &own_certs];
    let server = Process::start(&[&of_server[..], &ports].concat());
    let trust = ["--certs", &others, "--tokens", &tokens];
    let controller = controller_in(place.path(), FREE_PORT, "0.0.0.0:0", &trust);
    let ca = format!("{own_certs}/ca.crt");
    let list = |process: &Process| {
        let url = format!(
            "https://{}",
            SocketAddr::new(own, process.address("admin").port())
        );
        let trust = ["--ca", &ca, "--token-file", &token];
        outcome(&[&["quota", "list", "--server", &url], &trust[..]].concat())
    };
    assert_eq!(list(&server), (0, "no buckets\n".to_owned()));
    let (code, text) = list(&controller);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("is no quota server: check the address"),
        "{text}"
    );
}
