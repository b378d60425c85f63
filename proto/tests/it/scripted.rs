//! A parent and a child whose every event a test can wait for, and the sockets between them.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::mpsc as blocking;
use std::time::Duration;

use plimsoll_core::bucket::{Bucket, Name, Tenant, Zone};
use plimsoll_core::directive::{
    Board, BucketDirective, Directives, Epoch, KeyDirective, Message, Stale, Terms, Values,
};
use plimsoll_core::exchange::{Child, Parent, Refused, StreamId};
use plimsoll_core::kill::{KillGeneration, Kills};
use plimsoll_core::rate::{Limit, Rate};
use plimsoll_core::report::{Echo, Identity, InstanceId, Report, Role};
use plimsoll_core::rollout::Mode;
use plimsoll_core::roster::{Head, Roster};
use plimsoll_core::time::MonoTime;
use plimsoll_proto::child::{self, Broken, Observer};
use plimsoll_proto::parent::{OnRefused, ParentService};
use plimsoll_proto::shared::Shared;
use plimsoll_proto::wire::exchange_client::ExchangeClient;
use plimsoll_proto::{transport, wire};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;

/// Far beyond what any step takes: a test that gets here has failed, however slow the machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The reign that every child has heard of.
const EPOCH: Epoch = Epoch(5);

/// Waits for `event`, but not forever.
pub(crate) async fn patiently<T>(event: impl Future<Output = T>) -> T {
    timeout(PATIENCE, event).await.expect("it did not happen")
}

/// The next event that `pick` makes something of; those before it are skipped.
pub(crate) async fn until<E: Debug, T>(
    events: &mut UnboundedReceiver<E>,
    mut pick: impl FnMut(E) -> Option<T>,
) -> T {
    patiently(async {
        loop {
            let event = events.recv().await.expect("nothing more can happen");
            if let Some(picked) = pick(event) {
                return picked;
            }
        }
    })
    .await
}

/// What holds for the one bucket: this limit, and as much for each of this many tenants with the longest names.
pub(crate) fn directive(limit: u32, tenants: usize) -> BucketDirective {
    let rate = Rate::new(f64::from(limit)).unwrap();
    let tenant = |number| Tenant::new(&format!("{number:0>128}")).unwrap();
    BucketDirective {
        bucket: Bucket::new("checkout").unwrap(),
        whole: true,
        terms: Terms { limit: Limit::PerSecond(rate), mode: Mode::Enforce, ..Terms::default() },
        keys: (0..tenants)
            .map(|number| KeyDirective {
                tenant: tenant(number),
                values: Values { rate: Some(rate), ..Values::default() },
            })
            .collect(),
    }
}

pub(crate) fn identity(instance: u128) -> Identity {
    Identity {
        instance: InstanceId(instance),
        name: Name::new("host-7:8080").unwrap(),
        service: Name::new("checkout-api").unwrap(),
        zone: Zone::new("eu-west-1a").unwrap(),
        role: Role::Client,
    }
}

/// A parent that tells every child everything on its board, and tells the test what it hears.
#[derive(Debug)]
pub(crate) struct ScriptedParent {
    /// The epoch at the top of every message.
    pub(crate) epoch: Epoch,
    board: Board,
    roster: Roster,
    events: UnboundedSender<ParentEvent>,
}

#[derive(Debug)]
pub(crate) enum ParentEvent {
    Report(StreamId, Box<Report>),
    /// A message was composed, this long after its stream was last heard.
    Told(Duration),
    Closed(StreamId),
}

impl ScriptedParent {
    /// Changes what holds.
    pub(crate) fn post(&mut self, directive: &BucketDirective) {
        assert!(self.board.apply(directive), "a change was meant");
    }

    fn tell(&self, event: ParentEvent) {
        // A test that has seen enough does not listen any more.
        let _ = self.events.send(event);
    }
}

impl Parent for ScriptedParent {
    fn on_report(&mut self, now: MonoTime, stream: StreamId, report: Report) -> Result<bool, Refused> {
        if self.roster.by_stream(stream).is_none() {
            let identity = report.identity.clone().ok_or(Refused::Greeting)?;
            let child = self.roster.open(now, stream, identity)?;
            self.board.iter().for_each(|(bucket, _)| child.wants(bucket));
        }
        let child = self.roster.by_stream(stream).ok_or(Refused::Unknown)?;
        child.heard = now;
        child.books.enter(now, &report, |_| None)?;
        let news = report.kill > KillGeneration(0);
        self.tell(ParentEvent::Report(stream, Box::new(report)));
        Ok(news)
    }

