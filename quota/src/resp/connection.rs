//! One connection: reads what the client has sent, runs it as one batch, and sends all replies at once.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::Port;
use super::batch::{Batch, End, Rules};
use super::info;
use super::input::COMMAND_BYTES_MAX;
use super::session::Session;

/// The bytes of commands that a connection holds at first.
const INPUT_BYTES: usize = 4 * 1024;
/// The bytes of replies that are sent before further commands are answered.
pub(super) const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// The longest time until a client has read its replies.
const WRITE_MAX: Duration = Duration::from_secs(10);
/// The interval at which a connection is looked at: a client that does not authenticate, or begins a command without
/// finishing it, has between one and two of them, and one more if it was answered since the look before.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The looks without a command after which a connection is closed, as dead peers leave it behind: two hours.
const IDLE_LOOKS_MAX: u32 = 720;

/// The cause of a connection's end.
#[derive(Debug)]
enum Ended {
    /// The client closed it, asked for its end, or sent what cannot be followed; or the server stops.
    Closed,
    /// The client was too slow.
    Slow,
}

/// The bytes on both ways, and how long the client has sent nothing.
#[derive(Debug)]
struct Buffers {
    input: BytesMut,
    output: BytesMut,
    /// The bytes that are read at once, at most.
    chunk: usize,
    /// True if something was read since the last look.
    is_active: bool,
    idle_looks: u32,
    /// True if a command was whole since the last look.
    is_answered: bool,
    /// The looks in a row between which no command was whole, though one has begun.
    unfinished_looks: u32,
    /// The looks at which the client had presented no token.
    anonymous_looks: u32,
}

/// Answers the commands of one connection until its end, or until `shutdown` is cancelled: what was read by then is
/// answered.
pub(super) async fn converse<S>(mut stream: S, peer: SocketAddr, port: &Port, shutdown: &CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (number, open) = port.counters.on_open();
    let mut session = Session::new(number, peer, port.needs_token);
    match follow(&mut stream, &mut session, port, shutdown).await {
        // An error is the client's: it has gone.
        Ok(Ended::Closed) | Err(_) => {}
        Ok(Ended::Slow) => port.counters.on_slow(),
    }
    drop(open);
    // Sends the end, also of TLS, so that the last replies are not lost in a reset.
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
        // A client that never stops sending ends with the server, too, and is looked at.
        if shutdown.is_cancelled() {
            return Ok(Ended::Closed);
        }
        tokio::select! {
            biased;
            () = look.as_mut() => {
                if session.is_revoked(&port.access) {
                    return Ok(Ended::Closed);
                }
                if buffers.is_slow(session) {
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
            let Port { access, leases, at_ahead_max_ms, .. } = port;
            let rules = Rules { access, leases, time, at_ahead_max_ms: *at_ahead_max_ms };
            let mut batch = Batch::read(&buffers.input, session, rules);
            answers.clear();
            if !batch.operations.is_empty() {
                port.engine.run(time.ms, &batch.operations, &mut answers).await;
                batch.note_leases(&answers, session, leases);
            }
            let (length, end) = (batch.length, std::mem::take(&mut batch.end));
            port.counters.add(&batch.reply(&answers, &mut buffers.output));
            buffers.advance(length);
            if let End::Info(sections) = &end {
                info::of(port, sections).write(session.version, &mut buffers.output);
            }
            let is_last = matches!(end, End::Read | End::Close);
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
                End::Read => break,
                // Clients that send much take turns with the others.
                End::Full | End::Info(_) => yield_now().await,
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
            idle_looks: 0,
            is_answered: false,
            unfinished_looks: 0,
            anonymous_looks: 0,
        }
    }

    /// Makes room for the next bytes. What is there is the beginning of one command, which is shorter than its bound.
    fn make_room(&mut self) {
        if self.input.capacity() - self.input.len() < self.chunk / 2 {
            self.input.reserve(self.chunk);
        }
    }

    /// Notes that bytes were read. A client that fills its buffer gets a larger one.
    fn on_read(&mut self) {
        self.is_active = true;
        if self.input.len() == self.input.capacity() {
            self.chunk = (2 * self.chunk).min(COMMAND_BYTES_MAX);
        }
    }

    /// Removes the bytes of whole commands.
    fn advance(&mut self, length: usize) {
        self.is_answered |= length > 0;
        self.input.advance(length);
    }

    /// Ends the replies that were sent. One long reply must not keep its memory.
    fn clear_output(&mut self) {
        if self.output.capacity() > 2 * OUTPUT_BYTES_MAX {
            self.output = BytesMut::new();
        }
        self.output.clear();
    }

    /// Looks at a connection, and returns true if its client is too slow.
    fn is_slow(&mut self, session: &Session) -> bool {
        let is_active = std::mem::replace(&mut self.is_active, false);
        // What a client sends without a token does not keep it connected.
        self.anonymous_looks = if session.is_trusted() { 0 } else { self.anonymous_looks + 1 };
        if self.anonymous_looks > 1 {
            return true;
        }
        // Nor do the bytes of a command that never ends.
        let is_unfinished = !std::mem::take(&mut self.is_answered) && !self.input.is_empty();
        self.unfinished_looks = if is_unfinished { self.unfinished_looks + 1 } else { 0 };
        if self.unfinished_looks > 1 {
            return true;
        }
        if is_active {
            self.idle_looks = 0;
            return false;
        }
        self.idle_looks += 1;
        if self.input.is_empty() {
            (self.input, self.chunk) = (BytesMut::new(), INPUT_BYTES);
        }
        self.output = BytesMut::new();
        self.idle_looks >= IDLE_LOOKS_MAX
    }
}
