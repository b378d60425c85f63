//! Tests of the places for children, and of the messages sent to each.

use super::*;
use crate::decision::Mode;
use crate::directive::{Board, Directives, Epoch, Leader, SentLead};
use crate::directive::{BucketDirective, KeyDirective, Terms, Values};
use crate::kill::drill::Drill;
use crate::kill::{KillGeneration, Kills};
use crate::names::{Key, KeyId, Name, TablePlace, Tenant, Zone};
use crate::quantity::{DropRatio, Limit, Rate};
use crate::report::{Counts, Echo, KeyDefinition, New, Role};

const HEAD: Head = Head {
    lead: SentLead {
        leader: Some(Leader {
            epoch: Epoch(3),
            instance: None,
        }),
        forgotten: KillGeneration(0),
        policy_hash: Some(9),
        unconfirmed: false,
    },
    kills: 0,
    drill: Drill(0),
    report_interval: None,
};

fn at(ms: u64) -> MonoTime {
    MonoTime::from_elapsed(Duration::from_millis(ms))
}

fn identity(instance: u128) -> Identity {
    Identity {
        instance: InstanceId(instance),
        name: Name::new(&format!("host-{instance}")).unwrap(),
        service: Name::new("checkout-api").unwrap(),
        zone: Zone::new("eu-west-1a").unwrap(),
        role: Role::Client,
    }
}

fn bucket() -> Bucket {
    Bucket::new("checkout").unwrap()
}

fn directive(tenths: Option<u32>, whole: bool) -> BucketDirective {
    let ratio = tenths.map(|tenths| DropRatio::new(DropRatio::ONE / 10 * tenths).unwrap());
    BucketDirective {
        bucket: bucket(),
        whole,
        terms: Terms {
            limit: Limit::PerSecond(Rate::new(100.0).unwrap()),
            mode: Mode::Enforce,
            ..Terms::default()
        },
        keys: vec![KeyDirective {
            tenant: Tenant::default_class(),
            values: Values {
                ratio,
                guard: tenths.map(|_| Rate::ZERO),
                ..Values::default()
            },
        }],
    }
}

fn board() -> Board {
    let mut board = Board::default();
    board.apply(&directive(Some(5), true));
    board
}

fn listener(roster: &mut Sessions) -> &mut ChildSession {
    let child = roster.open(at(0), StreamId(1), identity(1)).unwrap();
    child.subscribe(&bucket());
    child
}

impl ChildSession {
    fn next(&mut self, ms: u64, board: &mut Board, values: bool) -> Option<Directives> {
        self.next_with(ms, HEAD, board, values, Echo::default())
    }

    fn next_with(
        &mut self,
        ms: u64,
        head: Head,
        board: &mut Board,
        values: bool,
        echo: Echo,
    ) -> Option<Directives> {
        self.next_message(at(ms), head, board, values, echo, &Kills::default())
            .map(Directives::from)
    }
}

impl Sessions {
    fn instances(&self) -> Vec<u128> {
        self.iter().map(|child| child.identity.instance.0).collect()
    }
}

#[test]
fn longest_disconnected_child_is_evicted_first() {
    let mut roster = Sessions::new(InstanceId(99), 3, 100);
    for instance in [1, 2, 3] {
        roster
            .open(at(0), StreamId(instance), identity(instance.into()))
            .unwrap();
    }
    assert_eq!(
        roster.open(at(1), StreamId(4), identity(4)).unwrap_err(),
        StreamRejected::Full(3)
    );
    assert!(
        roster.by_stream(StreamId(4)).is_none(),
        "one who found no place has no stream either"
    );
    roster
        .open(at(2), StreamId(5), identity(1))
        .expect("a place of one's own is always there");

    roster.close(at(10), StreamId(3));
    roster.close(at(20), StreamId(2));
    roster.open(at(30), StreamId(6), identity(4)).unwrap();
    assert_eq!(roster.instances(), [1, 2, 4], "3 was away longest");
    roster.open(at(31), StreamId(7), identity(5)).unwrap();
    assert_eq!(roster.instances(), [1, 4, 5]);
    assert_eq!(
        roster.open(at(32), StreamId(8), identity(2)).unwrap_err(),
        StreamRejected::Full(3)
    );
}

