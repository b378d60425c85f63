//! Tests that a lossy link loses no counts.

use proptest::collection::vec;
use proptest::prelude::*;

use super::books::enter;
use super::*;

/// A counting child with a lossy link.
trait Counting {
    /// This many more requests were decided.
    fn decide(&mut self, requests: u64);
    /// Sends a report; returns what the parent adds to its count if the report arrives.
    fn send(&mut self, arrives: bool) -> u64;
}

/// The textbook's child: deltas, which are gone once sent.
#[derive(Default)]
struct ZeroedAtSending {
    since_last: u64,
}

impl Counting for ZeroedAtSending {
    fn decide(&mut self, requests: u64) {
        self.since_last += requests;
    }

    fn send(&mut self, arrives: bool) -> u64 {
        let sent = std::mem::take(&mut self.since_last);
        if arrives { sent } else { 0 }
    }
}

/// Cumulative counts: a lost report ends its stream, and the next one comes on a new stream.
struct Cumulative {
    total: u64,
    outbox: Outbox,
    books: Books,
}

impl Counting for Cumulative {
    fn decide(&mut self, requests: u64) {
        self.total += requests;
    }

    fn send(&mut self, arrives: bool) -> u64 {
        let mut report = Report { time: Some(MonoTime::ZERO), ..Report::default() };
        self.outbox.on_answer(PARENT);
        self.outbox.fill(&mut report, &[key("a")], |_| tally(self.total));
        if !arrives {
            self.outbox.open();
            self.books.open();
            return 0;
        }
        let entered = enter(&mut self.books, &report).unwrap();
        entered.entries.iter().map(|entry| entry.delta.counts.offered).sum()
    }
}

/// Checks that nothing decided is missing once a report has arrived: the first and the last do, others by
/// `lost`.
fn check_nothing_is_lost(child: &mut impl Counting, lost: &[bool]) -> Result<(), String> {
    let mut decided = 0;
    let mut counted = 0;
    for (lost, requests) in std::iter::once(&false).chain(lost).chain([&false]).zip(1..) {
        child.decide(requests);
        decided += requests;
        counted += child.send(!lost);
    }
    if counted == decided { Ok(()) } else { Err(format!("{decided} decided, {counted} counted")) }
}

proptest! {
    #[test]
    fn counts_outlive_the_reports_that_are_lost(lost in vec(any::<bool>(), 0..20)) {
        let mut ours = Cumulative { total: 0, outbox: Outbox::default(), books: Books::new(PARENT, 100) };
        prop_assert_eq!(check_nothing_is_lost(&mut ours, &lost), Ok(()));
        let naive = check_nothing_is_lost(&mut ZeroedAtSending::default(), &lost);
        prop_assert_eq!(naive.is_err(), lost.contains(&true), "the trap does not catch: {:?}", naive);
    }
}
