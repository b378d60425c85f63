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
fn counts_go_only_to_a_parent_that_has_answered_and_the_next_one_is_told_whether_it_was_the_last() {
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
    assert!(!continues(&mut outbox, PARENT), "nobody was sent anything");
    outbox.open();
    assert_eq!(fill(&mut outbox), nothing(1), "it has not answered");
    assert!(continues(&mut outbox, PARENT));
    assert!(!continues(&mut outbox, InstanceId(98)));
    assert!(!continues(&mut outbox, PARENT), "another one was in between");
    assert!(!continues(&mut outbox, PARENT), "it may still remember what was before that one");
    outbox.on_echo(Echo { covered: 1, confirmed: 0 });
    assert!(continues(&mut outbox, PARENT), "it has merged counts since");
}

/// A key that had no counts yet was sent to nobody, whoever it was defined to.
#[test]
fn a_definition_alone_sends_nobody_counts() {
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
fn an_id_goes_to_another_key_once_everything_sent_for_it_is_confirmed() {
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
    // A greeting repeats what is confirmed; its receipt is not for the key that comes after.
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
    assert!(!definition.continues, "what is remembered may be an earlier key of that name");
    outbox.on_echo(Echo { covered: 1, confirmed: 0 });
    reopen(&mut outbox);
    assert!(fill(&mut outbox, "b", 4).definitions[&KeyId(0)].continues);
}

#[test]
fn a_key_that_was_released_is_filled_where_it_was_adopted_and_nowhere_else() {
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

    // On a new stream the ids are dense again, whatever was given away; a key that comes back takes the next one.
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

/// An aggregator's keys come and go by the million on one stream.
#[test]
fn the_id_of_a_key_that_left_with_everything_confirmed_goes_to_the_next_one_in_its_place() {
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
fn the_id_of_a_key_that_left_with_something_unconfirmed_goes_to_no_other() {
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
