//! HTTP callers of a service with a used-up quota, and the operator who resets it.

use std::io::{Read, Write};
use std::net::TcpStream;

use plimsoll_testing::process::{Process, succeed, until_true};
use plimsoll_testing::turns::{IDLE, turn};

use super::super::server::Server;
use super::{TENANT, fleet, operations, service};

const QUOTAS: [(&str, &str); 1] = [("api", "max: 3, every: 1h, lease: 1, on_store_error: deny")];

fn ask(service: &Process, tenant: &str) -> String {
    let mut stream = TcpStream::connect(service.address("listen")).unwrap();
    let request =
        format!("GET /api HTTP/1.1\r\nhost: a\r\nx-tenant: {tenant}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap()
}

#[test]
fn quota_refusal_ends_with_operator_reset() {
    let _turn = turn(IDLE);
    let store = Server::start_with(&["--listen", "127.0.0.1:0", "--admin-open-on-loopback"]);
    let fleet = fleet(&QUOTAS);
    let url = format!("plimsoll://{}", store.address());
    let service = service(&fleet, &["--quota-store", &url, "--quota-timeout", "5s"]);

    for _ in 0..3 {
        assert_eq!(status(&ask(&service, TENANT)), "200");
    }
    let refused = ask(&service, TENANT).to_lowercase();
    for part in [
        "http/1.1 429",
        "ratelimit-policy: \"of_api\";q=3;w=3600\r\n",
        "ratelimit: \"of_api\";r=0;t=3",
        "x-ratelimit-reason: tenant_quota_exceeded\r\n",
        "retry-after: 3",
        "content-type: application/problem+json\r\n",
        "\"reason\":\"tenant_quota_exceeded\"",
        "\"violated-policies\":[\"of_api\"]",
    ] {
        assert!(refused.contains(part), "{refused}\nhas no {part}");
    }
    assert_eq!(
        status(&ask(&service, "other")),
        "200",
        "each tenant has tokens of its own"
    );
    let asked = operations(&store.process, "take");
    assert_eq!(status(&ask(&service, TENANT)), "429");
    assert_eq!(
        operations(&store.process, "take"),
        asked,
        "a refusal is remembered"
    );

    let server = store.process.url("admin");
    let key = format!("{{{TENANT}}}:of_api");
    let controller = ["--controller", &fleet.controller.url("admin")];
    succeed(
        &[
            &["quota", "reset", &key, "--server", &server][..],
            &controller,
        ]
        .concat(),
    );
    let events = succeed(&[&["events"][..], &controller].concat());
    let reset = format!("quota reset, key {key}: 1 bucket full again");
    assert!(events.contains(&reset), "{events}");
    until_true("the reset to take effect", || {
        status(&ask(&service, TENANT)) == "200"
    });
    let served = (0..4)
        .filter(|_| status(&ask(&service, TENANT)) == "200")
        .count();
    assert_eq!(served, 2, "the quota is full again, and no fuller");
}
