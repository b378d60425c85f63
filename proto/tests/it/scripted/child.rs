//! A scripted child with its driver.

use std::time::Duration;

use plimsoll_core::directive::{Directives, StaleDirective};
use plimsoll_core::exchange::Child;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Greeting, Report};
use plimsoll_host::Shared;
use plimsoll_proto::driver::child::{self, Observer, StreamError};
use plimsoll_proto::transport::{Dial, ParentList, Security};
use plimsoll_tls::Certificates;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{EPOCH, directive, identity, patiently, until};

/// A child that sends a given greeting, the keys of it in the second report, and emits an event for every call.
#[derive(Debug)]
pub(crate) struct ScriptedChild {
    greeting: Report,
    interval: Duration,
    seq: u64,
    events: UnboundedSender<ChildEvent>,
}

#[derive(Debug)]
pub(crate) enum ChildEvent {
    Opened,
    Reported,
    Applied(Box<Directives>),
    Connected,
    Renewed,
    Disconnected(String),
    Rejected(String),
}

impl Child for ScriptedChild {
    fn on_open(&mut self, _now: MonoTime) {
        self.seq = 0;
        let _ = self.events.send(ChildEvent::Opened);
    }

    fn report(&mut self, now: MonoTime) -> Report {
        self.seq += 1;
        let _ = self.events.send(ChildEvent::Reported);
        let head = Report {
            seq: self.seq,
            time: Some(now),
            ..Report::default()
        };
        let Report {
            definitions,
            tallies,
            ..
        } = self.greeting.clone();
        match self.seq {
            1 => {
                let identity = Some(identity(7));
                let (definitions, tallies) = Default::default();
                Report {
                    seq: 1,
                    time: Some(now),
                    greeting: Greeting {
                        identity,
                        ..self.greeting.greeting.clone()
                    },
                    definitions,
                    tallies,
                    ..self.greeting.clone()
                }
            }
            2 => Report {
                definitions,
                tallies,
                ..head
            },
            _ => head,
        }
    }

    fn on_directives(
        &mut self,
        _now: MonoTime,
        directives: Directives,
    ) -> Result<(), StaleDirective> {
        if let Some(got) = directives.lead.epoch().filter(|epoch| *epoch < EPOCH) {
            return Err(StaleDirective::Epoch { held: EPOCH, got });
        }
        self.interval = directives.report_interval.unwrap_or(self.interval);
        let _ = self.events.send(ChildEvent::Applied(Box::new(directives)));
        Ok(())
    }

    fn report_interval(&self) -> Duration {
        self.interval
    }
}

struct Log(UnboundedSender<ChildEvent>);

impl Observer for Log {
    fn on_connected(&mut self, _zone: Option<&str>) {
        let _ = self.0.send(ChildEvent::Connected);
    }

    fn on_renewed(&mut self) {
        let _ = self.0.send(ChildEvent::Renewed);
    }

    fn on_disconnected(&mut self, error: &StreamError, _was_connected: bool) {
        let _ = self.0.send(ChildEvent::Disconnected(error.to_string()));
    }

    fn on_rejected(&mut self, error: &dyn std::error::Error) {
        let _ = self.0.send(ChildEvent::Rejected(error.to_string()));
    }
}

pub(crate) struct Running {
    pub(crate) events: UnboundedReceiver<ChildEvent>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) task: JoinHandle<()>,
}

impl Running {
    pub(crate) fn start(uri: &str, greeting: Report, interval: Duration) -> Self {
        Self::dial(
            Dial::new(uri, &Security::Plain { anywhere: false }).unwrap(),
            greeting,
            interval,
        )
    }

    pub(crate) fn secured(uri: &str, certificates: &Certificates) -> Self {
        Self::one_of(&[uri], &Security::Mutual(certificates.clone()))
    }

    /// Starts a child of a parent with several addresses.
    pub(crate) fn one_of(uris: &[&str], security: &Security) -> Self {
        let dials = uris.iter().map(|uri| Dial::new(uri, security).unwrap());
        let parents = ParentList::new(dials.collect()).unwrap();
        Self::dial(parents, Report::default(), Duration::from_millis(20))
    }

    fn dial(parents: impl Into<ParentList>, greeting: Report, interval: Duration) -> Self {
        let (emit, events) = mpsc::unbounded_channel();
        let child = ScriptedChild {
            greeting,
            interval,
            seq: 0,
            events: emit.clone(),
        };
        let parents = parents.into();
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(child::run(
            Shared::new(child),
            parents,
            shutdown.clone(),
            Log(emit),
        ));
        Self {
            events,
            shutdown,
            task,
        }
    }

    pub(crate) fn greet(uri: &str) -> Self {
        Self::start(uri, Report::default(), Duration::from_millis(20))
    }

    pub(crate) async fn applied(&mut self) -> Directives {
        until(&mut self.events, |event| match event {
            ChildEvent::Applied(directives) => Some(*directives),
            _ => None,
        })
        .await
    }

    pub(crate) async fn applied_limit(&mut self, limit: u32) {
        let expected = directive(limit, 0).terms.limit;
        while !self
            .applied()
            .await
            .buckets
            .iter()
            .any(|bucket| bucket.terms.limit == expected)
        {}
    }

    pub(crate) async fn disconnected(&mut self) -> String {
        until(&mut self.events, |event| match event {
            ChildEvent::Disconnected(error) => Some(error),
            _ => None,
        })
        .await
    }

    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        patiently(self.task).await.unwrap();
    }
}
