//! The log of one stream: the first failure of a kind and the return as warning and info, repeated attempts at debug
//! level.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use plimsoll_proto::driver::child::{Observer, StreamError};
use tonic::Code;

use super::health::Counters;
use crate::hot::table::Table;
use crate::setup::SetupProblem;

/// The failures since the last stream that show another server at the address. Fewer may be an aggregator that
/// restarts.
const STRANGE_MAX: u32 = 3;

pub(super) struct StreamLog {
    counters: Arc<Counters>,
    table: Arc<Table>,
    address: Arc<str>,
    is_connected: bool,
    /// The reason of the last failure, if it was a lack of trust.
    refused: Option<&'static str>,
    /// The reasons of failures since the last connection that were logged as warnings; `None` is any that is not about
    /// trust. At most one of each.
    warned: Vec<Option<&'static str>>,
    /// The failures since the last connection that another server may have caused.
    strange: u32,
    /// The problem that is raised while the aggregator names another zone.
    foreign: Option<SetupProblem>,
    /// Called when a stream has ended or an attempt to open one has failed.
    on_lost: Box<dyn FnMut() + Send>,
}

impl StreamLog {
    pub(super) fn new(
        counters: &Arc<Counters>,
        table: &Arc<Table>,
        address: &Arc<str>,
        on_lost: impl FnMut() + Send + 'static,
    ) -> Self {
        Self {
            counters: Arc::clone(counters),
            table: Arc::clone(table),
            address: Arc::clone(address),
            is_connected: false,
            refused: None,
            warned: Vec::new(),
            strange: 0,
            foreign: None,
            on_lost: Box::new(on_lost),
        }
    }

    fn set_silent(&self, is_silent: bool) {
        let address = self.address.to_string();
        let problem = SetupProblem::SilentAggregator { address };
        self.table.problems.set(problem, is_silent);
    }

    fn set_foreign(&mut self, zone: Option<&str>) {
        let foreign = zone.map(|zone| SetupProblem::ForeignZone {
            zone: self.counters.zone.clone(),
            aggregator_zone: zone.to_owned(),
        });
        if foreign != self.foreign
            && let Some(before) = &self.foreign
        {
            self.table.problems.clear(before);
        }
        if let Some(problem) = &foreign {
            self.table.problems.raise(problem.clone());
        }
        self.foreign = foreign;
    }

