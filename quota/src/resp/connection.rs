//! One connection: reads what the client has sent, runs it as one batch, and sends all replies
//! together.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::Port;
use super::batch::{Batch, End, Rules};
use super::input::COMMAND_BYTES_MAX;
use super::session::Session;

const INPUT_BYTES: usize = 4 * 1024;
/// Bytes of replies that are sent before more commands are answered.
pub(super) const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// Maximum time until a client has read its replies.
const WRITE_MAX: Duration = Duration::from_secs(10);
/// Interval of checks of a connection. A client that does not authenticate has two intervals. One that
/// does not finish a command has between one and two, and one more if it was answered since the last
/// check.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Maximum checks without new bytes, because dead peers leave connections open: two hours.
const IDLE_LOOKS_MAX: u32 = 720;

#[derive(Debug)]
enum Ended {
    /// The client closed it, requested its end, sent invalid data, or has a revoked token; or the
    /// server stops.
    Closed,
    /// The client did not read its replies in time, or was late or idle for too long.
    Slow,
}

#[derive(Debug)]
struct Buffers {
    input: BytesMut,
    output: BytesMut,
    /// Maximum number of bytes in one read.
    chunk: usize,
    /// True if something was read, and if a command was complete, since the last check.
    is_active: bool,
    is_answered: bool,
    /// Checks in a row without new bytes.
    idle_looks: u32,
    /// Checks in a row without a token, or with a started command and no complete one.
    late_looks: u32,
}

/// Answers the commands of one connection until its end, or until `shutdown` is cancelled. Commands
/// read by then are answered.
pub(super) async fn converse<S>(
    mut stream: S,
    peer: SocketAddr,
    port: &Port,
    shutdown: &CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (number, open) = port.counters.on_open();
    let mut session = Session::new(number, peer, port.needs_token);
    // An error means that the client has disconnected.
    if let Ok(Ended::Slow) = follow(&mut stream, &mut session, port, shutdown).await {
        port.counters.slow.fetch_add(1, Ordering::Relaxed);
    }
    drop(open);
    // Sends the end, also of TLS, so that a reset does not lose the last replies.
    let _ = timeout(WRITE_MAX, stream.shutdown()).await;
}

async fn follow<S>(
    stream: &mut S,
    session: &mut Session,
    port: &Port,
    shutdown: &CancellationToken,
) -> io::Result<Ended>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut buffers = Buffers::new();
    let mut answers = Vec::new();
    let mut look = pin!(sleep_until(Instant::now() + LOOK_EVERY));
    let mut closing = pin!(shutdown.cancelled());
    loop {
        buffers.make_room();
        // Before the read, as is the check below: a client that never stops sending is ended, too.
        if shutdown.is_cancelled() {
            return Ok(Ended::Closed);
        }
        tokio::select! {
            biased;
            () = look.as_mut() => {
                if session.is_revoked(&port.access) {
                    return Ok(Ended::Closed);
                }
                if buffers.look(session) {
                    return Ok(Ended::Slow);
                }
                look.as_mut().reset(Instant::now() + LOOK_EVERY);
                continue;
            }
            read = stream.read_buf(&mut buffers.input) => {
                if read? == 0 {
                    return Ok(Ended::Closed);
                }
                buffers.on_read();
            }
            () = closing.as_mut() => return Ok(Ended::Closed),
        }
        loop {
            let time = port.engine.now();
            let rules = Rules {
                access: &port.access,
                leases: &port.leases,
                time,
                at_ahead_max_ms: port.at_ahead_max_ms,
            };
            let batch = Batch::read(&buffers.input, session, rules);
            answers.clear();
            if !batch.operations.is_empty() {
                port.engine
                    .run(time.ms, &batch.operations, &mut answers)
                    .await;
                batch.note_leases(&answers, session, &port.leases);
            }
            let (length, end) = (batch.length, batch.end);
            port.counters
                .add(&batch.reply(&answers, &mut buffers.output));
            buffers.advance(length);
            if end == End::Info {
                port.info().write(session.version, &mut buffers.output);
            }
            let is_last = matches!(end, End::NeedsInput | End::Close);
            if is_last || buffers.output.len() >= OUTPUT_BYTES_MAX {
                // A client that does not read its replies has no more of its commands answered.
                match timeout(WRITE_MAX, stream.write_all(&buffers.output)).await {
                    Ok(written) => written?,
                    Err(_) => return Ok(Ended::Slow),
                }
                buffers.clear_output();
            }
            match end {
                End::Close => return Ok(Ended::Closed),
                End::NeedsInput => break,
                // Clients that send much take turns with the others.
                End::Full | End::Info => yield_now().await,
            }
        }
    }
}

impl Buffers {
    fn new() -> Self {
        Self {
            input: BytesMut::new(),
            output: BytesMut::new(),
            chunk: INPUT_BYTES,
            is_active: true,
            is_answered: false,
            idle_looks: 0,
            late_looks: 0,
        }
    }

    /// Makes room for the next bytes. The buffer holds the beginning of one command, which is
    /// shorter than its bound.
    fn make_room(&mut self) {
        if self.input.capacity() - self.input.len() < self.chunk / 2 {
            self.input.reserve(self.chunk);
        }
    }

    fn on_read(&mut self) {
        self.is_active = true;
        if self.input.len() == self.input.capacity() {
            self.chunk = (2 * self.chunk).min(COMMAND_BYTES_MAX);
        }
    }

    fn advance(&mut self, length: usize) {
        self.is_answered |= length > 0;
        self.input.advance(length);
    }

    /// Clears the sent replies. One long reply must not keep its memory.
    fn clear_output(&mut self) {
        if self.output.capacity() > 2 * OUTPUT_BYTES_MAX {
            self.output = BytesMut::new();
        }
        self.output.clear();
    }

    /// Checks the client, and frees the memory of an idle connection. Returns true if the client was
    /// late or idle for too long.
    fn look(&mut self, session: &Session) -> bool {
        // Neither bytes without a token nor a command that never ends keep a client connected.
        let is_late = !session.is_trusted()
            || !std::mem::take(&mut self.is_answered) && !self.input.is_empty();
        self.late_looks = if is_late { self.late_looks + 1 } else { 0 };
        if std::mem::take(&mut self.is_active) {
            self.idle_looks = 0;
        } else {
            self.idle_looks += 1;
            self.output = BytesMut::new();
            if self.input.is_empty() {
                (self.input, self.chunk) = (BytesMut::new(), INPUT_BYTES);
            }
        }
        self.late_looks > 1 || self.idle_looks >= IDLE_LOOKS_MAX
    }
}
