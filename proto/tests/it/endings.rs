//! Why a stream ends: what each end is told, and what is counted.

use std::time::Duration;

use plimsoll_proto::{MESSAGE_BYTES_MAX, wire};
use tonic::Code;

use crate::scripted::{ParentEvent, Running, Server, greeting, patiently, until};

fn report(seq: u64) -> wire::Report {
    wire::Report { seq, ..wire::Report::default() }
}

/// A stream with these reports ends with this status and is counted under this word.
async fn check_ends(reports: Vec<wire::Report>, code: Code, reason: &str) {
    let mut server = Server::start(1);
    let mut stream = server.stream().await;
    let greets = reports.first().is_some_and(|report| report.identity.is_some());
    for report in reports {
        stream.send(report).await;
    }
    let status = loop {
        match patiently(stream.directives.message()).await {
            Ok(Some(_)) => assert!(greets, "one who did not greet was answered"),
            Ok(None) => panic!("the stream ended without a word, not as {reason}"),
            Err(status) => break status,
        }
    };
    assert_eq!((status.code(), reason), (code, reason), "{}", status.message());
    assert!(!status.message().is_empty());
    assert_eq!(until(&mut server.refusals, Some).await, reason);
    until(&mut server.events, |event| matches!(event, ParentEvent::Closed(_)).then_some(())).await;
    assert!(server.refusals.try_recv().is_err(), "counted once");
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_rules_end_the_stream_and_are_counted() {
    let defined = wire::KeyDefinition { bucket: "a b".to_owned(), ..wire::KeyDefinition::default() };
    for (reports, reason) in [
        (vec![report(0)], "invalid"),
        (vec![greeting(1), report(0)], "invalid"),
        (vec![greeting(1), wire::Report { epoch: Some(0), ..report(2) }], "invalid"),
        (vec![greeting(1), wire::Report { gaps: vec![3], ..report(2) }], "invalid"),
        (vec![greeting(1), wire::Report { definitions: vec![defined], ..report(2) }], "invalid"),
        (vec![report(1)], "greeting"),
        (vec![greeting(1), report(3)], "broken"),
        (vec![greeting(1), report(2), report(2)], "broken"),
    ] {
        check_ends(reports, Code::InvalidArgument, reason).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_beyond_the_bound_is_refused_and_one_at_the_bound_is_read() {
    // Nothing but its size is wrong with it.
    let of_size =
        |bytes: usize| wire::Report { asked: vec!["b".repeat(125); bytes.div_ceil(127)], ..report(2) };
    check_ends(vec![greeting(1), of_size(MESSAGE_BYTES_MAX)], Code::InvalidArgument, "unreadable").await;

    let mut server = Server::start(1);
    let stream = server.stream().await;
    stream.send(greeting(1)).await;
    stream.send(of_size(MESSAGE_BYTES_MAX - 256)).await;
    until(&mut server.events, |event| match event {
        ParentEvent::Report(_, report) => (report.seq == 2).then_some(()),
        ParentEvent::Closed(_) => panic!("it was refused"),
        ParentEvent::Told(_) => None,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_who_never_says_who_it_is_does_not_keep_a_stream() {
    check_ends(Vec::new(), Code::DeadlineExceeded, "silent").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_for_whom_there_is_no_room_is_told_so() {
    let mut server = Server::start(1);
    let mut first = server.stream().await;
    first.send(greeting(1)).await;
    first.next().await;
    let mut second = server.stream().await;
    second.send(greeting(2)).await;
    let status = patiently(second.directives.message()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(until(&mut server.refusals, Some).await, "full");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_was_replaced_ends_and_the_new_one_does_not() {
    let mut server = Server::start(1);
    let mut old = server.stream().await;
    old.send(greeting(1)).await;
    old.next().await;
    let mut new = server.stream().await;
    new.send(greeting(1)).await;
    assert_eq!(new.next().await.seq, 1);
    let status = loop {
        match patiently(old.directives.message()).await {
            Ok(message) => assert!(message.is_some(), "the old stream ended without a word"),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::Aborted);
    assert_eq!(until(&mut server.refusals, Some).await, "superseded");
    assert_eq!(new.next().await.seq, 2, "its heartbeats go on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_leaves_a_parent_that_talks_nonsense_and_tries_again() {
    let mut nonsense = nonsense::Parent::start().await;
    let mut child = Running::start(&nonsense.uri, Default::default(), Duration::from_millis(20));
    for _ in 0..3 {
        let why = child.disconnected().await;
        assert!(why.contains("out of range"), "{why}");
        assert_eq!(until(&mut nonsense.greetings, Some).await, 1, "a stream of its own");
    }
    child.stop().await;
}

/// A parent that no state machine of ours would make.
mod nonsense {
    use std::net::SocketAddr;

    use plimsoll_proto::wire;
    use plimsoll_proto::wire::exchange_server::{Exchange, ExchangeServer};
    use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
    use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
    use tonic::{Request, Response, Status, Streaming};

    pub(super) struct Parent {
        pub(super) uri: String,
        /// The number of the first report on each stream.
        pub(super) greetings: UnboundedReceiver<u64>,
    }

    struct Nonsense(UnboundedSender<u64>);

    impl Parent {
        pub(super) async fn start() -> Self {
            let listener =
                plimsoll_proto::transport::listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
            let uri = format!("http://{}", listener.local_addr().unwrap());
            let (heard, greetings) = mpsc::unbounded_channel();
            let server =
                tonic::transport::Server::builder().add_service(ExchangeServer::new(Nonsense(heard)));
            tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
            Self { uri, greetings }
        }
    }

    #[tonic::async_trait]
    impl Exchange for Nonsense {
        type ConverseStream = ReceiverStream<Result<wire::Directives, Status>>;

        async fn converse(
            &self,
            request: Request<Streaming<wire::Report>>,
        ) -> Result<Response<Self::ConverseStream>, Status> {
            let (sender, receiver) = mpsc::channel(1);
            let heard = self.0.clone();
            let mut reports = request.into_inner();
            tokio::spawn(async move {
                if let Ok(Some(greeting)) = reports.message().await {
                    let _ = heard.send(greeting.seq);
                    let _ = sender.send(Ok(wire::Directives { seq: 0, ..wire::Directives::default() })).await;
                    // Until the child goes.
                    while let Ok(Some(_)) = reports.message().await {}
                }
            });
            Ok(Response::new(ReceiverStream::new(receiver)))
        }
    }
}
