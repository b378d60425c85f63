//! The messages of one stream to its parent: the parts of a report, and a farewell in the log.

use plimsoll_core::directive::Message;
use plimsoll_core::exchange::{OnRejected, Rejection, StreamRejected};
use plimsoll_core::names::{Bucket, Key, KeyId, Tenant};
use plimsoll_core::quantity::MonoTime;
use plimsoll_core::report::{Counts, KeyDefinition, Report};

use tokio_util::sync::CancellationToken;

use super::*;
use crate::{KEYS_PER_PART_MAX, ReportEncoder};

#[derive(Debug)]
struct Decided {
    accepts: bool,
    /// The keys of each report or part, and true where parts are missing.
    entered: Vec<(usize, bool)>,
}

impl Parent for Decided {
    fn on_report(
        &mut self,
        _: MonoTime,
        _: StreamId,
        report: Report,
    ) -> Result<bool, StreamRejected> {
        self.entered.push((report.definitions.len(), report.more));
        if self.accepts {
            Ok(false)
        } else {
            Err(StreamRejected::Unknown)
        }
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
    fn on_rejected(&self, _: Rejection<'_>) {}
}

fn session(accepts: bool) -> Session<Decided> {
    let streams = Streams::new(CancellationToken::new(), Box::new(Ignored));
    let parent = Shared::new(Decided {
        accepts,
        entered: Vec::new(),
    });
    let mut session = Session::new(StreamId(1), parent, Arc::new(streams), None);
    session.has_greeted = true;
    session
}

#[test]
fn large_report_enters_part_by_part() {
    let key = |id| Key {
        bucket: Bucket::new("b").unwrap(),
        tenant: Tenant::new(&format!("t{id}")).unwrap(),
    };
    let definition = |id| KeyDefinition {
        key: key(id),
        base: Counts::ZERO,
        sent: Counts::ZERO,
        continues: false,
    };
    let definitions = (0..10_000).map(|id| (KeyId(id), definition(id))).collect();
    let report = Report {
        seq: 1,
        definitions,
        ..Report::default()
    };
    let mut parts = ReportEncoder::default().encode(&report);
    let last = parts.pop().unwrap();
    let (mut session, count) = (session(true), parts.len());
    for part in parts {
        session.take(Ok(Some(part))).ok().unwrap();
        assert!(session.unfinished.is_some());
    }
    let mut now = session.shared.now();
    // Pauses of this process count as one step each.
    for _ in 0..10 {
        now = now + 2 * REPORT_TIMEOUT;
        assert!(!session.is_overdue(now));
    }
    let mut steps = (0..).take_while(|step| !session.is_overdue(now + HEARTBEAT * *step));
    assert!((50..=61).contains(&steps.by_ref().count()));
    now = now + 2 * REPORT_TIMEOUT;
    session.take(Ok(Some(last))).ok().unwrap();
    assert!(!session.is_overdue(now + 2 * REPORT_TIMEOUT));
    let entered = session.shared.with(|parent, _| parent.entered.clone());
    assert_eq!(entered.iter().map(|(keys, _)| keys).sum::<usize>(), 10_000);
    assert!(
        entered.iter().all(|(keys, _)| *keys <= KEYS_PER_PART_MAX),
        "{entered:?}"
    );
    assert_eq!(
        entered.iter().filter(|(_, more)| *more).count(),
        count,
        "the last one is complete"
    );
}

#[test]
fn only_an_accepted_farewell_is_orderly() {
    for (leaving, accepts, is_orderly) in [
        (true, true, true),
        (true, false, false),
        (false, true, false),
        (false, false, false),
    ] {
        let mut session = session(accepts);
        let farewell = Report {
            seq: 1,
            leaving,
            ..Report::default()
        };
        let [part] = ReportEncoder::default()
            .encode(&farewell)
            .try_into()
            .unwrap();
        assert_eq!(session.take(Ok(Some(part))).ok(), accepts.then_some(true));
        assert_eq!(
            session.is_leaving, is_orderly,
            "leaving {leaving}, accepted {accepts}"
        );
    }
}
