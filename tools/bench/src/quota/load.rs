//! The load on a server of the Redis protocol: connections that send a prepared batch, wait for its
//! replies, and send the next. It is the same for a quota server and for Redis.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::task::JoinSet;

use super::commands::Commands;
use crate::sidecar::cores::{LOAD, on, on_core};

const LONGEST_US: u64 = 60_000_000;
const READ_BYTES: usize = 64 * 1024;

#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) connections: usize,
    /// Core of the load; `None` for any.
    pub(super) core: Option<usize>,
    /// Time before the measured time.
    pub(super) warm_up: Duration,
    pub(super) during: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Replies {
    pub(super) per_second: f64,
    pub(super) median_us: f64,
    pub(super) p99_us: f64,
    /// Error replies, at any time.
    pub(super) errors: u64,
}

struct Counted {
    replies: u64,
    errors: u64,
    took: Histogram<u64>,
}

pub(super) fn send(to: SocketAddr, commands: &Arc<Commands>, shape: Shape) -> Replies {
    let counted = on(shape.core, || {
        let commands = Arc::clone(commands);
        // A separate thread inherits the core.
        thread::spawn(move || runtime().block_on(run(to, commands, shape)))
            .join()
            .unwrap()
    });
    let total = counted.into_iter().reduce(|mut total, each| {
        total.replies += each.replies;
        total.errors += each.errors;
        total.took.add(each.took).unwrap();
        total
    });
    let total = total.unwrap();
    Replies {
        per_second: total.replies as f64 / shape.during.as_secs_f64(),
        median_us: total.took.value_at_quantile(0.5) as f64,
        p99_us: total.took.value_at_quantile(0.99) as f64,
        errors: total.errors,
    }
}

/// Sends every batch over some connections, again while some of it is refused, and returns the
/// number of refusals.
pub(super) fn send_all(to: SocketAddr, commands: &Arc<Commands>, connections: usize) -> u64 {
    on_core(LOAD, || {
        let commands = Arc::clone(commands);
        thread::spawn(move || {
            runtime().block_on(async {
                let mut tasks = JoinSet::new();
                for from in 0..connections {
                    let commands = Arc::clone(&commands);
                    tasks.spawn(async move {
                        let mut connection = Connection::open(to).await.unwrap();
                        for at in (from..commands.batches()).step_by(connections) {
                            loop {
                                let before = connection.errors;
                                connection
                                    .ask(commands.batch(at), commands.pipeline())
                                    .await
                                    .unwrap();
                                if connection.errors == before {
                                    break;
                                }
                            }
                        }
                        connection.errors
                    });
                }
                tasks.join_all().await.into_iter().sum()
            })
        })
        .join()
        .unwrap()
    })
}

fn runtime() -> runtime::Runtime {
    runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

async fn run(to: SocketAddr, commands: Arc<Commands>, shape: Shape) -> Vec<Counted> {
    let mut tasks = JoinSet::new();
    let mut connections = Vec::new();
    for _ in 0..shape.connections {
        connections.push(Connection::open(to).await.unwrap());
    }
    let begin = Instant::now() + shape.warm_up;
    let end = begin + shape.during;
    let apart = commands.batches() / shape.connections;
    for (nth, mut connection) in connections.into_iter().enumerate() {
        let commands = Arc::clone(&commands);
        tasks.spawn(async move {
            let mut counted = Counted {
                replies: 0,
                errors: 0,
                took: Histogram::new_with_bounds(1, LONGEST_US, 3).unwrap(),
            };
            let mut at = nth * apart;
            let mut asked = Instant::now();
            while asked < end {
                connection
                    .ask(commands.batch(at), commands.pipeline())
                    .await
                    .unwrap();
                let answered = Instant::now();
                if begin <= asked && answered <= end {
                    counted.replies += commands.pipeline() as u64;
                    counted
                        .took
                        .saturating_record((answered - asked).as_micros() as u64);
                }
                asked = answered;
                at = (at + 1) % commands.batches();
            }
            counted.errors = connection.errors;
            counted
        });
    }
    tasks.join_all().await
}

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    errors: u64,
    /// True if the next byte begins a reply.
    is_first: bool,
}

impl Connection {
    async fn open(to: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: vec![0; READ_BYTES],
            errors: 0,
            is_first: true,
        })
    }

    /// Sends a batch and waits for as many replies. Each reply of these commands is one line.
    async fn ask(&mut self, mut batch: &[u8], replies: usize) -> io::Result<()> {
        while !batch.is_empty() {
            match self.stream.try_write(batch) {
                Ok(written) => batch = &batch[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stream.writable().await?
                }
                Err(error) => return Err(error),
            }
        }
        let mut left = replies;
        while left > 0 {
            self.stream.readable().await?;
            match self.stream.try_read(&mut self.buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => left -= self.count(read),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn count(&mut self, read: usize) -> usize {
        let mut ended = 0;
        for byte in &self.buffer[..read] {
            self.errors += u64::from(self.is_first && *byte == b'-');
            self.is_first = *byte == b'\n';
            ended += usize::from(self.is_first);
        }
        ended
    }
}
