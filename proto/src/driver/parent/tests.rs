//! The farewell of a child, as the end of its stream is logged.

use plimsoll_core::directive::Message;
use plimsoll_core::exchange::StreamRejected;
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::Report;

use super::*;
use crate::ReportEncoder;

/// A parent that accepts or rejects every report.
#[derive(Debug)]
struct Decided {
    accepts: bool,
}

impl Parent for Decided {
    fn on_report(&mut self, _: MonoTime, _: StreamId, _: Report) -> Result<bool, StreamRejected> {
        if self.accepts { Ok(false) } else { Err(StreamRejected::Unknown) }
    }

    fn on_close(&mut self, _: MonoTime, _: StreamId) {}

    fn message(&mut self, _: MonoTime, _: StreamId) -> Option<Message> {
        None
    }

    fn is_superseded(&self, _: StreamId) -> bool {
        false
    }
}

#[derive(Debug)]
struct Ignored;

impl OnRejected for Ignored {
    fn on_rejected(&self, _: &'static str) {}
}

#[test]
fn only_an_accepted_farewell_is_an_orderly_one() {
    for (leaving, accepts, is_orderly) in
        [(true, true, true), (true, false, false), (false, true, false), (false, false, false)]
    {
        let rejected = Box::new(Ignored);
        let streams = Streams::new(CancellationToken::new(), rejected);
        let mut session = Session {
            stream: StreamId(1),
            shared: Shared::new(Decided { accepts }),
            streams: Arc::new(streams),
            decoder: ReportDecoder::default(),
            unfinished_since: None,
            outgoing: None,
            interval: HEARTBEAT,
            has_greeted: true,
            guard: None,
            greeted: None,
            aggregator: None,
            is_leaving: false,
        };
        let farewell = Report { seq: 1, leaving, ..Report::default() };
        let [part] = ReportEncoder::default().encode(&farewell).try_into().unwrap();
        assert_eq!(session.take(Ok(Some(part))).ok(), accepts.then_some(true));
        assert_eq!(session.is_leaving, is_orderly, "leaving {leaving}, accepted {accepts}");
    }
}
