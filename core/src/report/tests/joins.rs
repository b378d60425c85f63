//! Tests that reports of one stream join in any order.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::subsequence;

use super::*;
use crate::decision::Mode;
use crate::kill::Scope;

/// Reports taken from one growing history, as a stream may carry them, in any order and number.
fn three_of_a_stream() -> impl Strategy<Value = [Report; 3]> {
    const KEYS: u32 = 5;
    let grown = vec((0..KEYS, 0..100u64, [0..50u64, 0..50, 0..50, 0..50, 0..50, 0..50, 0..50], 0..9u64), 30);
    let cut = || (0..30usize, subsequence((0..KEYS).collect::<Vec<_>>(), 0..=KEYS as usize), any::<bool>());
    (grown, [cut(), cut(), cut()]).prop_map(|(grown, cuts)| {
        cuts.map(|(reach, keys, asks)| {
            let mut tallies = [Tally::ZERO; KEYS as usize];
            for (key, offered, refused, late) in &grown[..reach] {
                let [dropped, guard, would, would_guard, quota, would_quota, repeated] = *refused;
                let held = &mut tallies[*key as usize];
                let step = Counts {
                    offered: offered + dropped + guard + would + would_guard + quota + would_quota,
                    dropped,
                    guard_dropped: guard,
                    would_dropped: would + would_guard,
                    would_guard_dropped: would_guard,
                    quota_dropped: quota,
                    would_quota_dropped: would_quota,
                    quota_repeated: repeated,
                };
                *held = held.plus(Tally { counts: step, late: self::offered(*offered.min(late)) });
            }
            let sent = |id: u32| offered(u64::from(id));
            let definition = |id: u32| KeyDefinition {
                key: key(&format!("t{id}")),
                base: Counts::ZERO,
                sent: sent(id),
                continues: false,
            };
            let hold = |id: &u32| {
                let bucket = Bucket::new(&format!("b{id}")).unwrap();
                (bucket, Rate::new(f64::from(*id)).unwrap())
            };
            let reached = reach as u64;
            Report {
                seq: reached + 1,
                more: reach % 5 == 0,
                identity: (reach % 2 == 0).then(identity),
                time: (reach > 3).then(|| MonoTime::from_micros(reached)),
                epoch: (reach > 9).then_some(Epoch(reached / 10)),
                kill: KillGeneration(reached / 7),
                kills: keys
                    .iter()
                    .map(|id| (key(&format!("t{id}")).bucket, KillGeneration(reached / 5)))
                    .collect(),
                claims: [(Scope::Fleet, KillClaim::of(&identity(), KillGeneration(reached / 3)))].into(),
                drill: Drill(reached / 8),
                claimed_drill: Drill(reached / 9),
                orders: keys
                    .iter()
                    .map(|id| {
                        let scope = Scope::Bucket(key(&format!("t{id}")).bucket);
                        let generation = KillGeneration(reached / 4);
                        let age = Duration::from_millis(reached);
                        (
                            OrderId { scope, given_at: InstanceId(1) },
                            KillOrder { generation, age, ends_held: generation.0.is_multiple_of(3) },
                        )
                    })
                    .collect(),
                spreads: BTreeMap::new(),
                subscriptions: if asks { vec![key("x").bucket] } else { Vec::new() },
                unsubscriptions: Vec::new(),
                holds: keys.iter().map(hold).collect(),
                modes: keys
                    .iter()
                    .map(|id| {
                        let directed = (reach % 2 == 0).then_some(Mode::Canary);
                        (hold(id).0, ReportedMode { directed, unapplied: reach as u32 })
                    })
                    .collect(),
                established: keys.iter().map(|id| key(&format!("t{id}"))).collect(),
                definitions: keys.iter().map(|id| (KeyId(*id), definition(*id))).collect(),
                tallies: keys.iter().map(|id| (KeyId(*id), tallies[*id as usize])).collect(),
                evidence: observed(reached + 1, asks.then_some(reached), keys.len() as u64),
                leaving: reach > 25,
                children: reach as u32 / 2,
                clients: reach as u32 / 3,
                killed_locally: reach as u32 / 6,
                path: Path(vec![InstanceId(reached.into()); reach % 3]),
                ..Report::default()
            }
        })
    })
}

/// A batch with two places, or one.
fn observed(seq: u64, canary: Option<u64>, control: u64) -> Batches {
    let mut evidence = Evidence::default();
    for (side, offered) in [(Side::Canary, canary), (Side::Control, Some(control))] {
        let stand = CohortKey { bucket: Bucket::new("b").unwrap(), mode: Mode::Canary, side };
        let outcomes = Outcomes { offered: offered.unwrap_or_default(), ..Outcomes::default() };
        evidence.add(&stand, &outcomes, 2);
    }
    Batches::one(seq, evidence)
}

proptest! {
    #[test]
    fn reports_of_one_stream_join_in_any_order_and_any_number_of_times([a, b, c] in three_of_a_stream()) {
        let join = |one: &Report, other: &Report| one.clone().merge(other.clone());
        prop_assert_eq!(join(&a, &a), a.clone());
        prop_assert_eq!(join(&a, &b), join(&b, &a));
        prop_assert_eq!(join(&join(&a, &b), &c), join(&a, &join(&b, &c)));
        let joined = join(&a, &b);
        for (id, tally) in a.tallies.iter().chain(b.tallies.iter()) {
            prop_assert!(joined.tallies.get(id).is_some_and(|joined| joined.covers(tally)));
        }
        for (bucket, hold) in a.holds.iter().chain(&b.holds) {
            prop_assert_eq!(joined.holds.get(bucket), Some(hold));
        }
        prop_assert!(joined.holds.keys().all(|held| a.holds.contains_key(held) || b.holds.contains_key(held)));
    }
}

#[test]
fn holds_join_bucket_by_bucket() {
    let report = |holds: &[(&str, f64)]| Report {
        holds: holds
            .iter()
            .map(|(bucket, hold)| (Bucket::new(bucket).unwrap(), Rate::new(*hold).unwrap()))
            .collect(),
        ..Report::default()
    };
    let parts = [report(&[("a", 1.0), ("c", 0.0)]), report(&[]), report(&[("b", 2.0), ("c", 0.0)])];
    let whole = report(&[("a", 1.0), ("b", 2.0), ("c", 0.0)]);
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
        let joined = order.map(|at| parts[at].clone()).into_iter().fold(Report::default(), Report::merge);
        assert_eq!(joined, whole, "{order:?}");
    }
}

#[test]
fn counts_of_a_redefined_id_are_dropped() {
    let report = |seq, tenant: Option<&str>, offered| Report {
        seq,
        definitions: tenant
            .map(|tenant| {
                let definition = KeyDefinition {
                    key: key(tenant),
                    base: Counts::ZERO,
                    sent: Counts::ZERO,
                    continues: false,
                };
                (KeyId(3), definition)
            })
            .into_iter()
            .collect(),
        tallies: [(KeyId(1), tally(7)), (KeyId(3), tally(offered))].into(),
        ..Report::default()
    };
    let due = report(5, Some("new"), 2);
    for before in [report(4, None, 90), report(4, Some("old"), 90)] {
        assert_eq!(before.clone().merge(due.clone()), due);
        assert_eq!(due.clone().merge(before), due);
    }
    let unchanged = report(4, Some("new"), 1).merge(report(5, None, 2));
    assert_eq!(unchanged, due);
}
