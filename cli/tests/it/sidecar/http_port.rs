//! The HTTP port of a real sidecar, called by curl: over TLS with tokens beyond loopback, and on
//! the Unix socket.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_core::exchange::PeerRole;
use plimsoll_core::names::{Name, Zone};
use plimsoll_testing::fleet::{TENANTS, policy};
use plimsoll_testing::process::{FREE_PORT, Process, add_token, http};
use plimsoll_testing::turns::{IDLE, turn};
use plimsoll_tls::testing::{Authority, Validity};
use tempfile::TempDir;

use super::{Fleet, tool};
use crate::operators::kill::own_address;

const BUCKET: &str = "x-plimsoll-bucket: checkout";

/// Runs curl; returns the status and its output.
fn curl(curl: &Path, args: &[&str]) -> (String, String) {
    let asked = Command::new(curl)
        .args(["-sS", "-m", "60", "-i", "-w", "\n%{http_code}"])
        .args(args)
        .output()
        .unwrap();
    let text = String::from_utf8(asked.stdout).unwrap();
    let (answer, status) = text.rsplit_once('\n').unwrap();
    let errors = String::from_utf8_lossy(&asked.stderr);
    (status.to_owned(), format!("{answer}{errors}"))
}

/// Makes a directory with certificates of a service and with tokens of these roles.
fn files(roles: &[&str]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let certs = directory.path().join("certs");
    fs::create_dir(&certs).unwrap();
    let role = PeerRole::Service {
        zone: Zone::new("default").unwrap(),
        service: Name::new("sidecar").unwrap(),
    };
    Authority::new("test.example").write(&certs, role, Validity::default());
    for role in roles {
        add_token(directory.path(), role, role);
    }
    directory
}

fn secret(path: PathBuf) -> String {
    fs::read_to_string(path).unwrap().trim().to_owned()
}

#[test]
fn tokens_of_any_role_open_remote_sidecar() {
    let Some(program) = tool("http_port", "curl") else {
        return;
    };
    let Some(own) = own_address("sidecar::http_port") else {
        return;
    };
    let _turn = turn(IDLE);
    let roles = ["viewer", "operator", "admin"];
    let files = files(&roles);
    let path = |name: &str| files.path().join(name).display().to_string();
    let (certs, tokens) = (path("certs"), path("tokens"));
    let trust = ["--certs", &certs, "--tokens", &tokens];
    let ports = [
        "--rls",
        FREE_PORT,
        "--http",
        "0.0.0.0:0",
        "--admin",
        FREE_PORT,
    ];
    let sidecar = Process::start(&[&["sidecar"], &trust[..], &ports].concat());
    let port = sidecar.address("http").port();
    let url = |path: &str| format!("https://{own}:{port}{path}");
    // The certificate names a role and no host.
    let ask = |path: &str, headers: &[&str]| {
        let headers = headers.iter().flat_map(|header| ["-H", *header]);
        let headers: Vec<&str> = headers.collect();
        curl(
            &program,
            &[&["-k", "-H", BUCKET, &url(path)], &headers[..]].concat(),
        )
    };
    for role in roles {
        let secret = secret(files.path().join(role));
        let (own, bearer) = (
            format!("x-plimsoll-token: {secret}"),
            format!("authorization: Bearer {secret}"),
        );
        for headers in [
            &[own.as_str()][..],
            &[&bearer],
            &[&own, "authorization: Basic YWxhZGRpbg=="],
        ] {
            assert_eq!(ask("/nginx", headers).0, "204", "{role}");
        }
    }
    for path in ["/check", "/nginx", "/v1/check"] {
        let (status, answer) = ask(path, &[]);
        assert_eq!(status, "401", "{answer}");
        assert!(
            answer.contains("www-authenticate: Bearer") && answer.contains("x-plimsoll-token"),
            "{answer}"
        );
    }
    assert_eq!(ask("/openapi.json", &[]).0, "200");
    let plain = curl(
        &program,
        &["-H", BUCKET, &format!("http://{own}:{port}/check")],
    );
    assert_eq!(plain.0, "000", "no answer in plaintext: {}", plain.1);
    let shown = |name: &str, label: &str| sidecar.metric("admin", name, label);
    let refused = shown("plimsoll_admin_refused_total", "reason=\"no_token\"");
    assert_eq!(refused, 3.0);
    let allowed = "endpoint=\"nginx\",result=\"allowed\"";
    assert_eq!(shown("plimsoll_sidecar_http_requests_total", allowed), 9.0);
}

#[test]
fn unix_socket_answers_without_tls_and_token() {
    let Some(program) = tool("http_port", "curl") else {
        return;
    };
    let _turn = turn(IDLE);
    let fleet = Fleet::start(&policy(0, "enforce", false), TENANTS, None, &[]);
    let socket = fleet.path("http.sock").display().to_string();
    let ask = |args: &[&str]| curl(&program, &[&["--unix-socket", &socket][..], args].concat());
    assert_eq!(
        ask(&["-H", "x-plimsoll-bucket: other", "http://sidecar/nginx"]).0,
        "204"
    );
    let json = [
        "-H",
        "content-type: application/json",
        "-d",
        r#"{"bucket":"other"}"#,
        "http://sidecar/v1/check",
    ];
    let (status, answer) = ask(&json);
    assert!(
        status == "200" && answer.contains(r#"{"allowed":true"#),
        "{answer}"
    );
    // A token that is not accepted anywhere has no effect here.
    let token = [
        "-H",
        "x-plimsoll-token: abc",
        "-H",
        "x-plimsoll-bucket: other",
        "http://sidecar/nginx",
    ];
    assert_eq!(ask(&token).0, "204");
}

/// Proxies copy the header fields of the original request, cookies included.
#[test]
fn large_cookies_pass_unlike_huge_heads() {
    let _turn = turn(IDLE);
    let fleet = Fleet::start(&policy(0, "enforce", false), TENANTS, None, &[]);
    let ask = |bytes: usize| {
        let cookie = "x".repeat(bytes);
        let headers = [("x-plimsoll-bucket", "other"), ("cookie", cookie.as_str())];
        // The connection may be closed before all of the head is sent.
        http(fleet.sidecar.address("http"), "GET", "/nginx", &headers)
            .map_or(431, |(status, _)| status)
    };
    assert_eq!(ask(60_000), 204);
    assert_eq!(ask(400_000), 431);
}
