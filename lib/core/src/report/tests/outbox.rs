//! The reports that an outbox fills, and how far an acknowledgement reaches.

use super::*;

fn answered() -> Outbox {
    let mut outbox = Outbox::default();
    reopen(&mut outbox);
    outbox
}

fn reopen(outbox: &mut Outbox) {
    outbox.open();
    outbox.on_answer(PARENT);
}

#[test]
fn counts_wait_for_the_parent_to_answer() {
    let mut outbox = Outbox::default();
    let fill = |outbox: &mut Outbox| {
        let mut report = Report {
            time: Some(MonoTime::ZERO),
            ..Report::default()
        };
        outbox.fill(&mut report, &[key("a")], |_| tally(9));
        report
    };
    let nothing = |seq| Report {
        seq,
        ..Report::default()
    };
    let continues = |outbox: &mut Outbox, parent| {
        outbox.open();
        outbox.on_answer(parent);
        let report = fill(outbox);
        assert_eq!((report.definitions.len(), report.tallies.len()), (1, 1));
        report.definitions[&KeyId(0)].continues
    };
    outbox.open();
    assert_eq!(fill(&mut outbox), nothing(1));
    assert_eq!(fill(&mut outbox), nothing(2));
    assert!(
        !continues(&mut outbox, PARENT),
        "no parent was sent counts on the first stream"
    );
    outbox.open();
    assert_eq!(
        fill(&mut outbox),
        nothing(1),
        "the parent has not answered on this stream"
    );
    assert!(continues(&mut outbox, PARENT));
    assert!(!continues(&mut outbox, InstanceId(98)));
    assert!(
        !continues(&mut outbox, PARENT),
        "another parent was sent counts in between"
    );
    assert!(
        !continues(&mut outbox, PARENT),
        "the parent has merged nothing yet, and may remember counts from before the other one"
    );
    outbox.on_echo(Echo {
        covered: 1,
        confirmed: 0,
    });
    assert!(
        continues(&mut outbox, PARENT),
        "the parent has merged counts of this stream"
    );
}

#[test]
fn definition_without_counts_changes_no_last_parent() {
    let mut outbox = answered();
    let mut report = Report::default();
    outbox.fill(&mut report, &[key("a")], |_| Tally::ZERO);
    assert_eq!((report.definitions.len(), report.tallies.len()), (1, 0));
    reopen(&mut outbox);
    let mut report = Report::default();
    outbox.fill(&mut report, &[key("a")], |_| tally(1));
    assert!(!report.definitions[&KeyId(0)].continues);
}

#[test]
fn new_stream_reports_all_keys() {
    let keys = [key("a"), key("b")];
    let mut outbox = answered();
    let send = |outbox: &mut Outbox, a, b| {
        let mut report = Report::default();
        outbox.fill(&mut report, &keys, |id| tally([a, b][id.index()]));
        let sent: Vec<(u32, u64)> = report
            .tallies
            .iter()
            .map(|(id, tally)| (id.0, tally.counts.offered))
            .collect();
        (report.seq, report.definitions.len(), sent)
    };
    assert_eq!(send(&mut outbox, 1, 0), (1, 2, vec![(0, 1)]));
    assert_eq!(send(&mut outbox, 1, 0), (2, 0, vec![]));
    assert_eq!(send(&mut outbox, 1, 5), (3, 0, vec![(1, 5)]));
    // A total that seems to go back, because it was read during a write, is ignored.
    assert_eq!(send(&mut outbox, 0, 6), (4, 0, vec![(1, 6)]));
    reopen(&mut outbox);
    assert_eq!(send(&mut outbox, 1, 6), (1, 2, vec![(0, 1), (1, 6)]));
}

/// Returns the base of a definition that follows `reports` reports; the first `confirmed` reports
/// are confirmed.
fn base_after(reports: u64, confirmed: u64) -> u64 {
    let mut outbox = answered();
    let fill = |outbox: &mut Outbox, offered| {
        let mut report = Report::default();
        outbox.fill(&mut report, &[key("a")], |_| tally(offered));
        report
    };
    for offered in 1..=reports {
        fill(&mut outbox, offered);
    }
    outbox.on_echo(Echo {
        covered: reports,
        confirmed,
    });
    reopen(&mut outbox);
    fill(&mut outbox, reports + 1).definitions[&KeyId(0)]
        .base
        .offered
}

#[test]
fn late_confirmation_stops_at_its_number() {
    for reports in [1, 63, 64, 65, 200] {
        for confirmed in 0..=reports {
            let base = base_after(reports, confirmed);
            let is_kept_apart = confirmed < 64 || confirmed == reports;
            let expected = if is_kept_apart { confirmed } else { 63 };
            assert_eq!(base, expected, "{confirmed} of {reports}");
        }
    }
}

#[test]
fn unconfirmed_wire_id_is_not_reused() {
    let mut outbox = answered();
    let fill = |outbox: &mut Outbox, name: &str| {
        let mut report = Report::default();
        outbox.fill(&mut report, &[key(name)], |_| tally(3));
        report.definitions.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(fill(&mut outbox, "a"), [KeyId(0)]);
    assert!(outbox.release(KeyId(0)).is_some());
    assert!(outbox.replace(KeyId(0)));
    assert_eq!(fill(&mut outbox, "b"), [KeyId(1)]);
}
