//! Peers that connect and stay silent, and a process that runs out of descriptors.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};

use crate::fleet::{Fleet, TENANTS, metric, policy};
use crate::process::{PATIENCE, Process, http, http_get, message, until};
use crate::turns::{IDLE, turn};

const FREE: [&str; 4] = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
/// The start of an HTTP/2 connection with empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// Headers of a stream: POST /plimsoll.exchange.v1.Exchange/Converse without a report, in HPACK literals.
fn stream_without_greeting() -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    for (index, value) in [(0x44, "/plimsoll.exchange.v1.Exchange/Converse"), (0x41, "x")] {
        block.push(index);
        block.push(value.len() as u8);
        block.extend_from_slice(value.as_bytes());
    }
    block.extend_from_slice(b"\x5f\x10application/grpc");
    let mut frame = vec![0, 0, block.len() as u8, 0x01, 0x04, 0, 0, 0, 1];
    frame.extend_from_slice(&block);
    [PREFACE, &frame].concat()
}

/// Connects, sends these bytes and then answers pings, if any; waits until the other end closes the connection.
fn closes(address: SocketAddr, first: &[u8], answers_pings: bool) -> bool {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(first).unwrap();
    let end = Instant::now() + PATIENCE;
    let mut seen = Vec::new();
    while Instant::now() < end {
        stream.set_read_timeout(Some(end - Instant::now() + Duration::from_millis(1))).unwrap();
        let mut bytes = [0; 1024];
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(count) => seen.extend_from_slice(&bytes[..count]),
            Err(error) => return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
        while answers_pings && seen.len() >= 9 {
            let length = u32::from_be_bytes([0, seen[0], seen[1], seen[2]]) as usize;
            if seen.len() < 9 + length {
                break;
            }
            let frame: Vec<u8> = seen.drain(..9 + length).collect();
            if frame[3] == 6 && frame[4] == 0 {
                let mut pong = frame;
                pong[4] = 1;
                // Fails if the connection is closed, which the next read finds.
                let _ = stream.write_all(&pong);
            }
        }
    }
    false
}

#[test]
fn silent_connections_are_closed_at_every_step_to_the_greeting_and_at_the_admin_port() {
    let _turn = turn(IDLE);
    let fleet = Fleet::start(&policy(300, "enforce", false));
    let body = b"POST /kill/on HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    let half_head = &b"GET /status HTTP/1.1\r\nhost: 127"[..];
    let kept_alive = &b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"[..];
    let mut steps = Vec::new();
    for process in [&fleet.controller, &fleet.zones[0].aggregator] {
        let (grpc, admin) = (process.address("listen"), process.address("admin"));
        for first in [b"".to_vec(), b"PRI * HT".to_vec(), PREFACE.to_vec(), stream_without_greeting()] {
            steps.push((grpc, first.clone(), false));
            steps.push((grpc, first, true));
        }
        for first in [&b""[..], half_head, kept_alive, body] {
            steps.push((admin, first.to_vec(), false));
        }
    }
    std::thread::scope(|scope| {
        let waiting: Vec<_> =
            steps.iter().map(|step| (step, scope.spawn(move || closes(step.0, &step.1, step.2)))).collect();
        for ((address, first, pings), closed) in waiting {
            let first = String::from_utf8_lossy(first);
            assert!(closed.join().unwrap(), "{address} keeps a connection after {first:?}, pings: {pings}");
        }
    });
    let page = http_get(fleet.zones[0].aggregator.address("admin"), "/metrics").1;
    assert!(metric(&page, "plimsoll_connections_timed_out_total", "port=\"grpc\"") > 0.0, "{page}");
    assert_eq!(metric(&page, "plimsoll_connections_pending", "port=\"grpc\""), 0.0);
    // Children that have greeted keep their connections.
    assert_eq!(metric(&page, "plimsoll_children", ""), 2.0);
    for service in fleet.services() {
        let lost = service.log().iter().any(|line| line.contains("lost"));
        assert!(!lost, "{:?}", service.log());
    }
}

#[test]
fn connections_without_a_greeting_are_bounded_by_address_and_leave_room_for_children() {
    let _turn = turn(IDLE);
    let fleet = Fleet::without_services(&policy(300, "enforce", false), TENANTS);
    let parent = format!("http://{}", fleet.controller.address("listen"));
    let flags = ["aggregator", "--zone", "zone-c", "--controller", &parent, "--pending-max", "20"];
    let aggregator = Process::start(&[&flags[..], &FREE].concat());
    let (grpc, admin) = (aggregator.address("listen"), aggregator.address("admin"));
    let page = || http_get(admin, "/metrics").1;
    let silent: Vec<TcpStream> = (0..30).map(|_| TcpStream::connect(grpc).unwrap()).collect();
    until("20 connections to be refused", || {
        (metric(&page(), "plimsoll_connections_refused_total", "port=\"grpc\"") == 20.0).then_some(())
    });
    assert_eq!(metric(&page(), "plimsoll_connections_pending", "port=\"grpc\""), 10.0);
    aggregator
        .wait_for(|line| message(line).is_some_and(|text| text.starts_with("connection refused: too many")));
    drop(silent);
    let url = format!("http://{grpc}");
    let free = ["--listen", "127.0.0.1:0"];
    let services: Vec<Process> = (0..15)
        .map(|_| {
            Process::start(&[&["service", "--zone", "zone-c", "--aggregator", &url], &free[..]].concat())
        })
        .collect();
    until("all services to be connected", || {
        (metric(&page(), "plimsoll_children", "") == services.len() as f64).then_some(())
    });
    assert_eq!(metric(&page(), "plimsoll_connections_pending", "port=\"grpc\""), 0.0);
}

#[test]
fn lack_of_descriptors_is_reported_and_over_once_there_are_some() {
    let _turn = turn(IDLE);
    let fleet = Fleet::start(&policy(300, "enforce", false));
    let aggregator = &fleet.zones[0].aggregator;
    let raised = aggregator.wait_for(|line| message(line) == Some("limit of open files raised"));
    let hard = getrlimit(Resource::Nofile).maximum.unwrap();
    assert_eq!(raised["fields"]["limit"], hard);
    assert_eq!(raised["fields"]["children"], hard - 256);
    let (grpc, admin) = (aggregator.address("listen"), aggregator.address("admin"));
    aggregator.limit(Resource::Nofile, Some(aggregator.descriptors()));
    let waiting: Vec<TcpStream> = (0..5).map(|_| TcpStream::connect(grpc).unwrap()).collect();
    let failing = aggregator.wait_for(|line| {
        message(line).is_some_and(|text| text.starts_with("connections cannot be accepted"))
    });
    assert!(failing.to_string().contains("ulimit -n"), "{failing}");
    aggregator.limit(Resource::Nofile, Some(hard));
    aggregator.wait_for(|line| message(line) == Some("connections are accepted again"));
    let page = http_get(admin, "/metrics").1;
    let failures = metric(&page, "plimsoll_accept_failures_total", "port=\"grpc\"");
    assert!(failures >= 1.0, "{page}");
    assert_eq!(metric(&page, "plimsoll_accept_failing", ""), 0.0);
    assert_eq!(metric(&page, "plimsoll_descriptors_limit", ""), hard as f64);
    drop(waiting);
    // One line for all failures, and children that were connected stayed so.
    let lines =
        aggregator.log().iter().filter(|line| line.contains("connections cannot be accepted")).count();
    assert_eq!(lines, 1);
    assert_eq!(metric(&page, "plimsoll_children", ""), 2.0);
    assert_eq!(http(admin, "GET", "/healthz", &[]).unwrap().0, 200);
}
