//! Ends of streams: the final status for the child, and the reason that the parent counts.

use std::time::Duration;

use plimsoll_proto::{MESSAGE_BYTES_MAX, wire};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tonic::Code;

use crate::scripted::{ParentEvent, Running, Server, greeting, patiently, until};

fn report(seq: u64) -> wire::Report {
    wire::Report {
        seq,
        ..wire::Report::default()
    }
}

/// Asserts that a stream with these reports ends with this status and is counted under this reason.
async fn check_ends(reports: Vec<wire::Report>, code: Code, reason: &str) {
    let mut server = Server::start(1);
    let mut stream = server.stream().await;
    let greets = reports
        .first()
        .is_some_and(|report| report.identity.is_some());
    for report in reports {
        stream.send(report).await;
    }
    let status = loop {
        match patiently(stream.directives.message()).await {
            Ok(Some(_)) => assert!(greets, "a stream without a greeting was answered"),
            Ok(None) => panic!("the stream ended without a status instead of {reason}"),
            Err(status) => break status,
        }
    };
    assert_eq!(
        (status.code(), reason),
        (code, reason),
        "{}",
        status.message()
    );
    assert!(!status.message().is_empty());
    assert_eq!(server.rejected().await.reason, reason);
    until(&mut server.events, |event| {
        matches!(event, ParentEvent::Closed(_)).then_some(())
    })
    .await;
    assert!(
        server.rejections.try_recv().is_err(),
        "counted more than once"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn protocol_violations_end_streams_and_count() {
    let second = |change: fn(&mut wire::Report)| {
        let mut second = report(2);
        change(&mut second);
        vec![greeting(1), second]
    };
    for (reports, reason) in [
        (vec![report(0)], "invalid"),
        (vec![greeting(1), report(0)], "invalid"),
        (second(|it| it.epoch = Some(0)), "invalid"),
        (second(|it| it.id_gaps = vec![3]), "invalid"),
        (second(|it| it.asked = vec!["a b".to_owned()]), "invalid"),
        (vec![report(1)], "greeting"),
        (vec![greeting(1), report(3)], "broken"),
        (vec![greeting(1), report(2), report(2)], "broken"),
    ] {
        check_ends(reports, Code::InvalidArgument, reason).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn message_is_read_up_to_its_limit() {
    // Valid except for its size.
    let of_size = |bytes: usize| wire::Report {
        subscriptions: vec!["b".repeat(125); bytes.div_ceil(127)],
        ..report(2)
    };
    check_ends(
        vec![greeting(1), of_size(MESSAGE_BYTES_MAX)],
        Code::InvalidArgument,
        "unreadable",
    )
    .await;

    let mut server = Server::start(1);
    let stream = server.stream().await;
    stream.send(greeting(1)).await;
    stream.send(of_size(MESSAGE_BYTES_MAX - 256)).await;
    until(&mut server.events, |event| match event {
        ParentEvent::Report(_, report) => (report.seq == 2).then_some(()),
        ParentEvent::Closed(_) => panic!("the message was rejected"),
        ParentEvent::Answered(_) => None,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_without_a_greeting_times_out() {
    check_ends(Vec::new(), Code::DeadlineExceeded, "silent").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn child_beyond_capacity_is_rejected_as_full() {
    let mut server = Server::start(1);
    let mut first = server.stream().await;
    first.send(greeting(1)).await;
    first.next().await;
    let mut second = server.stream().await;
    second.send(greeting(2)).await;
    let status = patiently(second.directives.message()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(server.rejected().await.reason, "full");
}

#[tokio::test(flavor = "multi_thread")]
async fn newer_stream_ends_the_old_gracefully() {
    let mut server = Server::start(1);
    let mut old = server.stream().await;
    old.send(greeting(1)).await;
    old.next().await;
    let mut new = server.stream().await;
    new.send(greeting(1)).await;
    assert_eq!(new.next().await.seq, 1);
    let status = loop {
        match patiently(old.directives.message()).await {
            Ok(message) => assert!(message.is_some(), "the old stream ended without a status"),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::Aborted);
    assert_eq!(
        new.next().await.seq,
        2,
        "the new stream still gets heartbeats"
    );
    assert!(
        server.rejections.try_recv().is_err(),
        "a child may open another stream"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn child_reconnects_after_invalid_messages() {
    let mut parent = invalid_parent::Parent::start().await;
    let mut child = Running::start(&parent.uri, Default::default(), Duration::from_millis(20));
    for _ in 0..3 {
        let error = child.disconnected().await;
        assert!(error.contains("out of range"), "{error}");
        assert_eq!(
            until(&mut parent.greetings, Some).await,
            1,
            "the stream starts anew"
        );
    }
    child.stop().await;
}

/// A parent that sends directives with the invalid sequence number 0.
mod invalid_parent {
    use std::net::SocketAddr;

    use plimsoll_proto::wire;
    use plimsoll_proto::wire::exchange_server::{Exchange, ExchangeServer};
    use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
    use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
    use tonic::{Request, Response, Status, Streaming};

    pub(super) struct Parent {
        pub(super) uri: String,
        /// Sequence number of the first report of each stream.
        pub(super) greetings: UnboundedReceiver<u64>,
    }

    struct SendsInvalid(UnboundedSender<u64>);

    impl Parent {
        pub(super) async fn start() -> Self {
            let listener = plimsoll_net::listen("--listen", SocketAddr::from(([127, 0, 0, 1], 0)))
                .await
                .unwrap();
            let uri = format!("http://{}", listener.local_addr().unwrap());
            let (opened, greetings) = mpsc::unbounded_channel();
            let server = tonic::transport::Server::builder()
                .add_service(ExchangeServer::new(SendsInvalid(opened)));
            tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
            Self { uri, greetings }
        }
    }

    #[tonic::async_trait]
    impl Exchange for SendsInvalid {
        type ConverseStream = ReceiverStream<Result<wire::Directives, Status>>;

        async fn converse(
            &self,
            request: Request<Streaming<wire::Report>>,
        ) -> Result<Response<Self::ConverseStream>, Status> {
            let (sender, receiver) = mpsc::channel(1);
            let opened = self.0.clone();
            let mut reports = request.into_inner();
            tokio::spawn(async move {
                if let Ok(Some(greeting)) = reports.message().await {
                    let _ = opened.send(greeting.seq);
                    let _ = sender
                        .send(Ok(wire::Directives {
                            seq: 0,
                            ..wire::Directives::default()
                        }))
                        .await;
                    // Wait until the child disconnects.
                    while let Ok(Some(_)) = reports.message().await {}
                }
            });
            Ok(Response::new(ReceiverStream::new(receiver)))
        }
    }
}

#[tokio::test]
async fn child_learns_of_missing_grpc() {
    for answer in ["", "HTTP/1.1 400 Bad Request\r\n\r\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut child = Running::greet(&format!("http://{address}"));
        let (mut connection, _) = listener.accept().await.unwrap();
        connection.read_u8().await.unwrap();
        connection.write_all(answer.as_bytes()).await.unwrap();
        drop(connection);
        let error = child.disconnected().await;
        assert!(
            error.starts_with(&address) && error.contains("if this is an admin port"),
            "{error}"
        );
        child.stop().await;
    }
}
