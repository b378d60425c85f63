//! Reports and books by example and by law: joins, broken reports, and what a lossy link must not cost.

mod histories;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::subsequence;

use super::*;
use crate::bucket::{Name, Tenant, Zone};

/// Who keeps the books.
const PARENT: InstanceId = InstanceId(99);

fn key(tenant: &str) -> Key {
    Key { bucket: Bucket::new("checkout").unwrap(), tenant: Tenant::new(tenant).unwrap() }
}

fn offered(offered: u64) -> Counts {
    Counts { offered, ..Counts::ZERO }
}

fn tally(offered: u64) -> Tally {
    Tally { counts: self::offered(offered), late: Counts::ZERO }
}

fn identity() -> Identity {
    Identity {
        instance: InstanceId(7),
        name: Name::new("host-7:8080").unwrap(),
        service: Name::new("checkout-api").unwrap(),
        zone: Zone::new("eu-west-1a").unwrap(),
        role: Role::Client,
    }
}

fn any_counts() -> impl Strategy<Value = Counts> {
    (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(offered, dropped, would_dropped)| Counts {
        offered,
        dropped,
        would_dropped,
    })
}

fn any_tally() -> impl Strategy<Value = Tally> {
    (any_counts(), any_counts()).prop_map(|(counts, late)| Tally { counts, late })
}

/// Reports cut out of one growing history: what one stream may carry, in any order and any number of times.
fn three_of_a_stream() -> impl Strategy<Value = [Report; 3]> {
    const KEYS: u32 = 5;
    let grown = vec((0..KEYS, 0..100u64, 0..50u64, 0..9u64), 30);
    let cut = || (0..30usize, subsequence((0..KEYS).collect::<Vec<_>>(), 0..=KEYS as usize), any::<bool>());
    (grown, [cut(), cut(), cut()]).prop_map(|(grown, cuts)| {
        cuts.map(|(reach, keys, asks)| {
            let mut tallies = [Tally::ZERO; KEYS as usize];
            for (key, offered, dropped, late) in &grown[..reach] {
                let held = &mut tallies[*key as usize];
                let step = Counts {
                    offered: offered + dropped,
                    dropped: *dropped,
                    would_dropped: 0,
                    ..Counts::ZERO
                };
                *held = held.plus(Tally { counts: step, late: self::offered(*offered.min(late)) });
            }
            let sent = |id: u32| offered(u64::from(id));
            let definition =
                |id: u32| KeyDefinition { key: key(&format!("t{id}")), base: Counts::ZERO, sent: sent(id) };
            let reached = reach as u64;
            Report {
                seq: reached + 1,
                identity: (reach % 2 == 0).then(identity),
                time: (reach > 3).then(|| MonoTime::from_micros(reached)),
                epoch: (reach > 9).then_some(Epoch(reached / 10)),
                kill: KillGeneration(reached / 7),
                asked: if asks { vec![key("x").bucket] } else { Vec::new() },
                definitions: keys.iter().map(|id| (KeyId(*id), definition(*id))).collect(),
                tallies: keys.iter().map(|id| (KeyId(*id), tallies[*id as usize])).collect(),
                leaving: reach > 25,
                children: reach as u32 / 2,
                counted_by: None,
            }
        })
    })
}

proptest! {
    #[test]
    fn reports_of_one_stream_join_in_any_order_and_any_number_of_times([a, b, c] in three_of_a_stream()) {
        let join = |one: &Report, other: &Report| one.clone().merge(other.clone());
        prop_assert_eq!(join(&a, &a), a.clone());
        prop_assert_eq!(join(&a, &b), join(&b, &a));
        prop_assert_eq!(join(&join(&a, &b), &c), join(&a, &join(&b, &c)));
        let joined = join(&a, &b);
        for (id, tally) in a.tallies.iter().chain(&b.tallies) {
            prop_assert!(joined.tallies[id].covers(*tally));
        }
    }

    #[test]
    fn tallies_join_to_the_least_that_covers_both(a in any_tally(), b in any_tally(), c in any_tally()) {
        prop_assert_eq!(a.merge(a), a);
        prop_assert_eq!(a.merge(b), b.merge(a));
        prop_assert_eq!(a.merge(b).merge(c), a.merge(b.merge(c)));
        prop_assert!(a.merge(b).covers(a) && a.merge(b).covers(b));
        prop_assert_eq!(a.covers(b), a.merge(b) == a);
        prop_assert_eq!(a.merge(Tally::ZERO), a);
        prop_assert!(!(c.covers(a) && c.covers(b)) || c.covers(a.merge(b)));
    }

    #[test]
    fn what_came_since_makes_up_the_difference(a in any_tally(), b in any_tally()) {
        let later = a.merge(b);
        prop_assert_eq!(a.plus(later.since(a)), later);
        prop_assert_eq!(a.since(later), Tally::ZERO);
        prop_assert!(a.plus(b).covers(a));
    }
}

