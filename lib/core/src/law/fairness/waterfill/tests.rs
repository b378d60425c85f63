//! Water-filling against a bisection that knows nothing of bends, its laws, and naive laws that break them.

use super::*;
use proptest::prelude::*;

/// Enough random divisions to meet every kind of claim in every company.
const CASES: u32 = 10_000;
/// The tolerance for rounding, as a share of the capacity.
const ROUNDING: f64 = 1e-9;

fn claim(demand: f64, weight: f64, floor: f64) -> FillClaim {
    FillClaim {
        demand,
        weight,
        floor,
    }
}

fn divided(capacity: f64, claims: &[FillClaim]) -> Vec<f64> {
    let mut allocations = vec![7.0; 3];
    Waterfill::default().divide(capacity, claims, &mut allocations);
    assert_eq!(allocations.len(), claims.len());
    allocations
}

fn roomy(capacity: f64, claims: &[FillClaim]) -> Vec<f64> {
    let (mut waterfill, mut allocations, mut rooms) =
        (Waterfill::default(), Vec::new(), vec![7.0; 3]);
    waterfill.divide(capacity, claims, &mut allocations);
    waterfill.rooms(capacity, claims, &allocations, &mut rooms);
    assert_eq!(rooms.len(), claims.len());
    rooms
}

/// The reference division, straight from the definition: bisection of the level until no number lies between.
fn bisected(capacity: f64, claims: &[FillClaim]) -> Vec<f64> {
    let floor = |claim: &FillClaim| claim.demand.min(claim.floor);
    if demanded(claims) <= capacity {
        return claims.iter().map(|claim| claim.demand).collect();
    }
    if claims.iter().map(floor).sum::<f64>() >= capacity {
        let claims: Vec<FillClaim> = claims
            .iter()
            .map(|claim| self::claim(floor(claim), claim.weight, 0.0))
            .collect();
        return bisected(capacity, &claims);
    }
    let at = |level: f64| {
        claims
            .iter()
            .map(move |claim| (claim.weight * level).max(floor(claim)).min(claim.demand))
    };
    let (mut below, mut above) = (0.0, 2.0 * capacity / WEIGHT_MIN);
    loop {
        let middle = f64::midpoint(below, above);
        if middle <= below || middle >= above {
            return at(above).collect();
        }
        if at(middle).sum::<f64>() < capacity {
            below = middle
        } else {
            above = middle
        }
    }
}

fn demanded(claims: &[FillClaim]) -> f64 {
    claims.iter().map(|claim| claim.demand).sum()
}

#[test]
fn three_tenants() {
    for (demands, floor, expected) in [
        ([300.0, 300.0, 3000.0], 5.0, [300.0, 300.0, 400.0]),
        ([3000.0, 300.0, 300.0], 5.0, [762.0, 190.0, 48.0]),
        ([2000.0, 2000.0, 2000.0], 5.0, [762.0, 190.0, 48.0]),
        ([2000.0, 2000.0, 2000.0], 400.0, [400.0, 400.0, 200.0]),
        ([2000.0, 2000.0, 1.0], 5.0, [799.0, 200.0, 1.0]),
        ([2000.0, 2000.0, 2000.0], 100.0, [720.0, 180.0, 100.0]), // the floors can be met and one of them counts
        ([f64::MAX, f64::MAX, f64::MAX], 0.0, [762.0, 190.0, 48.0]),
        ([f64::MAX, f64::MAX, 0.0], 0.0, [800.0, 200.0, 0.0]),
        ([300.0, 300.0, 400.0], 5.0, [300.0, 300.0, 400.0]), // just fits
        ([0.0, 0.0, 0.0], 5.0, [0.0, 0.0, 0.0]),
    ] {
        let claims: Vec<FillClaim> = demands
            .iter()
            .zip([4.0, 1.0, 0.25])
            .map(|(demand, weight)| claim(*demand, weight, floor))
            .collect();
        let rounded: Vec<f64> = divided(1000.0, &claims)
            .iter()
            .map(|part| part.round())
            .collect();
        assert_eq!(rounded, expected, "{demands:?} with floors of {floor}");
    }
}

#[test]
fn meaningless_weights_become_the_nearest_valid() {
    for nothing in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, -0.0] {
        assert_eq!(
            divided(
                10.0,
                &[claim(nothing, 1.0, nothing), claim(20.0, 1.0, nothing)]
            ),
            [0.0, 10.0]
        );
        assert_eq!(divided(nothing, &[claim(20.0, 1.0, 5.0)]), [0.0]);
        assert_eq!(roomy(nothing, &[claim(20.0, 1.0, 5.0)]), [0.0]);
    }
    for (weight, nearest) in [
        (0.0, WEIGHT_MIN),
        (-4.0, WEIGHT_MIN),
        (f64::NAN, WEIGHT_MIN),
        (f64::INFINITY, WEIGHT_MAX),
        (1e9, WEIGHT_MAX),
    ] {
        let company = claim(20.0, 1.0, 0.0);
        let expected = divided(10.0, &[claim(20.0, nearest, 0.0), company]);
        assert_eq!(
            divided(10.0, &[claim(20.0, weight, 0.0), company]),
            expected,
            "{weight}"
        );
    }
}

#[test]
fn a_warm_one_allocates_nothing() {
    let claims: Vec<FillClaim> = (1..=100)
        .map(|rank| claim(1000.0, 1.0 / f64::from(rank), 5.0))
        .collect();
    let (mut waterfill, mut allocations, mut rooms) =
        (Waterfill::default(), Vec::new(), Vec::new());
    let mut tick = |capacity| {
        waterfill.divide(capacity, &claims, &mut allocations);
        waterfill.rooms(capacity, &claims, &allocations, &mut rooms);
    };
    let mut ticks = || [1e3, 1e5, 1e6].map(&mut tick);
    ticks();
    let counted = allocation_counter::measure(|| _ = ticks());
    assert_eq!(counted.count_total, 0);
}