#[test]
fn disconnected_child_is_remembered_two_minutes() {
    let mut roster = Sessions::new(InstanceId(99), 9, 100);
    roster.open(at(0), StreamId(1), identity(1)).unwrap();
    roster.open(at(0), StreamId(2), identity(2)).unwrap();
    assert_eq!(roster.close(at(1_000), StreamId(1)), Some(InstanceId(1)));
    assert_eq!(roster.prune(at(1_000) + REMEMBERED), []);
    assert_eq!(
        roster
            .connected()
            .map(|child| child.identity.instance.0)
            .collect::<Vec<_>>(),
        [2]
    );
    assert_eq!(roster.prune(at(1_001) + REMEMBERED), [InstanceId(1)]);
    assert_eq!(
        roster.instances(),
        [2],
        "one who is connected is never forgotten, however quiet"
    );
}

#[test]
fn new_stream_keeps_the_old_books() {
    let mut roster = Sessions::new(InstanceId(99), 9, 100);
    roster
        .open(at(0), StreamId(1), identity(1))
        .unwrap()
        .confirmed = 8;
    assert!(!roster.is_superseded(StreamId(1)));

    let child = roster.open(at(70), StreamId(2), identity(1)).unwrap();
    assert_eq!((child.since, child.last_report), (at(0), at(70)));
    assert_eq!(child.confirmed, 0, "numbers of another stream mean nothing");
    assert!(roster.is_superseded(StreamId(1)));
    assert!(!roster.is_superseded(StreamId(2)));
    assert!(roster.by_stream(StreamId(1)).is_none());

    // The end of the old stream leaves the child connected.
    assert_eq!(roster.close(at(80), StreamId(1)), None);
    assert_eq!(
        roster.by_stream(StreamId(2)).unwrap().stream,
        Some(StreamId(2))
    );
    assert_eq!(roster.close(at(90), StreamId(2)), Some(InstanceId(1)));
    assert_eq!(roster.close(at(90), StreamId(2)), None);
    assert_eq!(roster.get(InstanceId(1)).unwrap().last_report, at(90));
}

#[test]
fn session_stays_with_its_certificate() {
    let mut roster = Sessions::new(InstanceId(99), 9, 100);
    roster.open(at(0), StreamId(1), identity(1)).unwrap();
    let others = [
        Identity {
            service: Name::new("cart").unwrap(),
            ..identity(1)
        },
        Identity {
            zone: Zone::new("eu-west-1b").unwrap(),
            ..identity(1)
        },
        Identity {
            role: Role::Aggregator,
            ..identity(1)
        },
    ];
    for is_connected in [true, false] {
        for other in &others {
            let greeting = Report {
                greeting: Some(other.clone()).into(),
                ..Report::default()
            };
            let checked = roster.check(StreamId(2), &greeting).map(|_| ());
            assert!(
                matches!(checked, Err(StreamRejected::WrongTier(_))),
                "{is_connected} {other:?} {checked:?}"
            );
            assert!(
                roster.open(at(1), StreamId(2), other.clone()).is_err(),
                "{is_connected} {other:?}"
            );
            assert_eq!(roster.get(InstanceId(1)).unwrap().identity, identity(1));
        }
        roster.close(at(2), StreamId(1));
    }
}

#[test]
fn overtaken_stream_does_not_return() {
    let mut roster = Sessions::new(InstanceId(99), 9, 100);
    roster.open(at(0), StreamId(2), identity(1)).unwrap();
    assert_eq!(
        roster.open(at(1), StreamId(1), identity(1)).unwrap_err(),
        StreamRejected::Unknown
    );
    assert!(roster.by_stream(StreamId(1)).is_none());
    assert_eq!(
        roster.by_stream(StreamId(2)).unwrap().identity.instance,
        InstanceId(1)
    );
}

