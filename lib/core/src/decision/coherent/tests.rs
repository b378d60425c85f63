//! Properties of coherent draws: equal everywhere, uniform for every kind of trace-id, and unpredictable
//! without the key.

use super::*;
use crate::decision::coin::refuses;
use crate::quantity::DropRatio;
use proptest::prelude::*;

const KEY: CoinKey = CoinKey::from_bytes(*b"0123456789abcdef");

fn draws(salt: u64) -> DrawKey {
    Coherence { key: KEY, salt }.draw_key()
}

fn trace(id: u128) -> TraceId {
    TraceId::new(id).unwrap()
}

fn ratio(share: f64) -> DropRatio {
    DropRatio::new((share * f64::from(DropRatio::ONE)).round() as u32).unwrap()
}

/// Draws are part of the protocol: these values were computed independently, as docs/reference/wire.md
/// describes.
#[test]
fn known_draws_never_change() {
    for (key, salt, id, draw) in DRAWS {
        let key = CoinKey::from_bytes(key.to_be_bytes());
        let drawn = Coherence { key, salt }.draw_key().draw(trace(id));
        assert_eq!(drawn, draw, "{salt} {id:#x}: {drawn:#010x}");
    }
}

const DRAWS: [(u128, u64, u128, u32); 3] = [
    (
        0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f,
        1,
        0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
        0xf9b7_d2cd,
    ),
    (
        0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f,
        2,
        0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
        0xaf3e_90f9,
    ),
    (0, u64::MAX, 1, 0x6b56_3b74),
];

/// The statistic of a chi-square test with 255 degrees of freedom, over 256 cells by the 8 bits above
/// `shift`.
fn chi_square(draws: impl Iterator<Item = u32>, shift: u32) -> f64 {
    let mut cells = [0_u32; 256];
    draws.for_each(|draw| cells[(draw >> shift) as usize & 0xff] += 1);
    let due = f64::from(cells.iter().sum::<u32>()) / 256.0;
    cells
        .iter()
        .map(|seen| (f64::from(*seen) - due).powi(2) / due)
        .sum()
}

type Made = fn(u128) -> u128;

