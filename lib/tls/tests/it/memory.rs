//! The memory of a connection that waits, which a parent has for each of its children.

use std::pin::pin;
use std::task::{Context, Waker};

use allocation_counter::measure;
use plimsoll_tls::testing::Authority;
use plimsoll_tls::{accept, connect};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::ends::{DOMAIN, pair};

const CONNECTIONS: usize = 32;
/// 20 KiB for each end.
const BYTES_MAX_OF_BOTH_ENDS: usize = 20 << 10;

#[test]
fn idle_tls_connection_needs_little_memory() {
    let authority = Authority::new(DOMAIN);
    let (parent, child) = pair(&authority);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let sockets = async || {
        let (below, above) = tokio::join!(
            TcpStream::connect(listener.local_addr().unwrap()),
            listener.accept()
        );
        (above.unwrap().0, below.unwrap())
    };
    let secured = async || {
        let (above, below) = sockets().await;
        let server = accept(parent.certificates.mutual_server(), above);
        let client = connect(
            child.certificates.child(),
            "a.example".try_into().unwrap(),
            below,
        );
        let (above, below) = tokio::join!(server, client);
        (above.unwrap().0, below.unwrap().0)
    };
    // The first connections fill the cache of sessions.
    for _ in 0..8 {
        drop(runtime.block_on(secured()));
    }
    let mut plain = Vec::with_capacity(CONNECTIONS);
    let of_plain = measure(|| {
        plain.extend((0..CONNECTIONS).map(|_| runtime.block_on(after_messages(sockets()))));
    });
    let mut held = Vec::with_capacity(CONNECTIONS);
    let of_held = measure(|| {
        held.extend((0..CONNECTIONS).map(|_| runtime.block_on(after_messages(secured()))));
    });
    let on_heap =
        usize::try_from(of_held.bytes_current - of_plain.bytes_current).unwrap() / CONNECTIONS;
    let bytes = on_heap + size_of_val(&held[0]) - size_of_val(&plain[0]);
    assert!(
        on_heap > 0 && bytes < BYTES_MAX_OF_BOTH_ENDS,
        "{bytes} bytes, {on_heap} of them on the heap"
    );
    println!("{bytes} bytes, {on_heap} of them on the heap");
}

/// Returns both ends after a message of several records in each direction.
async fn after_messages<A, B>(ends: impl Future<Output = (A, B)>) -> (A, B)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let (mut above, mut below) = ends.await;
    send(&mut above, &mut below).await;
    send(&mut below, &mut above).await;
    wait(&mut above);
    wait(&mut below);
    (above, below)
}

fn wait(end: &mut (impl AsyncRead + Unpin)) {
    let mut byte = [0];
    let read = pin!(end.read(&mut byte));
    assert!(
        read.poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
}

async fn send(from: &mut (impl AsyncWrite + Unpin), to: &mut (impl AsyncRead + Unpin)) {
    let message = vec![7; 40_000];
    let mut received = vec![0; message.len()];
    let sent = async {
        from.write_all(&message).await.unwrap();
        from.flush().await.unwrap();
    };
    let (_, read) = tokio::join!(sent, to.read_exact(&mut received));
    assert_eq!(read.unwrap(), message.len());
    assert!(received == message);
}
