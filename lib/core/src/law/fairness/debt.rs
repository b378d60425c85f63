//! The repayment of a surge: tenants that stayed within their part of the limit do not pay for it.

use super::{FillClaim, Waterfill};

/// The least rate, as a share of the limit, that is left to the tenants that pay.
const PAYERS_MIN: f64 = 0.1;

/// Fills `allocations` with the allocation of each claim on a bucket in debt, with `target < limit < sum of
/// demand`. Claims that would fit at the limit keep their demand; the others divide what is left of the
/// target.
pub(super) fn divide_in_debt(
    waterfill: &mut Waterfill,
    target: f64,
    limit: f64,
    claims: &[FillClaim],
    allocations: &mut Vec<f64>,
) {
    waterfill.divide(limit, claims, allocations);
    let mut kept = 0.0;
    let payers: Vec<FillClaim> = claims
        .iter()
        .zip(&*allocations)
        .map(|(claim, at_limit)| {
            if claim.demand > *at_limit {
                return *claim;
            }
            kept += claim.demand;
            FillClaim {
                demand: 0.0,
                ..*claim
            }
        })
        .collect();
    waterfill.divide(
        (target - kept).max(PAYERS_MIN * limit),
        &payers,
        allocations,
    );
    for ((allocation, claim), payer) in allocations.iter_mut().zip(claims).zip(&payers) {
        if payer.demand == 0.0 {
            *allocation = claim.demand;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn divided(target: f64, limit: f64, claims: &[FillClaim]) -> Vec<f64> {
        let mut allocations = Vec::new();
        divide_in_debt(
            &mut Waterfill::default(),
            target,
            limit,
            claims,
            &mut allocations,
        );
        allocations
    }

    fn claim(demand: f64, weight: f64) -> FillClaim {
        FillClaim {
            demand,
            weight,
            floor: 0.0,
        }
    }

    #[test]
    fn moderate_tenants_repay_no_surge_of_others() {
        for (target, claims, expected) in [
            // Without this line the first would have 125.
            (
                250.0,
                &[claim(400.0, 1.0), claim(9_000.0, 1.0)][..],
                &[400.0, 100.0][..],
            ),
            (
                600.0,
                &[claim(400.0, 1.0), claim(9_000.0, 1.0)],
                &[400.0, 200.0],
            ),
            (
                600.0,
                &[claim(3_000.0, 1.0), claim(9_000.0, 2.0)],
                &[200.0, 400.0],
            ),
            (
                250.0,
                &[claim(0.0, 1.0), claim(9_000.0, 1.0)],
                &[0.0, 250.0],
            ),
        ] {
            let got = divided(target, 1_000.0, claims);
            let near = got
                .iter()
                .zip(expected)
                .all(|(got, due)| (got - due).abs() < 1e-9);
            assert!(near, "{target} {claims:?}: {got:?}");
        }
    }

    proptest! {
        #[test]
        fn claims_are_bounded_and_share_the_rest(
            limit in 1.0..1e5_f64, part in 0.25..1.0_f64,
            demands in prop::collection::vec((0.0..1e5_f64, 0.01..100.0_f64), 1..12),
        ) {
            let claims: Vec<FillClaim> = demands.iter().map(|(demand, weight)| claim(*demand, *weight)).collect();
            let asked: f64 = demands.iter().map(|(demand, _)| demand).sum();
            prop_assume!(asked > limit);
            let target = part * limit;
            let got = divided(target, limit, &claims);
            prop_assert!(got.iter().zip(&claims).all(|(got, claim)| (0.0..=claim.demand).contains(got)));
            let sum: f64 = got.iter().sum();
            prop_assert!(sum >= target.min(asked) * (1.0 - 1e-9), "{sum}");
            prop_assert!(sum <= (target.max(limit) + 0.1 * limit) * (1.0 + 1e-9), "{sum}");
        }
    }
}
