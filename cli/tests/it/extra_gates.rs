//! Extra gates on real processes and a real Prometheus server: what it says passes and ends a canary, and while it is away
//! or has nothing to say everything stays where it is.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::process::{http_get, until};
use crate::processes::alone;
use crate::prometheus::RealPrometheus;
use crate::rollout::Scene;

/// A page of metrics with one number on it, or none.
#[derive(Clone)]
struct HelpDesk {
    tickets: Arc<Mutex<Option<f64>>>,
    address: SocketAddr,
}

impl HelpDesk {
    fn open(tickets: f64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let desk = Self { tickets: Arc::new(Mutex::new(Some(tickets))), address };
        let told = desk.clone();
        // It ends with the tests.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let _ = stream.read(&mut [0; 4_096]);
                let tickets = *told.tickets.lock().unwrap();
                let body = tickets.map_or(String::new(), |tickets| format!("tickets_open {tickets}\n"));
                let head = format!(
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all((head + &body).as_bytes());
            }
        });
        desk
    }

    fn has(&self, tickets: Option<f64>) {
        *self.tickets.lock().unwrap() = tickets;
    }
}

/// The gates of the scene are wide open, but for the one that asks the server: nothing is refused, however busy the machine.
fn policy(url: &str) -> String {
    format!(
        "buckets:\n  good: {{ limit: unlimited, mode: shadow }}\n  tight: {{ limit: unlimited }}\n  \
         idle: {{ limit: 1000 }}\nrollout:\n  canary_percent: 50\n  shadow: {{ min_days: 0.00002, window_h: 0.002 }}\n  \
         canary: {{ min_hours: 0.0005, window_min: 0.1, max_p99_delta_ms: 20000 }}\n  min_samples: 40\n  \
         queries: [ {{ name: tickets, url: '{url}', query: 'sum(tickets_open)', max: 20 }} ]\n"
    )
}

/// What speaks against the next stage, once it is this alone.
fn waits_for(scene: &Scene, what: &str) -> Value {
    until(&format!("`{what}` to be all that is missing"), || {
        let status = scene.status("good");
        let why = status["why"].as_array().unwrap();
        (why.len() == 1 && why[0].as_str().unwrap().starts_with(what)).then_some(status)
    })
}

#[test]
fn what_a_real_server_says_is_a_gate_and_one_that_is_lost_waits() {
    let _alone = alone();
    let desk = HelpDesk::open(3.0);
    let test = "extra_gates::what_a_real_server_says_is_a_gate_and_one_that_is_lost_waits";
    let Some(mut server) = RealPrometheus::start(test, Some(desk.address)) else { return };
    let scene = Scene::start_with(&policy(&server.url()), &["--query-every", "200ms"]);

    // It is asked, and what it says is kept as evidence.
    scene.promote("good", "canary");
    let change = scene.last_change("good", "promote");
    let query = &change["evidence"]["queries"][0];
    assert_eq!(
        (&query["name"], &query["value"], &query["max"]),
        (&"tickets".into(), &3.0.into(), &20.0.into())
    );
    let (_, said) = scene.command(&["rollout", "history", "good"]);
    assert!(said.contains("    tickets is 3, above the maximum of 20 (answered "), "{said}");

    // It is lost: the canary stays what it is, and nothing goes further, with all else in order.
    server.stop();
    let lost = waits_for(&scene, "tickets is unknown: the server cannot be reached");
    assert_eq!((&lost["gate"], &lost["stage"]), (&"inconclusive".into(), &"canary".into()));
    let (code, said) = scene.command(&["rollout", "promote", "good"]);
    assert!(
        code == Some(1)
            && said.contains("the gate from canary to enforce is not passed: tickets is unknown"),
        "{said}"
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
    assert!(!page.contains("plimsoll_rollout_query_value{entry=\"good\""), "{page}");

    // It is back: on it goes. A new number, for it would answer with an old one too, and must have seen this one to miss it.
    desk.has(Some(4.0));
    server.start_again();
    until("the new number", || {
        (scene.status("good")["evidence"]["queries"][0]["value"] == 4.0).then_some(())
    });
    scene.promote("good", "enforce");
    assert_eq!(scene.last_change("good", "promote")["evidence"]["queries"][0]["value"], 4.0);

    // A number that is not there any more is not zero.
    let (code, said) = scene.command(&["rollout", "abort", "good", "--reason", "next trial"]);
    assert_eq!(code, Some(0), "{said}");
    desk.has(None);
    waits_for(&scene, "tickets is unknown: the query yields no series");
    desk.has(Some(0.0));
    scene.promote("good", "canary");

    // One that is too high ends the canary by itself.
    desk.has(Some(31.0));
    let change = scene.last_change("good", "breach");
    assert_eq!((&change["from"], &change["to"]), (&"canary".into(), &"shadow".into()));
    assert_eq!(change["why"][0], "tickets is 31, above the maximum of 20");
    assert_eq!(change["evidence"]["queries"][0]["value"], 31.0);
    let (code, said) = scene.command(&["rollout", "promote", "good"]);
    assert!(code == Some(1) && said.contains("tickets is 31, above the maximum of 20"), "{said}");
    let (_, page) = http_get(scene.admin(), "/metrics");
    for wanted in [
        "plimsoll_rollout_query_value{entry=\"good\",query=\"tickets\"} 31",
        "plimsoll_rollout_queries_total{result=\"failed\"} ",
    ] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
}
