//! The rollout block: the share of instances in canary, and the gates between the stages.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::rollout::{CanaryGate, Percent, ShadowGate};

use super::queries::QueryGate;
use crate::spec::{CanarySpec, RolloutSpec, ShadowSpec};
use crate::yaml::{Checked, Field, Number};

const MILLISECOND: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

/// The rollout settings of a bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutPolicy {
    /// The share of instances, or of the keys of each instance, that enforce in canary.
    pub canary_percent: Percent,
    /// True if a bucket moves on by itself when its gate passes.
    pub auto_promote: bool,
    /// The gate from shadow to canary.
    pub shadow: ShadowGate,
    /// The gate from canary to enforce.
    pub canary: CanaryGate,
    /// The fewest samples for a judgement; with fewer, the gate is inconclusive and does not pass.
    pub min_samples: u64,
    /// True if a mode raised in the file waits for the gates; false if it applies immediately.
    pub require_gates: bool,
    /// The extra gates, which apply to leaving shadow and to leaving canary.
    pub queries: Arc<[QueryGate]>,
}

impl Default for RolloutPolicy {
    fn default() -> Self {
        Self {
            canary_percent: Percent::CANARY_DEFAULT,
            auto_promote: false,
            shadow: ShadowGate::default(),
            canary: CanaryGate::default(),
            min_samples: 1000,
            require_gates: true,
            queries: Arc::default(),
        }
    }
}

impl RolloutPolicy {
    pub(crate) fn overridden(&self, spec: &RolloutSpec, field: &Field<'_>) -> Checked<Self> {
        let canary_percent =
            spec.canary_percent
                .map_or(Ok(self.canary_percent), |Number(percent)| {
                    let why = format!("{percent} is not a percentage");
                    let refuse = || {
                        field
                            .then("canary_percent")
                            .refuse(why, "write a number in 0..=100")
                    };
                    Percent::new(percent).ok_or_else(refuse)
                })?;
        let min_samples = spec.min_samples.map_or(Ok(self.min_samples), |samples| {
            field.then("min_samples").whole(samples.0)
        })?;
        let queries = match &spec.queries {
            None => Arc::clone(&self.queries),
            Some(queries) => QueryGate::list(queries, &field.then("queries"))?,
        };
        Ok(Self {
            canary_percent,
            auto_promote: spec.auto_promote.map_or(self.auto_promote, |flag| flag.0),
            shadow: shadow_gate(&self.shadow, &spec.shadow, &field.then("shadow"))?,
            canary: canary_gate(&self.canary, &spec.canary, &field.then("canary"))?,
            min_samples,
            require_gates: spec.require_gates.map_or(self.require_gates, |flag| flag.0),
            queries,
        })
    }
}

fn shadow_gate(
    inherited: &ShadowGate,
    spec: &ShadowSpec,
    field: &Field<'_>,
) -> Checked<ShadowGate> {
    let drop_ratio = &field.then("max_drop_ratio");
    Ok(ShadowGate {
        min: span(spec.min_days, DAY, inherited.min, &field.then("min_days"))?,
        window: span(
            spec.window_h,
            HOUR,
            inherited.window,
            &field.then("window_h"),
        )?,
        max_drop_ratio: ratio(spec.max_drop_ratio, inherited.max_drop_ratio, drop_ratio)?,
    })
}

fn canary_gate(
    inherited: &CanaryGate,
    spec: &CanarySpec,
    field: &Field<'_>,
) -> Checked<CanaryGate> {
    let drop_ratio = &field.then("max_drop_ratio");
    let p99 = &field.then("max_p99_delta_ms");
    Ok(CanaryGate {
        min: span(
            spec.min_hours,
            HOUR,
            inherited.min,
            &field.then("min_hours"),
        )?,
        window: span(
            spec.window_min,
            MINUTE,
            inherited.window,
            &field.then("window_min"),
        )?,
        max_drop_ratio: ratio(spec.max_drop_ratio, inherited.max_drop_ratio, drop_ratio)?,
        max_p99_delta: span(
            spec.max_p99_delta_ms,
            MILLISECOND,
            inherited.max_p99_delta,
            p99,
        )?,
    })
}

fn span(
    written: Option<Number>,
    unit: Duration,
    inherited: Duration,
    field: &Field<'_>,
) -> Checked<Duration> {
    written.map_or(Ok(inherited), |number| field.span(number.0, unit))
}

fn ratio(written: Option<Number>, inherited: f64, field: &Field<'_>) -> Checked<f64> {
    let range = "write a share from 0 to 1, such as 0.005 for 0.5 %";
    written.map_or(Ok(inherited), |number| {
        field.within(number.0, 0.0..=1.0, range)
    })
}