#[test]
fn removing_a_child_removes_its_streams() {
    let mut roster = Sessions::new(InstanceId(99), 1, 100);
    roster.open(at(0), StreamId(1), identity(1)).unwrap();
    roster.open(at(0), StreamId(2), identity(1)).unwrap();
    roster.remove(InstanceId(1));
    for stream in [1, 2] {
        assert!(roster.is_superseded(StreamId(stream)));
        assert!(roster.by_stream(StreamId(stream)).is_none());
        assert_eq!(roster.close(at(1), StreamId(stream)), None);
    }
    roster
        .open(at(2), StreamId(3), identity(2))
        .expect("its place is free at once");
}

#[test]
fn the_first_message_is_whole_and_immediate() {
    let mut roster = Sessions::new(InstanceId(99), 1, 100);
    let child = listener(&mut roster);
    let echo = Echo {
        covered: 1,
        confirmed: 0,
    };
    let first = child.next_with(0, HEAD, &mut board(), true, echo).unwrap();
    assert_eq!(
        (
            first.seq,
            first.lead.leader,
            first.lead.policy_hash,
            first.echo
        ),
        (1, HEAD.lead.leader, HEAD.lead.policy_hash, echo)
    );
    assert_eq!(first.buckets, [directive(Some(5), true)]);
}

#[test]
fn first_message_is_sent_even_empty() {
    let mut roster = Sessions::new(InstanceId(99), 1, 100);
    let child = roster.open(at(0), StreamId(1), identity(1)).unwrap();
    let nobody = Head::of(&Kills::default());
    let first = child
        .next_with(0, nobody, &mut Board::default(), true, Echo::default())
        .unwrap();
    assert_eq!(
        (first.seq, first.lead.leader, first.buckets),
        (1, None, Vec::new())
    );
}

#[test]
fn a_child_gets_changes_or_a_heartbeat() {
    let mut roster = Sessions::new(InstanceId(99), 1, 100);
    let child = listener(&mut roster);
    let mut board = board();
    let mut news = |now, head, board: &mut Board| {
        let message = child.next_with(now, head, board, true, Echo::default());
        message.map(|message| (message.seq, message.buckets))
    };
    assert_eq!(
        news(0, HEAD, &mut board),
        Some((1, vec![directive(Some(5), true)]))
    );
    assert_eq!(news(1, HEAD, &mut board), None);
    assert_eq!(news(499, HEAD, &mut board), None);
    assert_eq!(
        news(500, HEAD, &mut board),
        Some((2, vec![])),
        "the heartbeat"
    );
    assert_eq!(news(501, HEAD, &mut board), None);
    let killed = Head { kills: 1, ..HEAD };
    assert_eq!(
        news(502, killed, &mut board),
        Some((3, vec![])),
        "a kill waits for no heartbeat"
    );
    board.apply(&directive(Some(6), false));
    board.apply(&directive(Some(7), false));
    assert_eq!(
        news(503, killed, &mut board),
        Some((4, vec![directive(Some(7), false)])),
        "two changes as one"
    );
    assert_eq!(
        news(1_002, killed, &mut board),
        None,
        "any message is a sign of life"
    );
    assert_eq!(news(1_003, killed, &mut board), Some((5, vec![])));
}

#[test]
fn child_first_gets_whole_subscribed_buckets() {
    let mut roster = Sessions::new(InstanceId(99), 1, 100);
    let child = roster.open(at(0), StreamId(1), identity(1)).unwrap();
    let mut board = board();
    let first = child.next(0, &mut board, true).unwrap();
    assert_eq!(first.buckets, []);
    assert!(!child.is_subscribed(&bucket()));
    for _ in 0..2 {
        child.subscribe(&bucket());
        assert_eq!(
            (
                child.is_subscribed(&bucket()),
                child.subscriptions().count()
            ),
            (true, 1)
        );
    }
    let second = child.next(1, &mut board, true).unwrap();
    assert_eq!(second.buckets, [directive(Some(5), true)]);
    child.subscribe(&bucket());
    assert_eq!(child.next(2, &mut board, true), None, "it has heard all");
}