fn magnitude(exponents: std::ops::Range<f64>) -> impl Strategy<Value = f64> {
    exponents.prop_map(|exponent| 10.0_f64.powf(exponent))
}

fn weights() -> impl Strategy<Value = f64> {
    prop_oneof![
        3 => prop::sample::select(vec![0.25, 1.0, 4.0]),
        1 => prop::sample::select(vec![WEIGHT_MIN, WEIGHT_MAX]),
        2 => magnitude(-6.0..6.0),
    ]
}

fn claims() -> impl Strategy<Value = Vec<FillClaim>> {
    let floors = || prop_oneof![3 => Just(0.0), 1 => Just(5.0), 2 => magnitude(-3.0..5.0), 1 => Just(f64::MAX)];
    let free = prop_oneof![2 => Just(0.0), 6 => magnitude(-3.0..7.0), 1 => Just(f64::MAX)];
    let free = (free, weights(), floors())
        .prop_map(|(demand, weight, floor)| claim(demand, weight, floor));
    // Claims that bend at the same levels, and so make steps of no height or of several claims.
    let levels = || prop::sample::select(vec![1.0, 10.0, 100.0]);
    let level = (levels(), weights(), levels())
        .prop_map(|(demand, weight, floor)| claim(demand * weight, weight, floor / 10.0 * weight));
    let claims = prop_oneof![2 => free, 1 => level].boxed();
    prop_oneof![9 => prop::collection::vec(claims.clone(), 0..9), 1 => prop::collection::vec(claims, 0..48)]
}

/// Claims, and a capacity that may have nothing to do with them, fall short of their demand or just meet it.
fn divisions() -> impl Strategy<Value = (f64, Vec<FillClaim>)> {
    let share = prop_oneof![8 => 0.0..1.1, 1 => Just(1.0)];
    let capacity = prop_oneof![1 => Just(0.0), 4 => magnitude(-3.0..9.0)];
    (claims(), share, capacity, prop::bool::ANY).prop_map(|(claims, share, capacity, related)| {
        let demanded = demanded(&claims);
        (
            if related && demanded < 1e12 {
                share * demanded
            } else {
                capacity
            },
            claims,
        )
    })
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        prop::num::f64::ANY,
        magnitude(-3.0..6.0),
        magnitude(295.0..308.0)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn it_agrees_with_bisection((capacity, claims) in divisions()) {
        let parts = divided(capacity, &claims);
        for (part, expected) in parts.iter().zip(bisected(capacity, &claims)) {
            prop_assert!((part - expected).abs() <= ROUNDING * capacity, "{parts:?}: {part}, not {expected}");
        }
    }

    #[test]
    fn everything_is_given_within_the_claims((capacity, claims) in divisions()) {
        let parts = divided(capacity, &claims);
        let expected = demanded(&claims).min(capacity);
        prop_assert!((parts.iter().sum::<f64>() - expected).abs() <= ROUNDING * expected, "{parts:?}, not {expected}");
        if demanded(&claims) <= capacity {
            let demands: Vec<f64> = claims.iter().map(|claim| claim.demand).collect();
            prop_assert_eq!(&parts, &demands, "what fits is given to the last bit");
        }
        for (part, claim) in parts.iter().zip(&claims) {
            prop_assert!(*part >= 0.0 && *part <= claim.demand, "{part} for {claim:?}");
        }
    }

    #[test]
    fn no_numbers_lead_outside(
        capacity in number(),
        claims in prop::collection::vec((number(), number(), number()), 0..9),
    ) {
        let claims: Vec<FillClaim> =
            claims.iter().map(|(demand, weight, floor)| claim(*demand, *weight, *floor)).collect();
        let parts = divided(capacity, &claims);
        for (part, claim) in parts.iter().zip(&claims) {
            prop_assert!((0.0..=counted(claim.demand)).contains(part), "{part} for {claim:?}");
        }
        // Below the smallest normal number digits are lost.
        let most = counted(capacity) * (1.0 + ROUNDING) + f64::MIN_POSITIVE;
        prop_assert!(parts.iter().sum::<f64>() <= most, "{parts:?}");
        for (room, part) in roomy(capacity, &claims).iter().zip(parts) {
            prop_assert!(room.is_finite() && *room >= part, "{room} around {part}");
        }
    }

    #[test]
    fn room_is_the_rest_or_weighted((capacity, claims) in divisions()) {
        let parts = divided(capacity, &claims);
        let rooms = roomy(capacity, &claims);
        prop_assert!(rooms.iter().zip(&parts).all(|(room, part)| room >= part), "{rooms:?} around {parts:?}");
        let fits = demanded(&claims) <= capacity;
        if fits && !claims.is_empty() {
            let sum: f64 = rooms.iter().sum();
            prop_assert!((sum - capacity).abs() <= ROUNDING * capacity, "{rooms:?} sum to {sum}");
        }
        let grown: Vec<FillClaim> =
            claims.iter().map(|claim| self::claim(f64::MAX, claim.weight, claim.demand)).collect();
        let weights: f64 = claims.iter().map(|claim| claim.weight).sum();
        let expected: Vec<f64> = if fits {
            bisected(capacity, &grown)
        } else {
            claims.iter().zip(&parts).map(|(claim, part)| part.max(capacity * claim.weight / weights)).collect()
        };
        for (room, expected) in rooms.iter().zip(expected) {
            prop_assert!((room - expected).abs() <= ROUNDING * capacity, "{rooms:?}: {room}, not {expected}");
        }
    }
}