    fn on_close(&mut self, now: MonoTime, stream: StreamId) {
        self.roster.close(now, stream);
        self.tell(ParentEvent::Closed(stream));
    }

    fn message(&mut self, now: MonoTime, stream: StreamId) -> Option<Message> {
        let report_interval = Some(Duration::from_millis(20));
        let kills = Kills::default();
        let head = Head { epoch: Some(self.epoch), report_interval, ..Head::of(&kills) };
        let child = self.roster.by_stream(stream)?;
        let echo = Echo { covered: child.books.seq(), confirmed: 0 };
        let waited = now.since(child.heard);
        let message = child.next_message(now, head, &mut self.board, true, echo, &kills)?;
        self.tell(ParentEvent::Told(waited));
        Some(message)
    }

    fn is_superseded(&self, stream: StreamId) -> bool {
        self.roster.is_superseded(stream)
    }
}

/// A parent behind a socket, on threads of its own so that it can die like a process.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) parent: Shared<ScriptedParent>,
    pub(crate) events: UnboundedReceiver<ParentEvent>,
    pub(crate) refusals: UnboundedReceiver<&'static str>,
    pub(crate) closing: CancellationToken,
    served: JoinHandle<()>,
    runtime: Option<Runtime>,
}

#[derive(Debug)]
struct Refusals(UnboundedSender<&'static str>);

impl OnRefused for Refusals {
    fn on_refused(&self, reason: &'static str) {
        let _ = self.0.send(reason);
    }
}

impl Server {
    /// A parent of at most `children_max` children on a port of its own; a limit of 1 holds.
    pub(crate) fn start(children_max: usize) -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), children_max)
    }

    pub(crate) fn start_at(address: SocketAddr, children_max: usize) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (heard, events) = mpsc::unbounded_channel();
        let (refused, refusals) = mpsc::unbounded_channel();
        let closing = CancellationToken::new();
        let mut parent = ScriptedParent {
            epoch: EPOCH,
            board: Board::default(),
            roster: Roster::new(InstanceId(99), children_max, 100_000),
            events: heard,
        };
        parent.post(&directive(1, 0));
        let (bound, bound_to) = blocking::channel();
        let (handed, parent_of) = blocking::channel();
        let stop = closing.clone();
        let served = runtime.spawn(async move {
            let listener = transport::listen(address).await.unwrap();
            bound.send(listener.local_addr().unwrap()).unwrap();
            let parent = Shared::new(parent);
            handed.send(parent.clone()).unwrap();
            let service = ParentService::new(parent, stop.clone(), Refusals(refused));
            transport::serve(listener, service, stop.cancelled()).await.unwrap();
        });
        Self {
            address: bound_to.recv_timeout(PATIENCE).unwrap(),
            parent: parent_of.recv_timeout(PATIENCE).unwrap(),
            events,
            refusals,
            closing,
            served,
            runtime: Some(runtime),
        }
    }

    pub(crate) fn uri(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Changes what holds and tells everybody.
    pub(crate) fn post(&self, directive: &BucketDirective) {
        self.parent.with(|parent, _| parent.post(directive));
        self.parent.ring();
    }

    /// Waits until a server that was told to close has ended all its connections.
    pub(crate) async fn served(&mut self) {
        patiently(&mut self.served).await.unwrap();
    }

    /// Ends as a killed process does: without a word, its sockets closed by the system.
    pub(crate) async fn die(mut self) -> SocketAddr {
        let runtime = self.runtime.take().unwrap();
        spawn_blocking(|| runtime.shutdown_timeout(PATIENCE)).await.unwrap();
        self.address
    }

    /// A stream that a test holds in its own hands.
    pub(crate) async fn stream(&self) -> Stream {
        let channel = transport::endpoint(&self.uri()).unwrap().connect().await.unwrap();
        let (reports, receiver) = mpsc::channel(64);
        // Larger than what is allowed, so that it is the other end that refuses.
        let mut client = ExchangeClient::new(channel).max_encoding_message_size(usize::MAX);
        let converse = client.converse(ReceiverStream::new(receiver));
        let directives = patiently(converse).await.unwrap().into_inner();
        Stream { reports, directives }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The child's end of a stream, without a driver.
pub(crate) struct Stream {
    pub(crate) reports: mpsc::Sender<wire::Report>,
    pub(crate) directives: Streaming<wire::Directives>,
}

impl Stream {
    pub(crate) async fn send(&self, report: wire::Report) {
        patiently(self.reports.send(report)).await.unwrap();
    }

    pub(crate) async fn next(&mut self) -> wire::Directives {
        patiently(self.directives.message()).await.unwrap().expect("the stream goes on")
    }
}

/// The greeting of an instance, as it travels.
pub(crate) fn greeting(instance: u128) -> wire::Report {
    let report = Report { seq: 1, identity: Some(identity(instance)), ..Report::default() };
    plimsoll_proto::encode_report(&report).remove(0)
}

/// A child that sends what it is given and tells the test what it is told.
#[derive(Debug)]
pub(crate) struct ScriptedChild {
    /// What a greeting says besides who speaks.
    greeting: Report,
    interval: Duration,
    seq: u64,
    events: UnboundedSender<ChildEvent>,
}

#[derive(Debug)]
pub(crate) enum ChildEvent {
    Opened,
    Told(Directives),
    Connected,
    Disconnected(String),
    Refused(String),
}

impl Child for ScriptedChild {
    fn on_open(&mut self, _now: MonoTime) {
        self.seq = 0;
        let _ = self.events.send(ChildEvent::Opened);
    }

    fn report(&mut self, now: MonoTime) -> Report {
        self.seq += 1;
        let head = Report { seq: self.seq, time: Some(now), ..Report::default() };
        if self.seq > 1 {
            return head;
        }
        Report { seq: 1, time: Some(now), identity: Some(identity(7)), ..self.greeting.clone() }
    }

    fn on_directives(&mut self, _now: MonoTime, directives: Directives) -> Result<(), Stale> {
        if let Some(got) = directives.epoch.filter(|epoch| *epoch < EPOCH) {
            return Err(Stale::Epoch { held: EPOCH, got });
        }
        self.interval = directives.report_interval.unwrap_or(self.interval);
        let _ = self.events.send(ChildEvent::Told(directives));
        Ok(())
    }

    fn report_interval(&self) -> Duration {
        self.interval
    }
}

struct Log(UnboundedSender<ChildEvent>);

impl Observer for Log {
    fn on_connected(&mut self) {
        let _ = self.0.send(ChildEvent::Connected);
    }

    fn on_disconnected(&mut self, why: &Broken, _was_connected: bool) {
        let _ = self.0.send(ChildEvent::Disconnected(why.to_string()));
    }

    fn on_refused(&mut self, why: &dyn std::error::Error) {
        let _ = self.0.send(ChildEvent::Refused(why.to_string()));
    }
}

/// A child with its driver, at work.
pub(crate) struct Running {
    pub(crate) events: UnboundedReceiver<ChildEvent>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) task: JoinHandle<()>,
}

impl Running {
    /// Keeps `greeting` going to the parent at `uri`.
    pub(crate) fn start(uri: &str, greeting: Report, interval: Duration) -> Self {
        let (told, events) = mpsc::unbounded_channel();
        let child = ScriptedChild { greeting, interval, seq: 0, events: told.clone() };
        let shutdown = CancellationToken::new();
        let endpoint = transport::endpoint(uri).unwrap();
        let task = tokio::spawn(child::run(Shared::new(child), endpoint, shutdown.clone(), Log(told)));
        Self { events, shutdown, task }
    }

    /// A child with nothing to say but who it is.
    pub(crate) fn greet(uri: &str) -> Self {
        Self::start(uri, Report::default(), Duration::from_millis(20))
    }

    /// Waits for the next message of the parent that was applied.
    pub(crate) async fn told(&mut self) -> Directives {
        until(&mut self.events, |event| match event {
            ChildEvent::Told(directives) => Some(directives),
            _ => None,
        })
        .await
    }

    /// Waits for a limit to be told.
    pub(crate) async fn told_limit(&mut self, limit: u32) {
        let due = directive(limit, 0).terms.limit;
        while !self.told().await.buckets.iter().any(|bucket| bucket.terms.limit == due) {}
    }

    /// Waits for a stream to end; why it did.
    pub(crate) async fn disconnected(&mut self) -> String {
        until(&mut self.events, |event| match event {
            ChildEvent::Disconnected(why) => Some(why),
            _ => None,
        })
        .await
    }

    /// Asks for an orderly stop and waits for it.
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        patiently(self.task).await.unwrap();
    }
}

/// A socket that accepts and then never says a word.
pub(crate) async fn mute() -> TcpListener {
    transport::listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap()
}
