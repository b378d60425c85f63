//! The log of one stream: the first failure of a kind and the return as warning and info, repeated attempts at debug
//! level.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use plimsoll_proto::driver::child::{Observer, StreamError};

use super::health::Counters;

/// Counts and logs the state of the connection to one aggregator.
pub(super) struct StreamLog {
    counters: Arc<Counters>,
    is_connected: bool,
    /// The reason for which the last connection was refused for lack of trust.
    refused: Option<&'static str>,
    /// The reasons of failures since the last connection that were logged as warnings; `None` is any that is not about
    /// trust. At most one of each.
    warned: Vec<Option<&'static str>>,
}

impl StreamLog {
    pub(super) const fn new(counters: Arc<Counters>) -> Self {
        Self { counters, is_connected: false, refused: None, warned: Vec::new() }
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

impl Observer for StreamLog {
    fn on_connected(&mut self, zone: Option<&str>) {
        self.counters.connected.fetch_add(1, Ordering::Relaxed);
        self.is_connected = true;
        self.set_refused(None);
        self.warned.clear();
        tracing::info!("aggregator connected");
        if let Some(zone) = zone.filter(|zone| *zone != self.counters.zone)
            && !self.counters.is_foreign.swap(true, Ordering::Relaxed)
        {
            tracing::error!(
                zone = self.counters.zone,
                aggregator_zone = zone,
                "this service names another zone than its aggregator, and shares the limits of the aggregator's zone: set the \
                 zone of the limiter, or connect it to an aggregator of its zone"
            );
        }
    }

    fn on_renewed(&mut self) {
        tracing::info!("stream continued with the renewed certificate");
    }

    fn on_disconnected(&mut self, error: &StreamError, was_connected: bool) {
        self.close();
        self.counters.disconnects.fetch_add(u64::from(was_connected), Ordering::Relaxed);
        let is_invalid = matches!(error, StreamError::Decode(_));
        self.counters.invalid.fetch_add(u64::from(is_invalid), Ordering::Relaxed);
        let reason = error.refusal();
        self.set_refused(reason);
        let is_repeated = self.warned.contains(&reason);
        if !is_repeated {
            self.warned.push(reason);
        }
        match reason {
            _ if was_connected => {
                tracing::warn!(%error, reason, "aggregator lost; the directives held stay in force");
            }
            _ if is_repeated => tracing::debug!(%error, reason, "aggregator still unreachable"),
            Some(reason) => {
                tracing::warn!(%error, reason, "connection not trusted; the directives held stay in force");
            }
            None => tracing::warn!(%error, "aggregator unreachable; the directives held stay in force"),
        }
    }

    fn on_rejected(&mut self, error: &dyn Error) {
        tracing::debug!(%error, "directives rejected; those held stay in force");
    }
}

impl Drop for StreamLog {
    /// Counts the end of a stream that was closed in good order.
    fn drop(&mut self) {
        self.close();
        self.set_refused(None);
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

    /// Keeps the levels of all events.
    #[derive(Clone, Debug, Default)]
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

    fn forbidden() -> StreamError {
        StreamError::Closed(Box::new(Status::permission_denied("another zone")))
    }

    #[test]
    fn each_reason_is_a_warning_once_until_the_connection_is_back() {
        let (levels, counters) = (Levels::default(), Arc::new(Counters::default()));
        let mut log = StreamLog::new(Arc::clone(&counters));
        tracing::subscriber::with_default(levels.clone(), || {
            let refusals = [forbidden(), forbidden(), StreamError::Ended, forbidden(), StreamError::Ended];
            refusals.iter().for_each(|error| log.on_disconnected(error, false));
            assert_eq!(levels.take(), [Level::WARN, Level::DEBUG, Level::WARN, Level::DEBUG, Level::DEBUG]);
            log.on_connected(None);
            log.on_disconnected(&forbidden(), true);
            log.on_disconnected(&forbidden(), false);
            assert_eq!(levels.take(), [Level::INFO, Level::WARN, Level::DEBUG]);
        });
    }

    #[test]
    fn aggregators_that_refuse_are_counted_until_they_connect_or_are_left() {
        let counters = Arc::new(Counters::default());
        let [mut one, mut other] = [(); 2].map(|()| StreamLog::new(Arc::clone(&counters)));
        let forbidden_now = || counters.refused().get("forbidden").copied();
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
