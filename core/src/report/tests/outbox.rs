//! The reports that an outbox fills, and how far an acknowledgement reaches.

use super::*;

/// An outbox with a stream to a parent that has answered.
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
fn counts_are_sent_after_the_parent_answers_and_definitions_say_if_it_was_the_last_parent() {
    let mut outbox = Outbox::default();
    let fill = |outbox: &mut Outbox| {
        let mut report = Report { time: Some(MonoTime::ZERO), ..Report::default() };
        outbox.fill(&mut report, &[key("a")], |_| tally(9));
        report
    };
    let nothing = |seq| Report { seq, ..Report::default() };
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
    assert!(!continues(&mut outbox, PARENT), "no parent was sent counts on the first stream");
    outbox.open();
    assert_eq!(fill(&mut outbox), nothing(1), "the parent has not answered on this stream");
    assert!(continues(&mut outbox, PARENT));
    assert!(!continues(&mut outbox, InstanceId(98)));
    assert!(!continues(&mut outbox, PARENT), "another parent was sent counts in between");
    assert!(
        !continues(&mut outbox, PARENT),
        "the parent has merged nothing yet, and may remember counts from before the other one"
    );
    outbox.on_echo(Echo { covered: 1, confirmed: 0 });
    assert!(continues(&mut outbox, PARENT), "the parent has merged counts of this stream");
}

#[test]
fn definition_without_counts_does_not_make_the_parent_the_last_one() {
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
fn slot_goes_to_another_key_once_everything_sent_is_confirmed() {
    let mut outbox = answered();
    let fill = |outbox: &mut Outbox, first: &str, offered: u64| {
        let mut report = Report::default();
        outbox.fill(&mut report, &[key(first), key("other")], |id| tally([offered, 1][id.index()]));
        report
    };
    let confirm = |outbox: &mut Outbox, confirmed| outbox.on_echo(Echo { covered: confirmed, confirmed });
    fill(&mut outbox, "a", 5);
    fill(&mut outbox, "a", 9);
    confirm(&mut outbox, 1);
    assert!(!outbox.is_settled(KeyId(0), tally(9)) && !outbox.replace(KeyId(0)));
    confirm(&mut outbox, 2);
    assert!(outbox.is_settled(KeyId(0), tally(9)));
    assert!(!outbox.is_settled(KeyId(0), tally(10)), "one more was counted since");
    // A new stream repeats confirmed counts. Their acknowledgement is not one for the next key in the slot.
    reopen(&mut outbox);
    assert_eq!(fill(&mut outbox, "a", 9).tallies.len(), 2);
    assert!(outbox.replace(KeyId(0)));
    let report = fill(&mut outbox, "b", 3);
    let definition =
        KeyDefinition { key: key("b"), base: Counts::ZERO, sent: Counts::ZERO, continues: false };
    assert_eq!(report.definitions, [(KeyId(0), definition)].into());
    assert_eq!(report.tallies, [(KeyId(0), tally(3))].into());
    confirm(&mut outbox, 1);
    reopen(&mut outbox);
    let definition = &fill(&mut outbox, "b", 4).definitions[&KeyId(0)];
    assert_eq!((definition.base, definition.sent), (Counts::ZERO, offered(3)));
    assert!(!definition.continues, "the parent may remember an earlier key of that name");
    outbox.on_echo(Echo { covered: 1, confirmed: 0 });
    reopen(&mut outbox);
    assert!(fill(&mut outbox, "b", 4).definitions[&KeyId(0)].continues);
}

#[test]
fn released_key_is_reported_by_the_outbox_that_adopts_it_and_by_no_other() {
    let keys = ["a", "b", "c"].map(key);
    let fill = |outbox: &mut Outbox, keys: &[Key], offered: u64| {
        let mut report = Report::default();
        outbox.fill(&mut report, keys, |_| tally(offered));
        report
    };
    let ids = |report: &Report| report.tallies.iter().map(|(id, _)| id.0).collect::<Vec<_>>();
    let (mut one, mut other) = (answered(), Outbox::default());
    other.open();
    other.on_answer(InstanceId(98));
    fill(&mut one, &keys, 5);
    one.on_echo(Echo { covered: 1, confirmed: 1 });
    fill(&mut one, &keys, 7);
    let handed = one.release(KeyId(1)).unwrap();
    assert_eq!(one.release(KeyId(1)), None);
    one.on_echo(Echo { covered: 2, confirmed: 2 });
    assert_eq!(ids(&fill(&mut one, &keys, 8)), [0, 2]);

    other.adopt(KeyId(0), handed);
    let report = fill(&mut other, &keys[1..2], 8);
    let definition = KeyDefinition { key: key("b"), base: offered(5), sent: offered(7), continues: false };
    assert_eq!(report.definitions, [(KeyId(0), definition)].into());
    assert_eq!(report.tallies, [(KeyId(0), tally(8))].into());

    // On a new stream the wire ids are dense again, without the released key. Once it is back it takes the
    // next one.
    reopen(&mut one);
    let report = fill(&mut one, &keys, 9);
    assert_eq!(report.definitions.keys().map(|id| id.0).collect::<Vec<_>>(), [0, 1]);
    assert_eq!((&report.definitions[&KeyId(1)].key, ids(&report)), (&key("c"), vec![0, 1]));
    one.adopt(KeyId(1), other.release(KeyId(0)).unwrap());
    let report = fill(&mut one, &keys, 10);
    let definition = KeyDefinition { key: key("b"), base: offered(5), sent: offered(8), continues: false };
    assert_eq!(report.definitions, [(KeyId(2), definition)].into());
    assert_eq!(ids(&report), [0, 1, 2]);
}

#[test]
fn report_carries_changed_keys_and_on_a_new_stream_all_keys() {
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
    // A total that seems to go back, because it was read during a write, is ignored.
    assert_eq!(send(&mut outbox, 0, 6), (4, 0, vec![(1, 6)]));
    reopen(&mut outbox);
    assert_eq!(send(&mut outbox, 1, 6), (1, 2, vec![(0, 1), (1, 6)]));
}

/// Returns the base of a definition that follows `reports` reports, the first `confirmed` of which are
/// confirmed.
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
fn late_confirmation_confirms_no_report_beyond_its_number() {
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
fn late_confirmation_confirms_every_key_of_joined_reports() {
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
fn acknowledgement_on_a_new_stream_confirms_nothing_of_the_former_one() {
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

/// An aggregator sees millions of keys come and go on one stream; their wire ids must not add up.
#[test]
fn wire_id_of_a_confirmed_key_goes_to_the_next_key_in_its_slot() {
    let mut outbox = answered();
    for seq in 1..=50 {
        let name = key(&format!("passing-{seq}"));
        let mut report = Report::default();
        outbox.fill(&mut report, &[name], |_| tally(3));
        assert_eq!(report.definitions.keys().collect::<Vec<_>>(), [&KeyId(0)], "report {seq}");
        outbox.on_echo(Echo { covered: seq, confirmed: seq });
        assert!(outbox.release(KeyId(0)).is_some());
        outbox.replace(KeyId(0));
    }
}

#[test]
fn wire_id_of_an_unconfirmed_key_is_not_reused() {
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
