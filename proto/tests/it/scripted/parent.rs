//! A scripted parent behind a real socket.

use std::future::ready;
use std::io::{self, Write};
use std::mem;
use std::net::SocketAddr;
use std::sync::mpsc as blocking;
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use plimsoll_core::directive::{Board, BucketDirective, Epoch, Message, SentLead};
use plimsoll_core::exchange::sessions::{Head, Sessions};
use plimsoll_core::exchange::{OnRejected, Parent, Rejection, StreamId, StreamRejected};
use plimsoll_core::kill::{KillGeneration, Kills};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Echo, Identity, InstanceId, Report};
use plimsoll_host::Shared;
use plimsoll_net::Connections;
use plimsoll_proto::driver::parent::ParentService;
use plimsoll_proto::transport;
use plimsoll_proto::wire::exchange_client::ExchangeClient;
use plimsoll_proto::{MESSAGE_BYTES_MAX, wire};
use plimsoll_tls::Certificates;
use plimsoll_tls::rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;
use tracing::dispatcher::set_default;
use tracing::{Dispatch, Level};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;

use super::{EPOCH, PATIENCE, directive, identity, patiently, until};

const WORKERS: usize = 2;

/// A parent that sends its whole board to every child and emits an event for every call.
#[derive(Debug)]
pub(crate) struct ScriptedParent {
    pub(crate) epoch: Epoch,
    pub(crate) unconfirmed: bool,
    board: Board,
    sessions: Sessions,
    events: UnboundedSender<ParentEvent>,
}

#[derive(Debug)]
pub(crate) enum ParentEvent {
    Report(StreamId, Box<Report>),
    /// A message was composed, this long after the last report of its stream.
    Answered(Duration),
    Closed(StreamId),
}

impl ScriptedParent {
    pub(crate) fn post(&mut self, directive: &BucketDirective) {
        assert!(self.board.apply(directive), "the directive changes nothing");
    }

    fn emit(&self, event: ParentEvent) {
        // A test may drop its receiver early.
        let _ = self.events.send(event);
    }
}

impl Parent for ScriptedParent {
    fn on_report(
        &mut self,
        now: MonoTime,
        stream: StreamId,
        report: Report,
    ) -> Result<bool, StreamRejected> {
        if self.sessions.by_stream(stream).is_none() {
            let identity = report
                .greeting
                .identity
                .clone()
                .ok_or(StreamRejected::Greeting)?;
            let child = self.sessions.open(now, stream, identity)?;
            self.board
                .iter()
                .for_each(|(bucket, _)| child.subscribe(bucket));
        }
        let child = self
            .sessions
            .by_stream(stream)
            .ok_or(StreamRejected::Unknown)?;
        child.last_report = now;
        child.books.enter(now, &report, |_| None)?;
        let changed = report.kills.fleet > KillGeneration(0);
        self.emit(ParentEvent::Report(stream, Box::new(report)));
        Ok(changed)
    }

    fn on_close(&mut self, now: MonoTime, stream: StreamId) {
        self.sessions.close(now, stream);
        self.emit(ParentEvent::Closed(stream));
    }

    fn message(&mut self, now: MonoTime, stream: StreamId) -> Option<Message> {
        let report_interval = Some(Duration::from_millis(20));
        let kills = Kills::default();
        let head = Head {
            lead: SentLead {
                leader: Some(self.epoch.into()),
                unconfirmed: self.unconfirmed,
                ..SentLead::default()
            },
            report_interval,
            ..Head::of(&kills)
        };
        let child = self.sessions.by_stream(stream)?;
        let echo = Echo {
            covered: child.books.seq(),
            confirmed: 0,
        };
        let waited = now.since(child.last_report);
        let message = child.next_message(now, head, &mut self.board, true, echo, &kills)?;
        self.emit(ParentEvent::Answered(waited));
        Some(message)
    }

    fn is_superseded(&self, stream: StreamId) -> bool {
        self.sessions.is_superseded(stream)
    }
}

