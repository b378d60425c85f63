//! The tail: bins, memories, growth, and the level that lets a class pass its part.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::quantity::MonoTime;

fn at(s: f64) -> MonoTime {
    MonoTime::from_elapsed(Duration::from_secs_f64(s))
}

fn demand(rates: &[(f64, f64)], uncounted: f64, mean: f64) -> Demand {
    let mut bins = vec![0.0; Bin::COUNT];
    for (rate, traffic) in rates {
        bins[Bin::of(*rate).index()] += traffic;
    }
    Demand {
        bins,
        uncounted,
        mean,
    }
}

const FREE: Spread = Spread {
    new_share: 1.0,
    floor: 0.0,
    tenant_limit: f64::INFINITY,
};

#[test]
fn bins_hold_their_rates() {
    for rate in [0.05, 0.27, 1.0, 16.0, 999.0, 450_000.0] {
        let bin = Bin::of(rate);
        assert!(
            (bin.rate() / rate - 1.0).abs() < 0.05,
            "{rate}: {}",
            bin.rate()
        );
        assert_eq!(bin.follow(bin.rate() * 1.07), bin);
        assert_ne!(bin.follow(bin.rate() * 1.08), bin);
    }
    assert_eq!(
        (
            Bin::of(0.0).index(),
            Bin::of(f64::NAN).index(),
            Bin::of(1e12).index()
        ),
        (0, 0, Bin::COUNT - 1)
    );
}

#[test]
fn code_holds_a_standing() {
    let bins = (0..Bin::COUNT).map(Bin::at).chain([None]);
    for standing in
        bins.flat_map(|bin| [true, false].map(|established| Standing { established, bin }))
    {
        assert_eq!(Standing::from_code(standing.code().into()), Ok(standing));
    }
    assert!(Standing::from_code(u32::from(Standing::CODE_MAX) + 1).is_err());
}

#[test]
fn tail_memory_follows_a_names_rate() {
    let interval = Duration::from_millis(100);
    // requests/s until, and the rate that the name's bin has at the end; none while it is uncounted
    for (phases, due) in [
        (&[(0.2, 60.0)][..], None),
        (&[(0.4, 120.0)], Some(0.4)),
        (&[(50.0, 40.0)], Some(50.0)),
        (&[(1.0, 60.0), (1_000.0, 62.0)], Some(1_000.0)),
        (&[(1_000.0, 60.0), (10.0, 90.0)], Some(10.0)),
        (&[(2.0, 60.0), (0.0, 160.0)], None),
    ] {
        let mut memory = NameMemory::new(at(0.0), false);
        let (mut time, mut owed) = (0.0, 0.0);
        for (rate, until) in phases {
            while time < *until {
                time += 0.1;
                owed += rate * 0.1;
                if owed >= 1.0 {
                    memory.add(at(time), f64::floor(owed), interval);
                    owed -= f64::floor(owed);
                }
            }
        }
        memory.look(at(time), interval);
        let got = memory.standing().bin.map(Bin::rate);
        let near = got
            .zip(due)
            .is_none_or(|(got, due)| (got / due - 1.0).abs() < 0.2);
        assert!(
            near && got.is_some() == due.is_some(),
            "{phases:?}: {got:?}"
        );
    }
}

/// From the start on, and from 10 s after a step.
#[test]
fn steady_rate_is_read_as_it_is() {
    let interval = Duration::from_millis(100);
    for (before, rate, tolerance) in [
        (20_000.0, 20_000.0, 0.05),
        (1_000.0, 2_000.0, 0.1),
        (20_000.0, 5_000.0, 0.1),
    ] {
        let mut name = NameMemory::new(at(0.0), true);
        for tenth in 1..=1_200 {
            let now = at(f64::from(tenth) / 10.0);
            let present = if tenth <= 300 { before } else { rate };
            name.add(now, present / 10.0, interval);
            let Some(read) = name.rate_at(now, interval).filter(|_| tenth > 400) else {
                continue;
            };
            assert!(
                (read / rate - 1.0).abs() < tolerance,
                "{before} to {rate}: {read} at {tenth}"
            );
        }
        assert!(name.rate_at(at(120.0), interval).is_some());
    }
}

#[test]
fn name_is_due_after_two_busy_looks() {
    let interval = Duration::from_millis(100);
    let mut memory = NameMemory::new(at(0.0), false);
    let mut due = Vec::new();
    for look in 1..=4 {
        if look != 2 {
            memory.add(at(f64::from(look) * 10.0 - 1.0), 1.0, interval);
        }
        assert_eq!(memory.look(at(f64::from(look) * 10.0), interval), look != 2);
        due.push(memory.is_due());
    }
    assert_eq!(due, [false, false, true, true]);
    memory.establish();
    assert!(!memory.is_due() && memory.standing().established);
}

