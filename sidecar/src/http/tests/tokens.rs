//! Tokens beyond loopback.

use plimsoll_admin::access::{self, TOKEN_PREFIX, TOKEN_RANDOM_CHARS, TokenFile, TokenHash};

use super::*;

const FAR: Caller = Caller {
    from: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7)),
    needs_token: true,
};

fn token(number: usize) -> String {
    format!(
        "{TOKEN_PREFIX}{number:0>width$}",
        width = TOKEN_RANDOM_CHARS
    )
}

fn port() -> (Port, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    let roles = ["viewer", "operator", "admin"].into_iter().enumerate();
    let lines =
        roles.map(|(number, role)| format!("{role}-1 {role} {}\n", TokenHash::of(&token(number))));
    std::fs::write(&path, lines.collect::<String>()).unwrap();
    let tokens = Some(TokenFile::open(&path).unwrap());
    (
        Port::of(
            Rules::built_in(),
            Access::new(access::Rules {
                tokens,
                ..access::Rules::default()
            }),
        ),
        directory,
    )
}

fn ask(port: &Port, caller: Caller, path: &str, headers: &[(&str, &str)]) -> Answer {
    let request = headers
        .iter()
        .fold(Request::get(path), |request, (name, value)| {
            request.header(*name, *value)
        });
    port.ask_from(caller, request.body("").unwrap())
}

#[test]
fn token_of_any_role_opens_remote_port() {
    let (port, _directory) = port();
    for number in 0..3 {
        let (bare, bearer) = (token(number), format!("Bearer {}", token(number)));
        for headers in [
            &[("x-plimsoll-token", bare.as_str())][..],
            &[("authorization", bearer.as_str())],
            // The caller's own credential does not matter next to the proxy's token.
            &[
                ("x-plimsoll-token", bare.as_str()),
                ("authorization", "Basic YWxhZGRpbg=="),
            ],
            &[
                ("x-plimsoll-token", bare.as_str()),
                ("authorization", "Bearer abc"),
                ("authorization", "Bearer d"),
            ],
        ] {
            assert_eq!(
                ask(&port, FAR, "/nginx", headers).status,
                204,
                "{headers:?}"
            );
        }
    }
    assert_eq!(
        port.service
            .access
            .refused()
            .iter()
            .map(|(_, count)| count)
            .sum::<u64>(),
        0
    );
}

#[test]
fn port_without_tokens_is_closed_beyond_loopback() {
    let port = Port::new();
    let answer = ask(&port, FAR, "/check", &[("x-plimsoll-token", &token(0))]);
    assert_eq!(answer.status, 401);
    assert!(
        answer.body.contains("start the process with --tokens FILE"),
        "{answer:?}"
    );
}

#[test]
fn openapi_document_needs_no_token() {
    let (port, _directory) = port();
    assert_eq!(ask(&port, FAR, "/openapi.json", &[]).status, 200);
}