    fn close(&mut self) {
        if std::mem::take(&mut self.is_connected) {
            self.counters.connected.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn set_refused(&mut self, refused: Option<&'static str>) {
        let before = std::mem::replace(&mut self.refused, refused);
        self.counters.on_refusal_changed(before, refused);
    }
}

/// Returns true if a server that is no aggregator may have caused a failure: an admin port, another tier or an HTTP
/// server.
fn is_strange(error: &StreamError) -> bool {
    match error {
        #[cfg(feature = "tls")]
        StreamError::Handshake(_) => error.refusal().is_none(),
        StreamError::Closed(status) => {
            let is_of_another_server = matches!(
                status.code(),
                Code::FailedPrecondition | Code::Internal | Code::Unimplemented | Code::Unknown
            );
            // With a cause at this end, such as a frame that is none of HTTP/2.
            is_of_another_server || status.source().is_some()
        }
        StreamError::Ended | StreamError::NotGrpc { .. } | StreamError::Decode(_) => true,
        _ => false,
    }
}

impl Observer for StreamLog {
    fn on_connected(&mut self, zone: Option<&str>) {
        self.counters.connected.fetch_add(1, Ordering::Relaxed);
        self.is_connected = true;
        self.set_refused(None);
        self.warned.clear();
        self.strange = 0;
        self.set_silent(false);
        tracing::info!(aggregator = %self.address, "aggregator connected");
        let zone = zone.filter(|zone| *zone != self.counters.zone);
        self.set_foreign(zone);
    }

    fn on_renewed(&mut self) {
        tracing::info!(aggregator = %self.address, "stream continued with the renewed certificate");
    }

    fn on_disconnected(&mut self, error: &StreamError, was_connected: bool) {
        (self.on_lost)();
        self.close();
        self.counters
            .disconnects
            .fetch_add(u64::from(was_connected), Ordering::Relaxed);
        let is_invalid = matches!(error, StreamError::Decode(_));
        self.counters
            .invalid
            .fetch_add(u64::from(is_invalid), Ordering::Relaxed);
        let reason = error.refusal();
        self.set_refused(reason);
        let is_repeated = self.warned.contains(&reason);
        if !is_repeated {
            self.warned.push(reason);
        }
        self.strange += u32::from(!was_connected && is_strange(error));
        let is_silent = !was_connected
            && (matches!(error, StreamError::Silent(_)) || self.strange == STRANGE_MAX);
        if is_silent {
            // Logged with its remedy, once.
            self.set_silent(true);
        }
        let aggregator = &*self.address;
        match reason {
            _ if is_silent => tracing::debug!(aggregator, %error, "aggregator sends no directives"),
            _ if was_connected => {
                tracing::warn!(aggregator, %error, reason, "aggregator lost; the directives held stay in force");
            }
            _ if is_repeated => {
                tracing::debug!(aggregator, %error, reason, "aggregator still unreachable")
            }
            Some(reason) => {
                tracing::warn!(aggregator, %error, reason, "connection not trusted; the directives held stay in force");
            }
            None => {
                tracing::warn!(aggregator, %error, "aggregator unreachable; the directives held stay in force");
            }
        }
    }

    fn on_rejected(&mut self, error: &dyn Error) {
        tracing::debug!(aggregator = %self.address, %error, "directives rejected; those held stay in force");
    }
}

impl Drop for StreamLog {
    fn drop(&mut self) {
        self.close();
        self.set_refused(None);
        self.set_silent(false);
        self.set_foreign(None);
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use std::sync::Mutex;

    use tonic::Status;
    use tracing::level_filters::LevelFilter;
    use tracing::{Event, Level, Metadata, Subscriber, span};

    use super::*;

    #[derive(Clone, Default)]
    struct Levels(Arc<Mutex<Vec<Level>>>);

    impl Levels {
        fn take(&self) -> Vec<Level> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    impl Subscriber for Levels {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn max_level_hint(&self) -> Option<LevelFilter> {
            Some(LevelFilter::DEBUG)
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, event: &Event<'_>) {
            self.0.lock().unwrap().push(*event.metadata().level());
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    fn log(counters: &Arc<Counters>) -> StreamLog {
        let table = Arc::new(Table::new(8, 0, 7));
        StreamLog::new(counters, &table, &"aggregator:7410".into(), || {})
    }

    fn forbidden() -> StreamError {
        StreamError::Closed(Box::new(Status::permission_denied("another zone")))
    }

    #[test]
    fn each_reason_warns_once_until_reconnection() {
        let (levels, counters) = (Levels::default(), Arc::new(Counters::default()));
        let mut log = log(&counters);
        tracing::subscriber::with_default(levels.clone(), || {
            let refusals = [
                forbidden(),
                forbidden(),
                StreamError::Ended,
                forbidden(),
                StreamError::Ended,
            ];
            refusals
                .iter()
                .for_each(|error| log.on_disconnected(error, false));
            assert_eq!(
                levels.take(),
                [
                    Level::WARN,
                    Level::DEBUG,
                    Level::WARN,
                    Level::DEBUG,
                    Level::DEBUG
                ]
            );
            log.on_connected(None);
            log.on_disconnected(&forbidden(), true);
            log.on_disconnected(&forbidden(), false);
            assert_eq!(levels.take(), [Level::INFO, Level::WARN, Level::DEBUG]);
        });
    }

    #[test]
    fn mute_aggregator_is_a_problem_until_answering() {
        let (levels, counters) = (Levels::default(), Arc::new(Counters::default()));
        let mut log = log(&counters);
        let table = Arc::clone(&log.table);
        let silent = || StreamError::Silent(std::time::Duration::from_secs(15));
        let problem = SetupProblem::SilentAggregator {
            address: "aggregator:7410".to_owned(),
        };
        tracing::subscriber::with_default(levels.clone(), || {
            log.on_disconnected(&silent(), false);
            log.on_disconnected(&silent(), false);
            assert_eq!(levels.take(), [Level::WARN, Level::DEBUG, Level::DEBUG]);
        });
        assert_eq!(table.problems.list(), std::slice::from_ref(&problem));
        assert!(
            problem.to_string().contains("`aggregator:7410`"),
            "{problem}"
        );
        log.on_connected(None);
        assert_eq!(table.problems.list(), []);
        log.on_disconnected(&silent(), true);
        assert_eq!(table.problems.list(), [], "a stream that was lost is none");
        log.on_disconnected(&silent(), false);
        drop(log);
        assert_eq!(table.problems.list(), []);
    }

    #[test]
    fn wrong_server_is_a_problem_after_failures() {
        let mut log = log(&Arc::new(Counters::default()));
        let table = Arc::clone(&log.table);
        let fail = |log: &mut StreamLog, status: fn(&'static str) -> Status, times| {
            (0..times).for_each(|_| {
                log.on_disconnected(&StreamError::Closed(Box::new(status("x"))), false)
            });
            table.problems.list().len()
        };
        assert_eq!(
            fail(&mut log, Status::unavailable, 10),
            0,
            "an aggregator that stops"
        );
        assert_eq!(
            fail(&mut log, Status::resource_exhausted, 10),
            0,
            "one without room"
        );
        assert_eq!(fail(&mut log, Status::unimplemented, STRANGE_MAX - 1), 0);
        log.on_connected(None);
        assert_eq!(
            fail(&mut log, Status::failed_precondition, STRANGE_MAX - 1),
            0
        );
        assert_eq!(fail(&mut log, Status::unknown, 1), 1);
        log.on_connected(None);
        assert_eq!(table.problems.list(), []);
    }

    #[test]
    fn wrong_zone_aggregator_is_one_logged_problem() {
        let (levels, counters) = (
            Levels::default(),
            Counters {
                zone: "a".to_owned(),
                ..Counters::default()
            },
        );
        let mut log = log(&Arc::new(counters));
        tracing::subscriber::with_default(levels.clone(), || {
            ["a", "b", "b"]
                .iter()
                .for_each(|zone| log.on_connected(Some(zone)));
        });
        assert_eq!(
            levels.take(),
            [Level::INFO, Level::INFO, Level::WARN, Level::INFO]
        );
        let problem = SetupProblem::ForeignZone {
            zone: "a".to_owned(),
            aggregator_zone: "b".to_owned(),
        };
        let table = Arc::clone(&log.table);
        assert_eq!(table.problems.list(), std::slice::from_ref(&problem));
        log.on_connected(Some("a"));
        assert_eq!(
            table.problems.list(),
            [],
            "the aggregator is of this zone now"
        );
        log.on_connected(Some("b"));
        assert_eq!(table.problems.list(), [problem]);
        drop(log);
        assert_eq!(table.problems.list(), []);
    }

    #[test]
    fn refusing_aggregators_count_until_connected() {
        let counters = Arc::new(Counters::default());
        let [mut one, mut other] = [(); 2].map(|()| log(&counters));
        let forbidden_now = || counters.lock_refusals().get("forbidden").copied();
        assert_eq!(forbidden_now(), None);
        one.on_disconnected(&forbidden(), false);
        one.on_disconnected(&forbidden(), false);
        other.on_disconnected(&forbidden(), false);
        assert_eq!(forbidden_now(), Some(2));
        one.on_connected(None);
        assert_eq!(forbidden_now(), Some(1));
        one.on_disconnected(&StreamError::Ended, true);
        assert_eq!(forbidden_now(), Some(1));
        drop(other);
        assert_eq!(forbidden_now(), Some(0));
    }
}