#[test]
fn withheld_values_are_sent_when_allowed() {
    let mut roster = Sessions::new(InstanceId(99), 1, 100);
    let child = listener(&mut roster);
    let mut board = board();
    let quiet = child.next(0, &mut board, false).unwrap();
    assert_eq!(
        quiet.buckets,
        [directive(None, true)],
        "limit and mode pass, ratio and guard do not"
    );
    board.apply(&directive(Some(6), false));
    let quiet = child.next(1, &mut board, false).unwrap();
    assert_eq!(quiet.buckets, [directive(None, false)]);
    assert_eq!(child.next(2, &mut board, true), None);

    child.resend_all();
    let told = child.next(3, &mut board, true).unwrap();
    assert_eq!(
        (told.seq, told.buckets),
        (3, vec![directive(Some(6), true)])
    );
}

#[test]
fn new_stream_repeats_everything_from_one() {
    let mut roster = Sessions::new(InstanceId(99), 1, 100);
    let mut board = board();
    for stream in [1, 2] {
        let child = roster
            .open(at(stream), StreamId(stream), identity(1))
            .unwrap();
        assert_eq!(child.subscriptions().count(), 0);
        child.subscribe(&bucket());
        let first = child.next(stream, &mut board, true).unwrap();
        assert_eq!(
            (first.seq, first.buckets),
            (1, vec![directive(Some(5), true)])
        );
    }
}

struct NoLedger;

impl Ledger for NoLedger {
    fn place(&mut self, _: KeyId, _: &Key) -> Option<TablePlace> {
        None
    }

    fn add(&mut self, _: Option<TablePlace>, _: KeyId, _: &Key, _: New) -> Option<TablePlace> {
        None
    }
}

#[test]
fn invented_instances_share_their_service_room() {
    let mut sessions = Sessions::new(InstanceId(99), 9, 100);
    sessions.key_room = KeyRoom::new(100);
    let of = |service: &str, number: u128| Identity {
        service: Name::new(service).unwrap(),
        ..identity(number)
    };
    let report = |identity: &Identity, keys: u32| {
        let key = |id: u32| KeyDefinition {
            key: Key {
                bucket: Bucket::new("b").unwrap(),
                tenant: Tenant::new(&format!("t{id}")).unwrap(),
            },
            base: Counts::ZERO,
            sent: Counts::ZERO,
            continues: false,
        };
        let definitions = (0..keys).map(|id| (KeyId(id), key(id))).collect();
        Report {
            seq: 1,
            greeting: Some(identity.clone()).into(),
            definitions,
            ..Report::default()
        }
    };
    let mut greet = |identity: Identity, stream: u64, keys: u32| {
        let report = report(&identity, keys);
        sessions.check(StreamId(stream), &report)?;
        sessions.open(at(0), StreamId(stream), identity)?;
        sessions.enter(at(0), StreamId(stream), &report, &mut NoLedger);
        Ok(())
    };
    assert_eq!(greet(of("shop", 1), 1, 50), Ok(()));
    let service = Name::new("shop").unwrap();
    assert_eq!(
        greet(of("shop", 2), 2, 31),
        Err(StreamRejected::NoKeyRoom {
            service,
            keys_max: 80
        })
    );
    assert_eq!(greet(of("shop", 2), 2, 30), Ok(()));
    assert_eq!(
        greet(of("search", 3), 3, 20),
        Ok(()),
        "the rest is for others"
    );
    assert_eq!(
        greet(of("shop", 1), 4, 0),
        Ok(()),
        "a new stream, which remembers the keys"
    );
    assert!(greet(of("shop", 4), 5, 1).is_err());
    sessions.remove(InstanceId(1));
    let report = report(&of("shop", 4), 50);
    assert!(sessions.check(StreamId(5), &report).is_ok());
}
