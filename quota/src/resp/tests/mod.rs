//! Tests of the protocol without sockets: a client writes bytes, and compares the bytes that it
//! reads.

mod bounds;
mod replies;
mod rights;
mod tokens;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use plimsoll_admin::access::{Access, Rules, TokenFile, TokenHash};
use plimsoll_net::{Connections, Protection};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Port, connection};
use crate::args::Durability;
use crate::engine::{Engine, Settings};
use crate::leases::Leases;

struct Served {
    port: Arc<Port>,
    shutdown: CancellationToken,
    _directory: TempDir,
}

fn token(number: u32) -> String {
    format!("plimsoll_{number:043}")
}

impl Served {
    fn open() -> Self {
        Self::with(&[])
    }

    /// Serves clients that have to present one of these tokens, if there are any.
    fn with(tokens: &[u32]) -> Self {
        Self::with_lines(
            &tokens
                .iter()
                .map(|number| (*number, "viewer", ""))
                .collect::<Vec<_>>(),
        )
    }

    /// Serves clients with tokens of these roles and rights.
    fn with_lines(tokens: &[(u32, &str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tokens");
        let lines: String = tokens
            .iter()
            .map(|(number, role, rights)| {
                format!(
                    "name{number} {role} {} {rights}\n",
                    TokenHash::of(&token(*number))
                )
            })
            .collect();
        let access = if tokens.is_empty() {
            Access::default()
        } else {
            std::fs::write(&file, lines).unwrap();
            Access::new(Rules {
                tokens: Some(TokenFile::open(&file).unwrap()),
                ..Rules::default()
            })
        };
        let settings = Settings {
            data: directory.path().join("data"),
            durability: Durability::None,
            cache_bytes: 16 << 20,
        };
        let port = Port {
            engine: Engine::open(&settings).unwrap(),
            counters: Arc::default(),
            needs_token: access.tokens().is_some(),
            access,
            leases: Leases::default(),
            at_ahead_max_ms: 3_600_000,
            protection: Protection::Plain,
            connections: Connections::default(),
        };
        Self {
            port: port.into(),
            shutdown: CancellationToken::new(),
            _directory: directory,
        }
    }

    fn connect(&self) -> (DuplexStream, JoinHandle<()>) {
        let (client, server) = tokio::io::duplex(1 << 20);
        let (port, shutdown) = (self.port.clone(), self.shutdown.clone());
        let peer = SocketAddr::from(([10, 0, 0, 1], 1));
        let connection =
            tokio::spawn(async move { connection::converse(server, peer, &port, &shutdown).await });
        (client, connection)
    }

    /// Sends `pieces` one after another, ends the connection by `QUIT`, and returns the replies
    /// before that to `QUIT`.
    async fn ask<'a>(&self, pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
        let (mut client, connection) = self.connect();
        let mut replies = Vec::new();
        for piece in pieces {
            // A server that has closed the connection reads no more pieces.
            if client.write_all(piece).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let _ = client.write_all(&command("QUIT")).await;
        client.read_to_end(&mut replies).await.unwrap();
        connection.await.unwrap();
        let replies = String::from_utf8(replies).unwrap();
        replies
            .strip_suffix("+OK\r\n")
            .unwrap_or(&replies)
            .to_owned()
    }

    fn slow(&self) -> u64 {
        self.port.counters.slow.load(Ordering::Relaxed)
    }

    async fn reply(&self, text: &str) -> String {
        self.ask([command(text).as_slice()]).await
    }
}

fn command(text: &str) -> Vec<u8> {
    let words: Vec<&[u8]> = text.split_ascii_whitespace().map(str::as_bytes).collect();
    array(&words)
}

fn array(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