/// Books after two sound reports: keys `a` (10 requests, 2 of them late and 1 refused) and `b` (nothing yet).
fn books() -> Books {
    let mut books = Books::new(InstanceId(7), PARENT, 100);
    let counts = Counts { offered: 10, dropped: 1, would_dropped: 0, ..Counts::ZERO };
    let definition =
        |tenant: &str| KeyDefinition { key: key(tenant), base: Counts::ZERO, sent: Counts::ZERO };
    let first = Report {
        seq: 1,
        time: Some(MonoTime::from_micros(1)),
        definitions: [(KeyId(0), definition("a"))].into(),
        tallies: [(KeyId(0), Tally { counts, late: offered(2) })].into(),
        ..Report::default()
    };
    let second = Report { seq: 2, definitions: [(KeyId(1), definition("b"))].into(), ..Report::default() };
    for report in [first, second] {
        enter(&mut books, &report).unwrap();
    }
    books
}

/// Enters a report with every key in place `own = its number in order of appearance`.
fn enter(books: &mut Books, report: &Report) -> Result<Entered, BrokenReport> {
    books.enter(MonoTime::ZERO, report, |key| Some(KeyId(u32::from(key.tenant.as_str().as_bytes()[0]))))
}

/// A broken report is refused for the reason given, asks for no room, and leaves no trace: the good report that
/// comes in its place counts as if nothing had happened.
fn check_refused(broken: &Report, why: &BrokenReport) {
    let mut books = books();
    let refused = books.enter(MonoTime::ZERO, broken, |key| panic!("{key:?} asked for room"));
    assert_eq!(refused.as_ref(), Err(why));
    assert_eq!(books.seq(), 2);

    let counts = Counts { offered: 15, dropped: 2, would_dropped: 0, ..Counts::ZERO };
    let definition = KeyDefinition { key: key("c"), base: Counts::ZERO, sent: Counts::ZERO };
    let good = Report {
        seq: 3,
        time: Some(MonoTime::from_micros(2_000)),
        definitions: [(KeyId(2), definition)].into(),
        tallies: [(KeyId(0), Tally { counts, late: offered(2) }), (KeyId(1), tally(4)), (KeyId(2), tally(3))]
            .into(),
        ..Report::default()
    };
    let entered = enter(&mut books, &good).unwrap();
    let observed = |tenant: u8, delta| Entry {
        own: Some(KeyId(u32::from(tenant))),
        delta,
        pedigree: Pedigree::Observed,
    };
    let new = Tally {
        counts: Counts { offered: 5, dropped: 1, would_dropped: 0, ..Counts::ZERO },
        late: Counts::ZERO,
    };
    assert_eq!(
        entered.entries,
        [observed(b'a', new), observed(b'b', tally(4)), observed(b'c', tally(3))],
        "after {why}"
    );
    assert_eq!((entered.unconfirmed, entered.homeless), (0, 0));
    assert_eq!(entered.span.map(|span| span.as_micros()), Some(1_999));
}

