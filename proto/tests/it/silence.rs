//! Liveness by the messages of a stream: silence ends it at both ends, and the pause of a process is not the
//! silence of its peer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plimsoll_proto::wire;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::unbounded_channel;

use crate::scripted::{ChildEvent, ParentEvent, Running, Server, greeting, until};

/// Longer than the maximum silence of a stream with the report interval of the scripted parent, 3.2
/// s.
const PAUSE: Duration = Duration::from_secs(6);

/// A network path that can lose every byte without closing a connection.
struct Path {
    address: SocketAddr,
    is_cut: Arc<AtomicBool>,
}

impl Path {
    async fn to(parent: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, is_cut) = (listener.local_addr().unwrap(), Arc::<AtomicBool>::default());
        let lossy = Arc::clone(&is_cut);
        tokio::spawn(async move {
            while let Ok((child, _)) = listener.accept().await {
                let (from_child, to_child) = child.into_split();
                let (from_parent, to_parent) =
                    TcpStream::connect(parent).await.unwrap().into_split();
                tokio::spawn(copy(from_child, to_parent, Arc::clone(&lossy)));
                tokio::spawn(copy(from_parent, to_child, Arc::clone(&lossy)));
            }
        });
        Self { address, is_cut }
    }
}

async fn copy(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    is_cut: Arc<AtomicBool>,
) {
    let mut bytes = [0; 4_096];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if is_cut.load(Ordering::Relaxed) {
            // Neither end is closed, as if the other machine had lost its power.
            std::future::pending::<()>().await;
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn half_open_stream_ends_on_both_sides() {
    let mut server = Server::start(9);
    let path = Path::to(server.address).await;
    let mut child = Running::greet(&format!("http://{}", path.address));
    child.applied().await;
    path.is_cut.store(true, Ordering::Relaxed);
    let error = child.disconnected().await;
    assert!(
        error.starts_with("no message from the parent for "),
        "{error}"
    );
    assert_eq!(server.rejected().await.reason, "silent");
    path.is_cut.store(false, Ordering::Relaxed);
    child.applied().await;
    child.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_parent_loses_no_child() {
    let mut server = Server::start(20);
    let mut streams = Vec::new();
    for instance in 0..20 {
        let mut stream = server.stream().await;
        stream.send(greeting(instance)).await;
        stream.next().await;
        streams.push(stream);
    }
    let paused = server.pause(PAUSE);
    for stream in &streams {
        for seq in 2..=9 {
            stream
                .send(wire::Report {
                    seq,
                    ..wire::Report::default()
                })
                .await;
        }
    }
    paused.await;
    let mut left = streams.len();
    until(&mut server.events, |event| match event {
        ParentEvent::Report(_, report) => {
            left -= usize::from(report.seq == 9);
            (left == 0).then_some(())
        }
        ParentEvent::Closed(stream) => panic!("{stream:?} was closed"),
        ParentEvent::Answered(_) => None,
    })
    .await;
    assert!(server.rejections.try_recv().is_err());
    for mut stream in streams {
        stream.next().await;
    }
}

#[test]
fn paused_child_reads_before_it_reports() {
    let clients = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    clients.block_on(async {
        let server = Server::start(9);
        let mut child = Running::greet(&server.uri());
        child.applied().await;
        while child.events.try_recv().is_ok() {}
        // Everything in this process but the parent, which has its own threads.
        std::thread::sleep(PAUSE);
        assert!(matches!(
            child.events.recv().await,
            Some(ChildEvent::Applied(_))
        ));
        let seq = child.applied().await.seq;
        while child.applied().await.seq < seq + 20 {}
        child.stop().await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn rapid_streams_on_one_connection_are_refused() {
    use plimsoll_proto::wire::exchange_client::ExchangeClient;
    use tokio_stream::wrappers::UnboundedReceiverStream;

    let mut server = Server::start(9);
    let channel = server.endpoint().connect().await.unwrap();
    let mut client = ExchangeClient::new(channel);
    let mut accepted = 0;
    let status = loop {
        let (_reports, receiver) = unbounded_channel();
        match client
            .converse(UnboundedReceiverStream::new(receiver))
            .await
        {
            Ok(_) => accepted += 1,
            Err(status) => break status,
        }
        assert!(accepted < 60, "every stream was accepted");
    };
    assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
    let wait = status
        .metadata()
        .get("grpc-retry-pushback-ms")
        .unwrap()
        .to_str()
        .unwrap();
    assert!(wait.parse::<u64>().unwrap() > 0);
    assert_eq!(server.rejected().await.reason, "busy");
    // Others are not turned away.
    let mut other = server.stream().await;
    other.send(greeting(1)).await;
    other.next().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_child_returns_when_told() {
    const ASKED: Duration = Duration::from_millis(700);
    let mut parent = busy_parent::start(ASKED).await;
    let child = Running::greet(&parent.uri);
    let mut attempts = Vec::new();
    while attempts.len() < 4 {
        attempts.push(until(&mut parent.attempts, Some).await);
    }
    // Earlier would be a mistake; later is jitter, or a busy machine.
    assert!(
        attempts.windows(2).all(|pair| pair[1] - pair[0] >= ASKED),
        "{attempts:?}"
    );
    child.stop().await;
}

/// A parent that turns every stream away.
mod busy_parent {
    use std::net::SocketAddr;
    use std::time::{Duration, Instant};

    use plimsoll_proto::wire;
    use plimsoll_proto::wire::exchange_server::{Exchange, ExchangeServer};
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
    use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
    use tonic::{Request, Response, Status, Streaming};

    pub(super) struct Parent {
        pub(super) uri: String,
        pub(super) attempts: UnboundedReceiver<Instant>,
    }

    struct TurnsAway {
        asked: Duration,
        attempts: UnboundedSender<Instant>,
    }

    pub(super) async fn start(asked: Duration) -> Parent {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = plimsoll_net::listen("--listen", address).await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap());
        let (sender, attempts) = unbounded_channel();
        let service = ExchangeServer::new(TurnsAway {
            asked,
            attempts: sender,
        });
        let server = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Parent { uri, attempts }
    }

    #[tonic::async_trait]
    impl Exchange for TurnsAway {
        type ConverseStream = ReceiverStream<Result<wire::Directives, Status>>;

        async fn converse(
            &self,
            _: Request<Streaming<wire::Report>>,
        ) -> Result<Response<Self::ConverseStream>, Status> {
            let _ = self.attempts.send(Instant::now());
            let mut status = Status::unavailable("too many streams begin at once");
            let millis = (self.asked.as_millis() as u64).into();
            status
                .metadata_mut()
                .insert("grpc-retry-pushback-ms", millis);
            Err(status)
        }
    }
}
