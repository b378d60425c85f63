//! Requests/s over kept-alive HTTP/1.1 connections on the loopback: one thread serves, another
//! sends.

use std::time::{Duration, Instant};

use axum::Router;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tower_governor::GovernorLayer;

use crate::figures::{NO_LAYER, OURS, PEER};
use crate::layers::{self, PATH, TENANT};
use crate::ours::Ours;
use crate::rounds::median;

const CONNECTIONS: usize = 32;
const WINDOW: Duration = Duration::from_millis(400);

pub(crate) fn measure(ours: &Ours, rounds: usize) -> Vec<(String, f64)> {
    let server = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let sender = Builder::new_current_thread().enable_all().build().unwrap();
    let services = [
        (NO_LAYER, serve(&server, layers::plain())),
        (
            OURS[0],
            serve(&server, layers::on_routes(layers::ours(ours))),
        ),
        (
            PEER[0],
            serve(
                &server,
                layers::on_routes(GovernorLayer::new(layers::peer())),
            ),
        ),
    ];
    let mut connections: Vec<Vec<TcpStream>> = services
        .iter()
        .map(|(_, port)| sender.block_on(connect(*port)))
        .collect();
    let mut figures = vec![Vec::new(); services.len()];
    // The first round only warms up.
    for round in 0..=rounds {
        for (connections, figures) in connections.iter_mut().zip(&mut figures) {
            let from = Instant::now();
            let answers = sender.block_on(exchange(connections));
            if round > 0 {
                figures.push(answers as f64 / from.elapsed().as_secs_f64());
            }
        }
    }
    services
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .zip(figures.into_iter().map(median))
        .collect()
}

fn serve(runtime: &Runtime, service: Router) -> u16 {
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let port = listener.local_addr().unwrap().port();
    runtime.spawn(async move { axum::serve(listener, service).await });
    port
}

async fn connect(port: u16) -> Vec<TcpStream> {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let connection = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        connection.set_nodelay(true).unwrap();
        connections.push(connection);
    }
    connections
}

/// Sends requests on all connections for a window, one after the other on each; returns the number
/// of answers.
async fn exchange(connections: &mut Vec<TcpStream>) -> usize {
    let until = Instant::now() + WINDOW;
    let mut open = JoinSet::new();
    for (number, connection) in connections.drain(..).enumerate() {
        open.spawn(requests(connection, number, until));
    }
    let mut answers = 0;
    while let Some(ended) = open.join_next().await {
        let (connection, answered) = ended.unwrap();
        connections.push(connection);
        answers += answered;
    }
    answers
}

async fn requests(mut connection: TcpStream, number: usize, until: Instant) -> (TcpStream, usize) {
    let head = format!("GET {PATH} HTTP/1.1\r\nhost: shop\r\naccept: */*");
    let request = format!("{head}\r\n{TENANT}: tenant-{number}\r\n\r\n");
    let (mut answer, mut answered) = (Vec::with_capacity(1024), 0);
    while Instant::now() < until {
        connection.write_all(request.as_bytes()).await.unwrap();
        answer.clear();
        // The answer has no body.
        while !answer.ends_with(b"\r\n\r\n") {
            let read = connection.read_buf(&mut answer).await.unwrap();
            assert_ne!(read, 0, "the server closed the connection");
        }
        assert!(
            answer.starts_with(b"HTTP/1.1 200"),
            "{}",
            String::from_utf8_lossy(&answer)
        );
        answered += 1;
    }
    (connection, answered)
}