#[test]
fn a_broken_report_is_refused_and_leaves_the_books_as_they_were() {
    let good = Report { seq: 3, time: Some(MonoTime::from_micros(1_000)), ..Report::default() };
    let counts = |id: u32, counts: Counts, late: Counts| Report {
        tallies: [(KeyId(id), Tally { counts, late })].into(),
        ..good.clone()
    };
    let defines = |id: u32, base: u64, sent: u64| Report {
        definitions: [(KeyId(id), KeyDefinition { key: key("c"), base: offered(base), sent: offered(sent) })]
            .into(),
        ..good.clone()
    };
    let of = |offered, dropped, would_dropped| Counts { offered, dropped, would_dropped, ..Counts::ZERO };
    let none = Counts::ZERO;

    let late = |got| (Report { seq: got, ..good.clone() }, BrokenReport::Late { held: 2, got });
    let inconsistent = |tenant: &str| BrokenReport::Inconsistent(key(tenant));
    let went_back = |tenant: &str| BrokenReport::WentBack(key(tenant));
    let table = [
        late(0),
        late(1),
        late(2),
        (defines(1, 0, 0), BrokenReport::Definition(1)),
        (defines(3, 0, 0), BrokenReport::Definition(3)),
        (defines(u32::MAX, 0, 0), BrokenReport::Definition(u32::MAX)),
        (defines(2, 6, 5), went_back("c")),
        (counts(2, of(1, 0, 0), none), BrokenReport::Undefined(2)),
        (counts(u32::MAX, of(1, 0, 0), none), BrokenReport::Undefined(u32::MAX)),
        (counts(0, of(12, 13, 0), offered(2)), inconsistent("a")),
        (counts(0, of(12, 7, 6), offered(2)), inconsistent("a")),
        (counts(0, of(u64::MAX, u64::MAX, 1), offered(2)), inconsistent("a")),
        (counts(0, of(12, 1, 0), offered(13)), inconsistent("a")),
        (counts(1, of(3, 0, 0), of(3, 1, 0)), inconsistent("b")),
        (counts(0, of(9, 1, 0), offered(2)), went_back("a")),
        (counts(0, of(12, 0, 0), offered(2)), went_back("a")),
        (counts(0, of(12, 1, 0), offered(1)), went_back("a")),
        (Report { tallies: counts(2, of(4, 0, 0), none).tallies, ..defines(2, 0, 5) }, went_back("c")),
        (Report { time: None, ..counts(0, of(12, 1, 0), offered(2)) }, BrokenReport::Timeless),
    ];
    for (broken, why) in &table {
        check_refused(broken, why);
    }
}

#[test]
fn one_broken_entry_spoils_the_whole_report() {
    let definition = KeyDefinition { key: key("c"), base: Counts::ZERO, sent: Counts::ZERO };
    let report = Report {
        seq: 3,
        time: Some(MonoTime::from_micros(1_000)),
        definitions: [(KeyId(2), definition)].into(),
        tallies: [
            (
                KeyId(0),
                Tally {
                    counts: Counts { offered: 99, dropped: 1, would_dropped: 0, ..Counts::ZERO },
                    late: offered(2),
                },
            ),
            (KeyId(1), tally(99)),
            (KeyId(3), tally(1)),
        ]
        .into(),
        ..Report::default()
    };
    check_refused(&report, &BrokenReport::Undefined(3));
}

#[test]
fn a_report_without_a_time_counts_nothing_and_measures_nothing() {
    let mut books = books();
    let alive = Report { seq: 3, ..Report::default() };
    assert_eq!(enter(&mut books, &alive).unwrap(), Entered::default());
    let next = Report { seq: 4, time: Some(MonoTime::from_micros(500_001)), ..Report::default() };
    let span = enter(&mut books, &next).unwrap().span;
    assert_eq!(span.map(|span| span.as_millis()), Some(500), "from the last report with a time");
}

#[test]
fn a_key_without_room_is_counted_as_homeless_once_and_its_figures_are_kept_apart() {
    let mut books = books();
    let definition = KeyDefinition { key: key("c"), base: Counts::ZERO, sent: Counts::ZERO };
    let report = |seq, offered| Report {
        seq,
        time: Some(MonoTime::from_micros(seq)),
        tallies: [(KeyId(2), tally(offered))].into(),
        ..Report::default()
    };
    let first = Report { definitions: [(KeyId(2), definition)].into(), ..report(3, 5) };
    let entered = books.enter(MonoTime::ZERO, &first, |_| None).unwrap();
    let homeless = |delta| Entry { own: None, delta, pedigree: Pedigree::Observed };
    assert_eq!((entered.homeless, entered.entries), (1, vec![homeless(tally(5))]));
    let entered = books.enter(MonoTime::ZERO, &report(4, 7), |_| None).unwrap();
    assert_eq!((entered.homeless, entered.entries), (0, vec![homeless(tally(2))]));
}

/// One key of a child that greets again. `remembered` is what the parent holds of it, `base`, `sent` and `value`
/// what the child says; `counted` and `unconfirmed` is what comes of it.
struct Return {
    counted_by: InstanceId,
    remembered: Option<u64>,
    base: u64,
    sent: u64,
    value: u64,
    counted: u64,
    unconfirmed: u64,
    pedigree: Pedigree,
}

