//! Refusals of the coins: at ratios 0 and 1, in the long run, from the first request, and under periodic
//! traffic.

use super::*;
use proptest::prelude::*;

/// A generator of draws that needs no library: splitmix64.
fn draws(seed: u64) -> impl FnMut() -> (u32, u32) {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z >> 32) as u32, z as u32)
    }
}

fn ratio(units: u32) -> DropRatio {
    DropRatio::new(units).unwrap()
}

/// Ratios of every magnitude on both sides, the ends included.
fn any_ratio() -> impl Strategy<Value = DropRatio> {
    let tiny = (0..=31u32).prop_map(|shift| DropRatio::ONE >> shift);
    prop_oneof![
        (0..=DropRatio::ONE).prop_map(ratio),
        tiny.clone().prop_map(ratio),
        tiny.prop_map(|units| ratio(DropRatio::ONE - units)),
    ]
}

#[test]
fn the_ends_are_exact() {
    for draw in [0, 1, 2, u32::MAX / 2, u32::MAX - 1, u32::MAX] {
        assert!(!refuses(DropRatio::NONE, draw));
        assert!(refuses(DropRatio::ALL, draw));
    }
    let mut begun = Dither::default();
    begun.refuses(ratio(DropRatio::ONE / 2), draws(1));
    for state in [Dither::default(), begun] {
        let mut dither = state;
        assert!(!dither.refuses(DropRatio::NONE, || unreachable!()));
        assert!(dither.refuses(DropRatio::ALL, || unreachable!()));
        assert_eq!(dither, state, "neither end touches the state");
    }
}

#[test]
fn even_draws_are_refused_at_the_ratio() {
    for tenths in 0..=10u32 {
        let ratio = ratio(DropRatio::ONE / 10 * tenths);
        let draws = 1 << 20;
        let refused = (0..draws).filter(|i| refuses(ratio, i << 12)).count();
        let share = refused as f64 / f64::from(draws);
        assert!((share - ratio.as_f64()).abs() < 1e-4, "{ratio:?}: {share}");
    }
}

/// Returns the maximum error of the admitted share of two alternating positions against
/// `1 - ratio`, over several ratios and starts.
fn locking<S>(
    start: impl Fn(f64) -> S,
    refuses: impl Fn(&mut S, DropRatio, &mut dyn FnMut() -> (u32, u32)) -> bool,
) -> f64 {
    let mut worst = 0.0_f64;
    for tenths in 1..=9u32 {
        for phase in 0..5u32 {
            let ratio = ratio((f64::from(DropRatio::ONE) * f64::from(tenths) / 10.0) as u32);
            let mut state = start(f64::from(phase) / 10.0);
            let (mut draw, mut admitted) = (draws(u64::from(phase)), [0_u32; 2]);
            for request in 0..100_000 {
                admitted[request % 2] += u32::from(!refuses(&mut state, ratio, &mut draw));
            }
            for position in admitted {
                worst = worst.max((f64::from(position) / 50_000.0 - (1.0 - ratio.as_f64())).abs());
            }
        }
    }
    worst
}

#[test]
fn alternating_draws_are_refused_at_the_ratio() {
    let worst = locking(
        |_| Dither::default(),
        |dither, ratio, draw| dither.refuses(ratio, draw),
    );
    assert!(worst < 0.01, "{worst}");
    // Plain accumulators, which admit at a threshold, lock onto the pattern: wholly with a fixed threshold,
    // in part with one drawn after each admission.
    let accumulate = |(owed, threshold): &mut (f64, f64), ratio: DropRatio, threshold_next: f64| {
        *owed += 1.0 - ratio.as_f64();
        let admitted = *owed >= *threshold;
        if admitted {
            *owed -= 1.0;
            *threshold = threshold_next;
        }
        !admitted
    };
    let fixed = locking(
        |phase| (phase, 1.0),
        |state, ratio, _| accumulate(state, ratio, 1.0),
    );
    assert!(fixed > 0.45, "{fixed}");
    let drawn = locking(
        |phase| (phase, 1.0),
        |state, ratio, draw| {
            accumulate(
                state,
                ratio,
                0.5 + f64::from(draw().0) / f64::from(u32::MAX),
            )
        },
    );
    assert!((0.03..0.3).contains(&drawn), "{drawn}");
}

#[test]
fn first_requests_are_refused_at_the_ratio() {
    let mut draw = draws(11);
    for percent in [1, 10, 50, 90, 99, 100] {
        let ratio = ratio((u64::from(DropRatio::ONE) * percent / 100) as u32);
        let coins = 100_000;
        let admitted = (0..coins)
            .filter(|_| !Dither::default().refuses(ratio, &mut draw))
            .count();
        let (share, p) = (admitted as f64 / f64::from(coins), 1.0 - ratio.as_f64());
        let slack = 4.0 * (p * (1.0 - p) / f64::from(coins)).sqrt();
        assert!(
            (share - p).abs() <= slack,
            "{share} of the first requests admitted at {ratio:?}"
        );
    }
}

#[test]
fn few_draws_are_taken() {
    for percent in [1, 50, 90, 99] {
        let (mut dither, mut taken, mut draw) = (Dither::default(), 0, draws(3));
        let ratio = ratio((u64::from(DropRatio::ONE) * percent / 100) as u32);
        let requests = 10_000;
        let refuses = |_: &u32| {
            !dither.refuses(ratio, || {
                taken += 1;
                draw()
            })
        };
        let admitted = (0..requests).filter(refuses).count();
        assert!(
            taken <= admitted + 2,
            "{taken} pairs, {admitted} admitted at {ratio:?}"
        );
    }
}

proptest! {
    #[test]
    fn larger_ratio_refuses_all_and_more(
        a in 0..=DropRatio::ONE, b in 0..=DropRatio::ONE, draw: u32,
    ) {
        let (small, large) = (a.min(b), a.max(b));
        prop_assert!(!refuses(ratio(small), draw) || refuses(ratio(large), draw));
    }

    #[test]
    fn admissions_stay_close_to_what_is_owed(
        phases in prop::collection::vec((any_ratio(), 1..500_usize), 1..8), seed: u64,
    ) {
        let (mut dither, mut draw) = (Dither::default(), draws(seed));
        let mut excess = 0.0_f64;
        for (ratio, requests) in phases {
            for _ in 0..requests {
                let admitted = !dither.refuses(ratio, &mut draw);
                excess += f64::from(u8::from(admitted)) - (1.0 - ratio.as_f64());
                prop_assert!(excess.abs() < 2.0, "{excess} at {ratio:?}");
                prop_assert_eq!(Dither::from_bits(dither.to_bits()), dither);
            }
        }
    }

    #[test]
    fn every_coin_word_returns_to_the_ratio(bits: u64, ratio in any_ratio(), seed: u64) {
        let (mut dither, mut draw) = (Dither::from_bits(bits), draws(seed));
        let requests = 10_000;
        let admitted = (0..requests).filter(|_| !dither.refuses(ratio, &mut draw)).count() as f64;
        prop_assert!((admitted / f64::from(requests) - (1.0 - ratio.as_f64())).abs() < 1e-3);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn refused_share_converges_to_the_ratio(a in any_ratio(), b in any_ratio(), seed: u64) {
        let (mut dither, mut draw) = (Dither::default(), draws(seed));
        let requests = 20_000;
        let refused = (0..requests).filter(|i| dither.refuses(if i % 3 == 0 { a } else { b }, &mut draw)).count();
        let due = (a.as_f64() + 2.0 * b.as_f64()) / 3.0;
        prop_assert!((refused as f64 / f64::from(requests) - due).abs() < 1e-3);
    }
}