/// Trace-ids as tracers generate them, and as a caller may choose them.
fn families() -> [(&'static str, Made); 6] {
    [
        ("one after the other", |n| n),
        ("one after the other, high", |n| n << 64 | 7),
        ("of 64 bits only", |n| {
            n.wrapping_mul(0x9E37_79B9_7F4A_7C15) & u128::from(u64::MAX)
        }),
        ("that begin with the time", |n| {
            (1_700_000_000 + n / 100) << 96 | (n % 100) << 3 | 1
        }),
        ("with the last byte fixed, as samplers have it", |n| {
            n << 8 | 0xff
        }),
        ("of one byte repeated, numbered in the middle", |n| {
            0xaaaa << 112 | n << 40 | 0xaaaa
        }),
    ]
}

#[test]
fn draws_are_uniform_for_any_trace_id() {
    // 255 degrees of freedom: 255 on average, with a standard deviation of 22.6. Six of them away is never
    // chance.
    const WITHIN: std::ops::Range<f64> = 120.0..391.0;
    for (how, id) in families() {
        for shift in [24, 16, 1] {
            let drawn = (1..=65_536).map(|n| draws(3).draw(trace(id(n))));
            let statistic = chi_square(drawn, shift);
            assert!(
                WITHIN.contains(&statistic),
                "{how}, bits from {shift}: {statistic}"
            );
        }
        // The same test fails for the bits of the trace-id itself.
        let own = chi_square((1..=65_536).map(|n| id(n) as u32), 24);
        assert!(!WITHIN.contains(&own), "{how}: {own}");
    }
}

/// A trace sampler selects by the last bytes of the trace-id; sampled requests must be refused like all
/// others.
#[test]
fn refusals_are_independent_of_trace_sampling() {
    let mut state = 1_u128;
    let mut ids = std::iter::repeat_with(move || {
        state = state
            .wrapping_mul(0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645)
            .wrapping_add(0x5851_F42D);
        (state ^ state >> 67).max(1)
    });
    let (mut sampled, mut refused, all) = (0_u32, 0_u32, 200_000);
    for id in ids.by_ref().take(all) {
        let is_sampled = (id & 0xff_ffff_ffff_ffff) < (1 << 56) / 10;
        sampled += u32::from(is_sampled);
        refused += u32::from(is_sampled && refuses(ratio(0.4), draws(9).draw(trace(id))));
    }
    assert!(
        (19_000..21_000).contains(&sampled),
        "{sampled} of {all} are sampled"
    );
    let share = f64::from(refused) / f64::from(sampled);
    // Eight standard deviations of the mean of 20,000 tosses.
    assert!(
        (share - 0.4).abs() < 8.0 * 0.49 / 141.0,
        "{share} of the sampled are refused"
    );
}

#[test]
fn another_key_or_salt_gives_independent_draws() {
    let other = Coherence {
        key: CoinKey::from_bytes(*b"0123456789abcdeg"),
        salt: 1,
    };
    let torn = DrawKey::of_halves(draws(1).halves().0, draws(2).halves().1);
    for (how, other) in [
        ("salt", draws(2)),
        ("key", other.draw_key()),
        ("torn", torn),
    ] {
        let both = (1..=40_000).filter(|n| {
            let refused = |key: DrawKey| refuses(ratio(0.5), key.draw(trace(*n)));
            refused(draws(1)) && refused(other)
        });
        // A quarter, as for two independent coins; the bounds are 11 standard deviations away.
        let both = both.count();
        assert!((9_000..11_000).contains(&both), "another {how}: {both}");
        assert!(
            (DRAWN_MIN..).contains(&chi_square((1..=65_536).map(|n| other.draw(trace(n))), 24))
        );
    }
}

/// Fewer would be too even to be random.
const DRAWN_MIN: f64 = 120.0;

#[test]
fn keys_are_not_printed() {
    let key = CoinKey::from_bytes([0xab; 16]);
    let coherence = Coherence { key, salt: 7 };
    let shown = format!(
        "{key:?} {coherence:?} {:#?} {:?}",
        coherence,
        coherence.draw_key()
    );
    let (k0, k1) = coherence.draw_key().halves();
    for secret in [
        "ab",
        "171",
        &key.0.to_string(),
        &k0.to_string(),
        &k1.to_string(),
    ] {
        assert!(!shown.contains(secret), "{shown}");
    }
    assert!(shown.contains("salt: 7"), "{shown}");
    assert_eq!(CoinKey::from_bytes(key.to_bytes()), key);
}

proptest! {
    /// Each request passes all hops exactly where it passes the strictest.
    #[test]
    fn the_strictest_hop_decides_for_all(
        id in 1..=u128::MAX,
        key: [u8; 16],
        salt: u64,
        shares in proptest::collection::vec(0.0..=1.0, 1..6),
    ) {
        let hop = |share: &f64| {
            // Each hop holds only the key and salt of its directive.
            let draws = Coherence { key: CoinKey::from_bytes(key), salt }.draw_key();
            !refuses(ratio(*share), draws.draw(trace(id)))
        };
        let strictest = shares.iter().copied().fold(0.0, f64::max);
        prop_assert_eq!(shares.iter().all(hop), hop(&strictest));
    }
}

#[test]
fn several_hops_admit_like_the_strictest() {
    let hops = [0.2, 0.5, 0.3].map(ratio);
    let passes = |n: &u128| {
        let draw = draws(1).draw(trace(*n));
        hops.iter().all(|ratio| !refuses(*ratio, draw))
    };
    let admitted = (1..=100_000).filter(passes).count();
    // Half, within eight standard deviations of 158; independent coins would admit 28,000.
    assert!((48_730..51_270).contains(&admitted), "{admitted}");
}
