//! Peers that break off in a handshake, a frame, a head or a command, on as many connections as a
//! process takes: its memory stays below the limit of the chart.

use std::fs;
use std::net::SocketAddr;

use plimsoll_testing::fleet::metric;
use plimsoll_testing::process::{FREE, FREE_SIDECAR, Process, http, until_true};
use plimsoll_testing::turns::{IDLE, turn};
use plimsoll_tls::testing::Authority;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Runtime;

use super::tiers::{DOMAIN, Files, aggregator, aggregator_of, certs};

const MIB: u64 = 1 << 20;

/// Connects from another loopback address for every eight connections, and sends these bytes.
async fn open(port: SocketAddr, number: usize, bytes: &[u8]) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    let source = [127, 1, (number / 2_048) as u8, (number / 8 % 256) as u8];
    socket.bind(SocketAddr::from((source, 0))).unwrap();
    let stream = socket.connect(port).await.unwrap();
    // Fails if the connection is refused, or takes no more.
    let _ = stream.try_write(bytes);
    stream
}

fn resident(process: &Process) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * 1024
}

/// Records of a TLS message of almost the maximum length, without its end.
fn half_handshake() -> Vec<u8> {
    let message = [&[1, 0, 0xEA, 0x60, 3, 3][..], &[7; 59_000]].concat();
    let record =
        |part: &[u8]| [&[0x16, 3, 1], &(part.len() as u16).to_be_bytes()[..], part].concat();
    message.chunks(16_000).flat_map(record).collect()
}

#[test]
fn unfinished_connections_fit_in_charts() {
    let _turn = turn(IDLE);
    let (files, authority) = (Files::new(), Authority::new(DOMAIN));
    let directory = files.issue("aggregator", &authority, aggregator_of("zone-a"));
    let aggregator = aggregator("zone-a", "one", "https://127.0.0.1:1", &certs(&directory));
    let data = files.path("quota");
    let quota = Process::start(&[&["quota", "--data", data.to_str().unwrap()], &FREE[..]].concat());
    let sidecar = Process::start(&[&["sidecar", "--zone", "z"], &FREE_SIDECAR[..]].concat());

    let frame = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\x3f\xff\x01\0\0\0\0\x01",
        &[7; 16_000][..],
    ]
    .concat();
    let fields: String = (0..60)
        .map(|number| format!("x{number}: {}\r\n", "a".repeat(900)))
        .collect();
    let head = format!("GET /check HTTP/1.1\r\nhost: a\r\n{fields}").into_bytes();
    let command = [&b"*2\r\n$3\r\nGET\r\n$60000\r\n"[..], &[b'a'; 59_000]].concat();
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: hard,
            maximum: hard,
        },
    )
    .unwrap();
    let runtime = Runtime::new().unwrap();
    let _guard = runtime.enter();
    let mut held = Vec::new();
    for (process, port, name, count, bytes, limit) in [
        // A million names take 464 MiB of 704.
        (
            &aggregator,
            "listen",
            "grpc",
            2_048,
            half_handshake(),
            704 - 464,
        ),
        (&sidecar, "listen", "rls", 512, frame, 192),
        (&sidecar, "http", "http", 2_048, head, 192),
        // The cache takes 256 MiB of 768.
        (&quota, "listen", "resp", 4_096, command, 768 - 256),
    ] {
        let before = if process.id() == sidecar.id() {
            0
        } else {
            resident(process)
        };
        let port = process.address(port);
        for number in 0..count + count / 8 {
            held.push(runtime.block_on(open(port, number, &bytes)));
        }
        until_true("every place to be taken", || {
            let page = process.metrics("admin");
            let pending = metric(
                &page,
                "plimsoll_connections_pending",
                &format!("port=\"{name}\""),
            );
            // Heads without room are closed. An answered head follows all of them.
            let is_answered = name == "http" && http(port, "GET", "/check", &[]).is_ok();
            pending >= count as f64 || is_answered
        });
        let mib = (resident(process) - before) / MIB;
        assert!(mib < limit, "{name}: {mib} MiB");
    }
}
