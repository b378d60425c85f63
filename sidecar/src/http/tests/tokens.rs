//! Tokens beyond loopback.

use plimsoll_admin::access::{self, TOKEN_PREFIX, TOKEN_RANDOM_CHARS, TokenFile, TokenHash};

use super::*;

const FAR: Caller = Caller { from: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7)), needs_token: true };

/// Returns a well-formed token.
fn token(number: usize) -> String {
    format!("{TOKEN_PREFIX}{number:0>width$}", width = TOKEN_RANDOM_CHARS)
}

fn port() -> (Port, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    let roles = ["viewer", "operator", "admin"].into_iter().enumerate();
    let lines = roles.map(|(number, role)| format!("{role}-1 {role} {}\n", TokenHash::of(&token(number))));
    std::fs::write(&path, lines.collect::<String>()).unwrap();
    let tokens = Some(TokenFile::open(&path).unwrap());
    (
        Port::of(Rules::built_in(), Access::new(access::Rules { tokens, ..access::Rules::default() })),
        directory,
    )
}

fn ask(port: &Port, caller: Caller, path: &str, headers: &[(&str, &str)]) -> Answer {
    let request =
        headers.iter().fold(Request::get(path), |request, (name, value)| request.header(*name, *value));
    port.ask_from(caller, request.body("").unwrap())
}

#[test]
fn token_of_any_role_opens_the_port_beyond_loopback() {
    let (port, _directory) = port();
    for number in 0..3 {
        let (bare, bearer) = (token(number), format!("Bearer {}", token(number)));
        for headers in [
            &[("x-plimsoll-token", bare.as_str())][..],
            &[("authorization", bearer.as_str())],
            // The caller's own credential does not matter beside the token of the proxy.
            &[("x-plimsoll-token", bare.as_str()), ("authorization", "Basic YWxhZGRpbg==")],
            &[
                ("x-plimsoll-token", bare.as_str()),
                ("authorization", "Bearer abc"),
                ("authorization", "Bearer d"),
            ],
        ] {
            assert_eq!(ask(&port, FAR, "/nginx", headers).status, 204, "{headers:?}");
        }
    }
    assert_eq!(port.service.inner.access.refused().iter().map(|(_, count)| count).sum::<u64>(), 0);
}

#[test]
fn request_without_a_valid_token_is_401_and_counted_by_its_reason() {
    let bearer = format!("Bearer {}", token(9));
    let (good, unknown) = (token(0), token(9));
    let good_bearer = format!("Bearer {good}");
    for (headers, reason) in [
        (&[][..], "no_token"),
        (&[("x-plimsoll-token", unknown.as_str())], "unknown_token"),
        (&[("authorization", bearer.as_str())], "unknown_token"),
        (&[("authorization", "Basic YWxhZGRpbg==")], "malformed_token"),
        (&[("x-plimsoll-token", good.as_str()), ("x-plimsoll-token", good.as_str())], "malformed_token"),
        // The header for the token is not a second chance.
        (&[("x-plimsoll-token", unknown.as_str()), ("authorization", good_bearer.as_str())], "unknown_token"),
        (&[("x-plimsoll-token", good_bearer.as_str())], "unknown_token"),
    ] {
        let (port, _directory) = port();
        for path in ["/check", "/nginx", "/v1/check", "/v1/report", "/other"] {
            let answer = ask(&port, FAR, path, headers);
            assert_eq!(answer.status, 401, "{path} {headers:?}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"plimsoll\""));
            assert_eq!(answer.header("content-type"), Some("application/problem+json"));
            assert!(answer.json()["detail"].as_str().unwrap().contains("needs a token"), "{answer:?}");
            assert!(!answer.body.contains(&good) && !answer.body.contains(&unknown), "{answer:?}");
        }
        let refused: Vec<_> =
            port.service.inner.access.refused().into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(refused, [(reason, 5)], "{headers:?}");
        assert_eq!(port.counts(), [], "nothing was decided");
    }
}

#[test]
fn guesser_is_limited_and_valid_tokens_are_not() {
    let (port, _directory) = port();
    let (good, unknown) = (token(0), token(9));
    let statuses: Vec<u16> =
        (0..100).map(|_| ask(&port, FAR, "/check", &[("x-plimsoll-token", &unknown)]).status).collect();
    assert!(statuses.contains(&401) && statuses.contains(&429), "{statuses:?}");
    assert!(ask(&port, FAR, "/check", &[("x-plimsoll-token", &unknown)]).header("retry-after").is_some());
    assert_eq!(ask(&port, FAR, "/check", &[("x-plimsoll-token", &good)]).status, 200);
}

#[test]
fn port_without_tokens_is_closed_beyond_loopback() {
    let port = Port::new();
    let answer = ask(&port, FAR, "/check", &[("x-plimsoll-token", &token(0))]);
    assert_eq!(answer.status, 401);
    assert!(answer.body.contains("start the process with --tokens FILE"), "{answer:?}");
}

#[test]
fn credentials_mean_nothing_on_loopback() {
    let (port, _directory) = port();
    for headers in [
        &[][..],
        &[("authorization", "Basic YWxhZGRpbg==")],
        &[("authorization", "Bearer abc"), ("x-plimsoll-token", "abc")],
        &[("host", "shop.example"), ("x-forwarded-for", "203.0.113.9"), ("origin", "https://shop.example")],
    ] {
        assert_eq!(ask(&port, LOCAL, "/nginx", headers).status, 204, "{headers:?}");
    }
}

#[test]
fn openapi_document_needs_no_token() {
    let (port, _directory) = port();
    assert_eq!(ask(&port, FAR, "/openapi.json", &[]).status, 200);
}
