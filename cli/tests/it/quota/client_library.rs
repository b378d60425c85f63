//! Redis client features around the commands: pipelines, both versions of the protocol, names,
//! descriptions of commands, tokens and TLS.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use plimsoll_testing::process::{FREE_PORT, add_token, outcome, succeed};
use plimsoll_testing::turns::{IDLE, turn};
use redis::{ErrorKind, Value};

use super::server::Server;
use crate::operators::kill::own_address;
use plimsoll_testing::is_installed;

#[test]
fn connection_has_a_name() {
    let _turn = turn(IDLE);
    let server = Server::start();
    let mut connection = server.connect("?protocol=resp3");
    let mut client = |arguments: &[&str]| {
        redis::cmd("CLIENT")
            .arg(arguments)
            .query::<Value>(&mut connection)
    };
    assert_eq!(client(&["GETNAME"]).unwrap(), Value::Nil);
    assert_eq!(client(&["SETNAME", "worker-1"]).unwrap(), Value::Okay);
    assert_eq!(
        client(&["GETNAME"]).unwrap(),
        Value::BulkString(b"worker-1".to_vec())
    );
    assert!(client(&["SETNAME", "two words"]).is_err());
}

#[test]
fn commands_are_counted_and_listed() {
    let _turn = turn(IDLE);
    let server = Server::start();
    let mut connection = server.connect("");
    let count: usize = redis::cmd("COMMAND")
        .arg("COUNT")
        .query(&mut connection)
        .unwrap();
    let all: Vec<String> = redis::cmd("COMMAND")
        .arg("LIST")
        .query(&mut connection)
        .unwrap();
    assert!(
        all.len() == count && all.contains(&"rl.reduce".to_owned()),
        "{all:?}"
    );
}

#[test]
fn plaintext_beyond_loopback_needs_flags_and_tokens() {
    let _turn = turn(IDLE);
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data").display().to_string();
    let fixed = [
        "quota",
        "--listen",
        "0.0.0.0:0",
        "--admin",
        FREE_PORT,
        "--data",
        &data,
    ];
    let start = |flags: &[&str]| outcome(&[&fixed[..], flags].concat());
    let (code, text) = start(&[]);
    assert_eq!(code, 2);
    assert!(
        text.contains("--listen 0.0.0.0:0 is not a loopback address")
            && text.contains("--certs DIR"),
        "{text}"
    );
    let (code, text) = start(&["--insecure"]);
    assert_eq!(code, 2);
    assert!(
        text.contains("its clients need tokens: give --tokens FILE"),
        "{text}"
    );
}

#[test]
fn remote_quota_clients_use_tls_and_tokens() {
    let _turn = turn(IDLE);
    let test = "remote_quota_clients_use_tls_and_tokens";
    let Some(own) = own_address(test) else {
        return;
    };
    if !is_installed("redis-cli", test) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).display().to_string();
    let (ca, certs, tokens) = (path("ca"), path("certs"), path("tokens"));
    let host = own.to_string();
    succeed(&["certs", "init", "--dir", &ca]);
    let issue = ["certs", "issue", "quota", "--ca", &ca];
    succeed(&[&issue[..], &["--out", &certs, "--host", &host]].concat());
    let secret = add_token(place.path(), "shop", "viewer");
    let trust = ["--certs", &certs, "--tokens", &tokens];
    let server = Server::start_with(&[&["--listen", "0.0.0.0:0"], &trust[..]].concat());
    let address = SocketAddr::new(own, server.address().port());
    let token = fs::read_to_string(&secret).unwrap().trim().to_owned();
    let ca = path("certs/ca.crt");
    let cli = |flags: &[&str], input: &str| {
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let mut command = Command::new("redis-cli");
        command.args(["-h", &host, "-p", &port]).args(flags);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let tls = ["--tls", "--cacert", &ca];
    let take = "RL.REDUCE a 5 60 AT 0\n";
    assert_eq!(
        cli(&tls, &format!("{take}AUTH {token}\n{take}")).trim(),
        "NOAUTH Authentication required.\n\nOK\n5"
    );
    assert_eq!(
        cli(&tls, &format!("AUTH shop {token}\n{take}")).trim(),
        "OK\n4"
    );
    assert!(cli(&tls, "AUTH other wrong\nPING\n").contains("WRONGPASS"));
    assert!(!cli(&[], take).contains("\n5"), "plaintext is not answered");
    let log = server.process.log().join("\n");
    assert!(
        log.contains("connection without a valid token refused"),
        "{log}"
    );
    assert!(
        !log.contains(&token) && !log.contains("wrong"),
        "no secret is logged: {log}"
    );
}

#[test]
fn wrong_token_has_its_own_library_error() {
    let _turn = turn(IDLE);
    let test = "wrong_token_has_its_own_library_error";
    let Some(own) = own_address(test) else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let secret = add_token(place.path(), "shop", "viewer");
    let tokens = place.path().join("tokens").display().to_string();
    let server = Server::start_with(&["--listen", "0.0.0.0:0", "--insecure", "--tokens", &tokens]);
    let token = fs::read_to_string(&secret).unwrap().trim().to_owned();
    let connect = |password: &str, parameters: &str| {
        let address = SocketAddr::new(own, server.address().port());
        redis::Client::open(format!("redis://default:{password}@{address}/{parameters}"))
            .unwrap()
            .get_connection()
    };
    for parameters in ["", "?protocol=resp3"] {
        let refused = connect("wrong", parameters).err().unwrap();
        // The library names the reply to AUTH itself, and the reply to HELLO by its code.
        let is_named = refused.kind() == ErrorKind::AuthenticationFailed
            || refused.code() == Some("WRONGPASS");
        assert!(is_named, "{refused:?}");
        let mut connection = connect(&token, parameters).unwrap();
        assert_eq!(
            redis::cmd("PING").query::<String>(&mut connection).unwrap(),
            "PONG"
        );
    }
}