#[test]
fn where_counting_goes_on_from() {
    use Pedigree::{Observed, TakenOver};
    let row = |remembered, (base, sent, value), counted, unconfirmed, pedigree| Return {
        counted_by: PARENT,
        remembered,
        base,
        sent,
        value,
        counted,
        unconfirmed,
        pedigree,
    };
    for case in [
        // A key nobody ever heard of.
        row(None, (0, 0, 9), 9, 0, Observed),
        // The parent remembers: everything, part of what was sent, only what is confirmed.
        row(Some(30), (10, 30, 35), 5, 0, Observed),
        row(Some(20), (10, 30, 35), 15, 0, Observed),
        row(Some(10), (10, 30, 35), 25, 0, Observed),
        // It remembers less than was confirmed meanwhile, or nothing.
        row(Some(9), (10, 30, 35), 5, 20, TakenOver),
        row(None, (10, 30, 35), 5, 20, TakenOver),
        row(None, (30, 30, 35), 5, 0, TakenOver),
        row(None, (0, 30, 35), 5, 30, TakenOver),
        // It remembers, but another parent was in between and may have counted the rest.
        Return { counted_by: InstanceId(98), ..row(Some(20), (10, 30, 35), 5, 20, TakenOver) },
        Return { counted_by: InstanceId(98), ..row(Some(30), (10, 30, 35), 5, 20, TakenOver) },
    ] {
        check_return(&case);
    }
}

fn check_return(case: &Return) {
    let mut books = Books::new(InstanceId(7), PARENT, 100);
    let greeting = |base, sent, value| Report {
        seq: 1,
        counted_by: Some(case.counted_by),
        time: Some(MonoTime::from_micros(value)),
        definitions: [(KeyId(0), KeyDefinition { key: key("a"), base: offered(base), sent: offered(sent) })]
            .into(),
        tallies: [(KeyId(0), tally(value))].into(),
        ..Report::default()
    };
    if let Some(remembered) = case.remembered {
        enter(&mut books, &greeting(0, 0, remembered)).unwrap();
        books.open();
    }
    let entered = enter(&mut books, &greeting(case.base, case.sent, case.value)).unwrap();
    let label = format!("{:?} at {}, {}, {}", case.remembered, case.base, case.sent, case.value);
    assert_eq!(entered.unconfirmed, case.unconfirmed, "{label}");
    let entry =
        Entry { own: Some(KeyId(u32::from(b'a'))), delta: tally(case.counted), pedigree: case.pedigree };
    assert_eq!(entered.entries, [entry], "{label}");

    let next = Report {
        seq: 2,
        time: Some(MonoTime::from_micros(case.value + 1)),
        tallies: [(KeyId(0), tally(case.value + 2))].into(),
        ..Report::default()
    };
    let entered = enter(&mut books, &next).unwrap();
    let two = Entry { own: entry.own, delta: tally(2), pedigree: Pedigree::Observed };
    assert_eq!((entered.unconfirmed, entered.entries), (0, vec![two]), "{label}: what comes next is plain");
}

#[test]
fn a_greeting_that_was_overtaken_by_a_later_one_takes_nothing_back() {
    let mut books = Books::new(InstanceId(7), PARENT, 100);
    let greeting = |sent, value| Report {
        seq: 1,
        counted_by: Some(PARENT),
        time: Some(MonoTime::from_micros(value)),
        definitions: [(KeyId(0), KeyDefinition { key: key("a"), base: Counts::ZERO, sent: offered(sent) })]
            .into(),
        tallies: [(KeyId(0), tally(value))].into(),
        ..Report::default()
    };
    let mut counted = 0;
    for (sent, value) in [(0, 20), (35, 36), (20, 35), (36, 40)] {
        books.open();
        let entered = enter(&mut books, &greeting(sent, value)).unwrap();
        counted += entered.entries.iter().map(|entry| entry.delta.counts.offered).sum::<u64>();
    }
    assert_eq!(counted, 40);
}

/// A child that counts, over a link that may lose what it sends.
trait Counting {
    /// This many more requests were decided.
    fn decide(&mut self, requests: u64);
    /// Sends what there is to send; what the parent adds to its count, if it arrives.
    fn send(&mut self, arrives: bool) -> u64;
}

/// The textbook's child: what was sent is no longer there to be sent again.
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

/// Ours: a report that is lost takes its stream with it, the next one comes on a new stream.
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

/// Nothing decided may be missing once a report has arrived: the first and the last do, `lost` says which others.
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
        let mut ours = Cumulative { total: 0, outbox: Outbox::default(), books: Books::new(InstanceId(7), PARENT, 100) };
        prop_assert_eq!(check_nothing_is_lost(&mut ours, &lost), Ok(()));
        let naive = check_nothing_is_lost(&mut ZeroedAtSending::default(), &lost);
        prop_assert_eq!(naive.is_err(), lost.contains(&true), "the trap does not catch: {:?}", naive);
    }
}

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