/// A parent behind a socket, on its own threads, so that it can end like a killed process.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) parent: Shared<ScriptedParent>,
    pub(crate) events: UnboundedReceiver<ParentEvent>,
    pub(crate) rejections: UnboundedReceiver<Rejected>,
    pub(crate) connections: Connections,
    pub(crate) log: UnboundedReceiver<String>,
    pub(crate) closing: CancellationToken,
    served: JoinHandle<()>,
    runtime: Option<Runtime>,
}

#[derive(Debug)]
pub(crate) struct Rejected {
    pub(crate) reason: &'static str,
    pub(crate) cause: String,
    pub(crate) child: Option<Identity>,
}

#[derive(Debug)]
struct Rejections(UnboundedSender<Rejected>);

impl OnRejected for Rejections {
    fn on_rejected(
        &self,
        Rejection {
            reason,
            cause,
            child,
        }: Rejection<'_>,
    ) {
        let _ = self.0.send(Rejected {
            reason,
            cause: cause.to_owned(),
            child: child.cloned(),
        });
    }
}

#[derive(Clone)]
struct Lines(UnboundedSender<String>);

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let _ = self.0.send(String::from_utf8_lossy(line).into_owned());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Server {
    /// Starts a parent of at most `children_max` children on a free port, with a limit of 1.
    pub(crate) fn start(children_max: usize) -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), children_max)
    }

    pub(crate) fn start_at(address: SocketAddr, children_max: usize) -> Self {
        Self::serve(address, children_max, |service| service)
    }

    pub(crate) fn secured(certificates: &Certificates) -> Self {
        let certificates = certificates.clone();
        Self::serve(SocketAddr::from(([127, 0, 0, 1], 0)), 9, |service| {
            service.secured(certificates)
        })
    }

    /// Starts a controller that leads in an epoch.
    pub(crate) fn leading(address: SocketAddr, epoch: u64) -> Self {
        let server = Self::serve(address, 9, move |service| service.of_epoch(epoch));
        server.parent.with(|parent, _| parent.epoch = Epoch(epoch));
        server
    }

    pub(crate) fn set_unconfirmed(&self, unconfirmed: bool) {
        self.parent
            .with(|parent, _| parent.unconfirmed = unconfirmed);
        self.parent.notify();
    }

    fn serve(
        address: SocketAddr,
        children_max: usize,
        configure: impl FnOnce(ParentService<ScriptedParent>) -> ParentService<ScriptedParent>
        + Send
        + 'static,
    ) -> Self {
        let (write, log) = mpsc::unbounded_channel();
        let lines = fmt::layer()
            .with_ansi(false)
            .with_writer(move || Lines(write.clone()));
        let own = Targets::new()
            .with_target("plimsoll_net", Level::DEBUG)
            .with_target("plimsoll_proto", Level::DEBUG);
        let subscriber = tracing_subscriber::registry().with(lines).with(own);
        let log_to = Dispatch::new(subscriber);
        let runtime = Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .on_thread_start(move || mem::forget(set_default(&log_to)))
            .enable_all()
            .build()
            .unwrap();
        let (emit, events) = mpsc::unbounded_channel();
        let (reject, rejections) = mpsc::unbounded_channel();
        let closing = CancellationToken::new();
        let mut parent = ScriptedParent {
            epoch: EPOCH,
            unconfirmed: false,
            board: Board::default(),
            sessions: Sessions::new(InstanceId(99), children_max, 100_000),
            events: emit,
        };
        parent.post(&directive(1, 0));
        let (bound, bound_to) = blocking::channel();
        let (handed, parent_of) = blocking::channel();
        let connections = Connections::default();
        let (stop, accepted) = (closing.clone(), connections.clone());
        let served = runtime.spawn(async move {
            let listener = plimsoll_net::listen("--listen", address).await.unwrap();
            bound.send(listener.local_addr().unwrap()).unwrap();
            let parent = Shared::new(parent);
            handed.send(parent.clone()).unwrap();
            let service = ParentService::new(parent, stop.clone(), Rejections(reject));
            transport::serve(listener, accepted, configure(service), stop.cancelled())
                .await
                .unwrap();
        });
        Self {
            address: bound_to.recv_timeout(PATIENCE).unwrap(),
            parent: parent_of.recv_timeout(PATIENCE).unwrap(),
            events,
            rejections,
            connections,
            log,
            closing,
            served,
            runtime: Some(runtime),
        }
    }

    pub(crate) fn uri(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn https(&self) -> String {
        format!("https://{}", self.address)
    }

    pub(crate) async fn rejected(&mut self) -> Rejected {
        until(&mut self.rejections, Some).await
    }

    /// Waits for a report that `pick` takes.
    pub(crate) async fn reported<T>(&mut self, mut pick: impl FnMut(Report) -> Option<T>) -> T {
        until(&mut self.events, |event| match event {
            ParentEvent::Report(_, report) => pick(*report),
            ParentEvent::Answered(_) | ParentEvent::Closed(_) => None,
        })
        .await
    }

    /// Waits for a child's greeting.
    pub(crate) async fn greeted(&mut self) {
        self.reported(|report| report.greeting.identity.map(drop))
            .await;
    }

    pub(crate) async fn logged(&mut self, text: &str) -> String {
        until(&mut self.log, |line| {
            Some(line).filter(|line| line.contains(text))
        })
        .await
    }

    pub(crate) fn post(&self, directive: &BucketDirective) {
        self.parent.with(|parent, _| parent.post(directive));
        self.parent.notify();
    }

    /// Pauses every thread of the server, as if the process were starved. Returns when it runs again.
    pub(crate) fn pause(&self, pause: Duration) -> impl Future<Output = ()> + use<> {
        let runtime = self.runtime.as_ref().unwrap();
        let threads = (0..WORKERS).map(|_| runtime.spawn(async move { std::thread::sleep(pause) }));
        let threads: Vec<_> = threads.collect();
        async {
            for thread in threads {
                thread.await.unwrap();
            }
        }
    }

    pub(crate) async fn served(&mut self) {
        patiently(&mut self.served).await.unwrap();
    }

    /// Ends like a killed process: without a status, and the system closes the sockets.
    pub(crate) async fn die(mut self) -> SocketAddr {
        let runtime = self.runtime.take().unwrap();
        spawn_blocking(|| runtime.shutdown_timeout(PATIENCE))
            .await
            .unwrap();
        self.address
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint::from_shared(self.uri())
            .unwrap()
            .initial_stream_window_size(MESSAGE_BYTES_MAX as u32)
    }

    pub(crate) async fn stream(&self) -> Stream {
        Self::stream_on(self.endpoint().connect().await.unwrap()).await
    }

    pub(crate) async fn channel_as(&self, certificates: &Certificates) -> Channel {
        let tcp = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::from(self.address.ip());
        let connected = patiently(plimsoll_tls::connect(certificates.child(), name, tcp));
        let mut stream = Some(TokioIo::new(connected.await.unwrap().0));
        let connector = service_fn(move |_: Uri| ready(stream.take().ok_or("used twice")));
        self.endpoint()
            .connect_with_connector(connector)
            .await
            .unwrap()
    }

    pub(crate) async fn stream_as(&self, certificates: &Certificates) -> Stream {
        Self::stream_on(self.channel_as(certificates).await).await
    }

    async fn stream_on(channel: Channel) -> Stream {
        let (reports, receiver) = mpsc::channel(64);
        // No limit here, so that the parent has to reject a message that is too large.
        let mut client = ExchangeClient::new(channel).max_encoding_message_size(usize::MAX);
        let converse = client.converse(ReceiverStream::new(receiver));
        let directives = patiently(converse).await.unwrap().into_inner();
        Stream {
            reports,
            directives,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

pub(crate) struct Stream {
    pub(crate) reports: mpsc::Sender<wire::Report>,
    pub(crate) directives: Streaming<wire::Directives>,
}

impl Stream {
    pub(crate) async fn send(&self, report: wire::Report) {
        patiently(self.reports.send(report)).await.unwrap();
    }

    pub(crate) async fn next(&mut self) -> wire::Directives {
        patiently(self.directives.message())
            .await
            .unwrap()
            .expect("the stream ended")
    }
}

pub(crate) fn greeting(instance: u128) -> wire::Report {
    let report = Report {
        seq: 1,
        greeting: Some(identity(instance)).into(),
        ..Report::default()
    };
    plimsoll_proto::ReportEncoder::default()
        .encode(&report)
        .remove(0)
}
