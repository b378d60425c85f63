//! The fairness settings of a policy.

use std::time::Duration;

use crate::spec::{Algorithm, FairnessSpec};
use crate::yaml::{Checked, Field};
use plimsoll_core::quantity::Rate;

/// The default of `reweight_interval_s`.
pub const REWEIGHT_INTERVAL_DEFAULT: Duration = Duration::from_secs(5);

/// The default floor in requests/s of a `fairness` block; without such a block the floor is zero.
const MIN_FLOOR_DEFAULT_RPS: f64 = 5.0;

/// The fairness settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Fairness {
    /// The algorithm as written; all of them are one.
    pub algorithm: Algorithm,
    /// `reweight_interval_s` as written, never zero. It has no effect: changed weights apply immediately.
    pub reweight_interval: Duration,
    /// The floor: the rate below which a tenant is never dropped, while all floors together can be met.
    pub min_floor: Rate,
}

impl Default for Fairness {
    fn default() -> Self {
        Self {
            algorithm: Algorithm::default(),
            reweight_interval: REWEIGHT_INTERVAL_DEFAULT,
            min_floor: Rate::ZERO,
        }
    }
}

impl Fairness {
    pub(crate) fn read(spec: &FairnessSpec, field: &Field<'_>) -> Checked<Self> {
        let interval = field.then("reweight_interval_s");
        let reweight_interval = match spec.reweight_interval_s {
            None => REWEIGHT_INTERVAL_DEFAULT,
            Some(seconds) => interval.span(seconds.0, Duration::from_secs(1))?,
        };
        if reweight_interval.is_zero() {
            return Err(interval.refuse(
                "an interval of nothing",
                "write a number of seconds above 0, such as 5",
            ));
        }
        let min_floor = spec.min_floor_rps.map_or(MIN_FLOOR_DEFAULT_RPS, |n| n.0);
        Ok(Self {
            algorithm: spec.algorithm,
            reweight_interval,
            min_floor: field.then("min_floor_rps").rate(min_floor)?,
        })
    }
}