#[test]
fn room_grows_evenly_and_is_bounded() {
    let mut growth = Growth::new(at(0.0));
    (0..900).for_each(|_| growth.on_arrival());
    assert!(growth.is_young(at(59.9)) && !growth.is_young(at(60.0)));
    growth.on_time(Duration::from_secs(600));
    let taken = (0..200).filter(|_| growth.take()).count();
    assert_eq!(
        (taken, growth.names()),
        (50, 950),
        "an eighteenth is saved up"
    );
    growth.on_time(Duration::from_secs(18));
    assert_eq!(
        (0..200).filter(|_| growth.take()).count(),
        52,
        "and no more of what grew meanwhile"
    );
    growth.on_claim();
    assert!(!growth.is_young(at(1.0)) && growth.takes_claims(at(1.0)));
}

#[test]
fn tail_level_cuts_only_heavy_names() {
    // One name of 100/s and forty of 1/s in 60: the heavy one has what the light ones leave.
    let tail = Tail {
        established: demand(&[(100.0, 100.0), (1.0, 40.0)], 0.0, 0.0),
        names: 41,
        ..Tail::default()
    };
    let cut = tail.cut(60.0 / 140.0, &FREE);
    assert!((cut.level - 20.0).abs() < 1.0, "{cut:?}");
    // A floor, and a limit for each name.
    let floors = Spread { floor: 1.5, ..FREE };
    let cut = tail.cut(30.0 / 140.0, &floors);
    assert!(
        cut.level < 1.0,
        "floors that do not fit shrink together: {cut:?}"
    );
    let limited = Spread {
        tenant_limit: 10.0,
        ..FREE
    };
    assert!((tail.within(10.0) - 50.0).abs() < 1.0);
    assert_eq!(
        tail.cut(1.0, &limited).level,
        f64::INFINITY,
        "the limit itself cuts enough"
    );
}

#[test]
fn new_name_flood_counts_a_twentieth() {
    for (names, each) in [(4, 12.0), (100, 0.571)] {
        let traffic = f64::from(names) * 15.0;
        let established = demand(&[(15.0, traffic)], 0.0, 0.0);
        let tail = Tail {
            established,
            new: demand(&[], 360.0, 0.1),
            names,
        };
        let cut = tail.cut(60.0 / (traffic + 360.0), &FREE);
        assert!((cut.level / each - 1.0).abs() < 0.05, "{names}: {cut:?}");
        let passed = tail.established.passes(cut.level) + tail.new.passes(cut.new_level);
        assert!((passed - 60.0).abs() < 1e-6, "{passed}");
    }
    // While there are no established names with traffic, new ones have everything.
    let alone = Tail {
        new: demand(&[], 360.0, 0.1),
        names: 4,
        ..Tail::default()
    };
    assert!((alone.new.passes(alone.cut(0.5, &FREE).new_level) - 180.0).abs() < 1e-6);
}

fn any_demand() -> impl Strategy<Value = Demand> {
    let bins = prop::collection::vec((0.05..1e4_f64, 0.0..1e4_f64), 0..6);
    (bins, 0.0..1e4_f64, 0.0..0.3_f64)
        .prop_map(|(bins, uncounted, mean)| demand(&bins, uncounted, mean))
}

proptest! {
    #[test]
    fn class_passes_exactly_its_part(
        established in any_demand(), new in any_demand(), names in 0..100_000_u32, passing in 0.0..1.0_f64,
        new_share in 0.0..1.0_f64, floor in prop_oneof![Just(0.0), 0.0..10.0_f64],
        tenant_limit in prop_oneof![Just(f64::INFINITY), 1.0..1e3_f64],
    ) {
        let tail = Tail { established, new, names };
        let spread = Spread { new_share, floor, tenant_limit };
        let cut = tail.cut(passing, &spread);
        let passed = tail.established.passes(cut.level.min(tenant_limit)) + tail.new.passes(cut.new_level.min(tenant_limit));
        let due = passing * tail.within(tenant_limit);
        prop_assert!((passed - due).abs() <= 1e-6 * due.max(1.0), "{passed} of {due}: {cut:?}");
        // One level in all zones passes the whole, too.
        let zones = [(&tail, spread, 0.5), (&tail, spread, 0.5)];
        let level = Tail::common_level(zones.into_iter(), due);
        let both: f64 = zones.iter().map(|(tail, spread, presence)| presence * tail.passes(level, spread)).sum();
        prop_assert!((both - due).abs() <= 1e-6 * due.max(1.0), "{both} of {due}");
    }
}
