//! Query gates on real processes and a real Prometheus server: its answers pass and end a canary,
//! and without an answer every bucket keeps its stage.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

use plimsoll_testing::process::{http_get, until, until_true};
use plimsoll_testing::turns::turn;
use serde_json::Value;

use crate::operators::rollout::{OFFERED, Scene};
use crate::prometheus::RealPrometheus;

/// Server with a page of metrics that has one number or none.
#[derive(Clone)]
struct HelpDesk {
    tickets: Arc<Mutex<Option<f64>>>,
    address: SocketAddr,
}

impl HelpDesk {
    fn open(tickets: f64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let desk = Self {
            tickets: Arc::new(Mutex::new(Some(tickets))),
            address,
        };
        let shared = desk.clone();
        // The thread ends with the tests.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let _ = stream.read(&mut [0; 4_096]);
                let tickets = *shared.tickets.lock().unwrap();
                let body =
                    tickets.map_or(String::new(), |tickets| format!("tickets_open {tickets}\n"));
                let head = format!(
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all((head + &body).as_bytes());
            }
        });
        desk
    }

    fn set(&self, tickets: Option<f64>) {
        *self.tickets.lock().unwrap() = tickets;
    }
}

/// The query is the only narrow gate: no other gate fails on a busy machine.
fn policy(url: &str) -> String {
    format!(
        "buckets:\n  good: {{ limit: unlimited, mode: shadow }}\n  tight: {{ limit: unlimited }}\n  \
         idle: {{ limit: 1000 }}\nrollout:\n  canary_percent: 50\n  shadow: {{ min_days: 0.00002, window_h: 0.002 }}\n  \
         canary: {{ min_hours: 0.0005, window_min: 0.1, max_p99_delta_ms: 20000 }}\n  min_samples: 40\n  \
         queries: [ {{ name: tickets, url: '{url}', query: 'sum(tickets_open)', max: 20 }} ]\n"
    )
}

/// Waits until this is the only reason against the next stage.
fn waits_for(scene: &Scene, what: &str) -> Value {
    until(&format!("`{what}` to be the only reason"), || {
        let status = scene.status("good");
        let why = status["why"]
            .as_array()
            .unwrap()
            .iter()
            .map(|reason| reason.as_str().unwrap());
        // The number of instances is always reported.
        let why: Vec<&str> = why
            .filter(|reason| !reason.starts_with("the evidence rests on"))
            .collect();
        (why.len() == 1 && why[0].starts_with(what)).then_some(status)
    })
}

#[test]
fn query_gate_waits_while_its_server_fails() {
    let _turn = turn(OFFERED);
    let desk = HelpDesk::open(3.0);
    let test = "extra_gates::query_gate_waits_while_its_server_fails";
    let Some(mut server) = RealPrometheus::start(test, Some(desk.address)) else {
        return;
    };
    let scene = Scene::start_with(&policy(&server.url()), &["--query-every", "200ms"]);

    // The answer is kept as evidence.
    scene.promote("good", "canary");
    let change = scene.last_change("good", "promote");
    let query = &change["evidence"]["queries"][0];
    assert_eq!(
        (&query["name"], &query["value"], &query["max"]),
        (&"tickets".into(), &3.0.into(), &20.0.into())
    );
    let (_, output) = scene.command(&["rollout", "history", "good"]);
    assert!(
        output.contains("    tickets is 3, maximum 20 (answered "),
        "{output}"
    );

    // The server is down: the canary keeps its stage although all other gates pass.
    server.stop();
    let lost = waits_for(&scene, "tickets is unknown: the server cannot be reached");
    assert_eq!(
        (&lost["gate"], &lost["stage"]),
        (&"inconclusive".into(), &"canary".into())
    );
    let (code, output) = scene.command(&["rollout", "promote", "good"]);
    assert!(
        code == 1
            && output.contains("the gate from canary to enforce is not passed: tickets is unknown"),
        "{output}"
    );
    let with_data = |status: &Value| status["evidence"]["with_data_ms"].as_u64().unwrap();
    let later = until("three more seconds of canary", || {
        let status = scene.status("good");
        assert_eq!(status["stage"], "canary", "{status}");
        assert_ne!(status["gate"], "pass", "{status}");
        (with_data(&status) >= with_data(&lost) + 3_000).then_some(status)
    });
    assert_eq!(later["evidence"]["queries"][0]["value"], Value::Null);
    let (_, page) = http_get(scene.admin(), "/metrics");
    assert!(
        !page.contains("plimsoll_rollout_query_value{entry=\"good\""),
        "{page}"
    );

    // The server is back. A new number shows that it has read the page again; it would also answer
    // with the old one.
    desk.set(Some(4.0));
    server.start_again();
    until_true("the new number", || {
        scene.status("good")["evidence"]["queries"][0]["value"] == 4.0
    });
    scene.promote("good", "enforce");
    assert_eq!(
        scene.last_change("good", "promote")["evidence"]["queries"][0]["value"],
        4.0
    );

    // A series without a value is unknown, not zero.
    let (code, output) = scene.command(&["rollout", "abort", "good", "--reason", "next trial"]);
    assert_eq!(code, 0, "{output}");
    desk.set(None);
    waits_for(&scene, "tickets is unknown: the query yields no series");
    desk.set(Some(0.0));
    scene.promote("good", "canary");

    // A number above the maximum ends the canary.
    desk.set(Some(31.0));
    let change = scene.last_change("good", "breach");
    assert_eq!(
        (&change["from"], &change["to"]),
        (&"canary".into(), &"shadow".into())
    );
    assert_eq!(change["why"][0], "tickets is 31, above the maximum of 20");
    assert_eq!(change["evidence"]["queries"][0]["value"], 31.0);
    let (code, output) = scene.command(&["rollout", "promote", "good"]);
    assert!(
        code == 1 && output.contains("tickets is 31, above the maximum of 20"),
        "{output}"
    );
    let (_, page) = http_get(scene.admin(), "/metrics");
    for wanted in [
        "plimsoll_rollout_query_value{entry=\"good\",query=\"tickets\"} 31",
        "plimsoll_rollout_queries_total{result=\"failed\"} ",
    ] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
}
