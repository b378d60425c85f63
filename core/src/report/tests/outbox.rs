//! What a child sends when, and how far a confirmation reaches.

use super::*;

/// An outbox on a stream whose parent has answered.
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
fn counts_go_only_to_a_parent_that_has_answered_and_the_next_one_is_told_who_it_was() {
    let mut outbox = Outbox::default();
    let fill = |outbox: &mut Outbox| {
        let mut report = Report { time: Some(MonoTime::ZERO), ..Report::default() };
        outbox.fill(&mut report, &[key("a")], |_| tally(9));
        report
    };
    let nothing = |seq, counted_by| Report { seq, counted_by, ..Report::default() };
    outbox.open();
    assert_eq!(fill(&mut outbox), nothing(1, None));
    assert_eq!(fill(&mut outbox), nothing(2, None));
    outbox.open();
    assert_eq!(fill(&mut outbox), nothing(1, None), "nobody was sent anything");
    outbox.on_answer(PARENT);
    assert_eq!(fill(&mut outbox).tallies.len(), 1);
    outbox.open();
    assert_eq!(fill(&mut outbox), nothing(1, Some(PARENT)));
    outbox.on_answer(InstanceId(98));
    fill(&mut outbox);
    outbox.open();
    assert_eq!(fill(&mut outbox), nothing(1, Some(InstanceId(98))));
}

#[test]
fn an_outbox_sends_what_changed_and_everything_on_a_new_stream() {
    let keys = [key("a"), key("b")];
    let mut outbox = answered();
    let send = |outbox: &mut Outbox, a, b| {
        let mut report = Report::default();
        outbox.fill(&mut report, &keys, |id| tally([a, b][id.index()]));
        let sent: Vec<(u32, u64)> =
            report.tallies.iter().map(|(id, tally)| (id.0, tally.counts.offered)).collect();
        (report.seq, report.definitions.len(), sent)
    };
    assert_eq!(send(&mut outbox, 1, 0), (1, 2, vec![(0, 1)]));
    assert_eq!(send(&mut outbox, 1, 0), (2, 0, vec![]));
    assert_eq!(send(&mut outbox, 1, 5), (3, 0, vec![(1, 5)]));
    // A torn read that goes back is not believed.
    assert_eq!(send(&mut outbox, 0, 6), (4, 0, vec![(1, 6)]));
    reopen(&mut outbox);
    assert_eq!(send(&mut outbox, 1, 6), (1, 2, vec![(0, 1), (1, 6)]));
}

/// The base a child gives out after `reports` reports, of which the parent has `confirmed` so many.
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
    outbox.on_echo(Echo { covered: reports, confirmed });
    reopen(&mut outbox);
    fill(&mut outbox, reports + 1).definitions[&KeyId(0)].base.offered
}

#[test]
fn a_confirmation_reaches_no_further_than_it_says_however_long_it_takes() {
    for reports in [1, 63, 64, 65, 200] {
        for confirmed in 0..=reports {
            let base = base_after(reports, confirmed);
            let told_apart = confirmed < 64 || confirmed == reports;
            let expected = if told_apart { confirmed } else { 63 };
            assert_eq!(base, expected, "{confirmed} of {reports}");
        }
    }
}

#[test]
fn a_confirmation_forgets_no_key_however_long_it_takes() {
    for changed_at in [1, 63, 64, 65, 99] {
        let keys = [key("a"), key("b")];
        let mut outbox = answered();
        let mut report = Report::default();
        for number in 1..=100 {
            let tallies = [tally(number), tally(if number < changed_at { 0 } else { 5 })];
            outbox.fill(&mut report, &keys, |id| tallies[id.index()]);
        }
        outbox.on_echo(Echo { covered: 100, confirmed: 100 });
        reopen(&mut outbox);
        let mut greeting = Report::default();
        outbox.fill(&mut greeting, &keys, |_| Tally::ZERO);
        let bases: Vec<u64> = greeting.definitions.values().map(|key| key.base.offered).collect();
        assert_eq!(bases, [100, 5], "changed at {changed_at}");
    }
}

#[test]
fn what_an_earlier_stream_left_unconfirmed_no_echo_of_a_later_one_confirms() {
    let mut outbox = answered();
    let fill = |outbox: &mut Outbox, offered| {
        let mut report = Report::default();
        outbox.fill(&mut report, &[key("a")], |_| tally(offered));
        report
    };
    for offered in [10, 20, 30] {
        fill(&mut outbox, offered);
    }
    outbox.on_echo(Echo { covered: 2, confirmed: 1 });
    reopen(&mut outbox);
    outbox.on_echo(Echo { covered: 3, confirmed: 3 });
    let definition = fill(&mut outbox, 40).definitions[&KeyId(0)].clone();
    assert_eq!((definition.base, definition.sent), (offered(10), offered(30)));
}
