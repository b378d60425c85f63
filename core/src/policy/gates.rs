//! How enforcement is rolled out: the share that enforces in canary, and the gates between the stages.

use std::sync::Arc;
use std::time::Duration;

use super::Number;
use super::error::Checked;
use super::queries::QueryGate;
use super::source::Field;
use super::spec::{CanarySpec, RolloutSpec, ShadowSpec};

const MILLISECOND: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

/// How far and under which conditions a bucket's enforcement is rolled out.
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutPolicy {
    /// The share of instances that enforce in canary.
    pub canary_percent: Percent,
    /// Whether a stage whose gate is passed is left without a person's word.
    pub auto_promote: bool,
    /// What must hold to leave shadow.
    pub shadow: ShadowGate,
    /// What must hold to leave canary.
    pub canary: CanaryGate,
    /// The fewest samples that a gate can judge by; with fewer it is inconclusive, which never passes.
    pub min_samples: u64,
    /// Whether a mode raised in the file waits for the gates; false lets it take effect at once.
    pub require_gates: bool,
    /// What else must hold to leave shadow, and to leave canary.
    pub queries: Arc<[QueryGate]>,
}

/// A share in percent, in 0..=100.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Percent(f64);

// Never NaN.
impl Eq for Percent {}

/// What must hold to leave shadow.
#[derive(Clone, Debug, PartialEq)]
pub struct ShadowGate {
    /// How long the bucket has been in shadow, at least.
    pub min: Duration,
    /// The span of time judged, up to now.
    pub window: Duration,
    /// The highest share of requests that would have been dropped: finite, 0 or more.
    pub max_drop_ratio: f64,
}

/// What must hold to leave canary.
#[derive(Clone, Debug, PartialEq)]
pub struct CanaryGate {
    /// How long the bucket has been in canary, at least.
    pub min: Duration,
    /// The span of time judged, up to now.
    pub window: Duration,
    /// The highest share of requests that were dropped where it enforces: finite, 0 or more.
    pub max_drop_ratio: f64,
    /// How much slower the 99th percentile may be where it enforces.
    pub max_p99_delta: Duration,
}

impl Default for RolloutPolicy {
    fn default() -> Self {
        Self {
            canary_percent: Percent(5.0),
            auto_promote: false,
            shadow: ShadowGate { min: DAY * 7, window: HOUR * 24, max_drop_ratio: 0.005 },
            canary: CanaryGate {
                min: HOUR * 48,
                window: MINUTE * 15,
                max_drop_ratio: 0.001,
                max_p99_delta: MILLISECOND * 5,
            },
            min_samples: 1000,
            require_gates: true,
            queries: Arc::default(),
        }
    }
}

impl Percent {
    /// Validates a share in percent; `None` outside 0..=100.
    #[must_use]
    pub fn new(percent: f64) -> Option<Self> {
        (0.0..=100.0).contains(&percent).then_some(Self(percent + 0.0))
    }

    /// The share in percent.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl RolloutPolicy {
    /// This policy with what `spec` says on top.
    pub(super) fn overridden(&self, spec: &RolloutSpec, field: &Field<'_>) -> Checked<Self> {
        let canary_percent = match spec.canary_percent {
            None => self.canary_percent,
            Some(Number(percent)) => Percent::new(percent).ok_or_else(|| {
                let why = format_args!("{percent} is not a percentage").to_string();
                field.then("canary_percent").refuse(why, "write a number in 0..=100")
            })?,
        };
        let min_samples = match spec.min_samples {
            None => self.min_samples,
            Some(Number(samples)) => whole(samples, &field.then("min_samples"))?,
        };
        let queries = match &spec.queries {
            None => Arc::clone(&self.queries),
            Some(queries) => QueryGate::list(queries, &field.then("queries"))?,
        };
        Ok(Self {
            canary_percent,
            auto_promote: spec.auto_promote.unwrap_or(self.auto_promote),
            shadow: self.shadow.overridden(&spec.shadow, &field.then("shadow"))?,
            canary: self.canary.overridden(&spec.canary, &field.then("canary"))?,
            min_samples,
            require_gates: spec.require_gates.unwrap_or(self.require_gates),
            queries,
        })
    }
}

impl ShadowGate {
    fn overridden(&self, spec: &ShadowSpec, field: &Field<'_>) -> Checked<Self> {
        Ok(Self {
            min: span(spec.min_days, DAY, self.min, &field.then("min_days"))?,
            window: span(spec.window_h, HOUR, self.window, &field.then("window_h"))?,
            max_drop_ratio: ratio(spec.max_drop_ratio, self.max_drop_ratio, &field.then("max_drop_ratio"))?,
        })
    }
}

impl CanaryGate {
    fn overridden(&self, spec: &CanarySpec, field: &Field<'_>) -> Checked<Self> {
        let p99 = &field.then("max_p99_delta_ms");
        Ok(Self {
            min: span(spec.min_hours, HOUR, self.min, &field.then("min_hours"))?,
            window: span(spec.window_min, MINUTE, self.window, &field.then("window_min"))?,
            max_drop_ratio: ratio(spec.max_drop_ratio, self.max_drop_ratio, &field.then("max_drop_ratio"))?,
            max_p99_delta: span(spec.max_p99_delta_ms, MILLISECOND, self.max_p99_delta, p99)?,
        })
    }
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
    written.map_or(Ok(inherited), |number| field.not_negative(number.0))
}

/// A count: beyond 2^53 a number as written can no longer be told from its neighbour.
fn whole(number: f64, field: &Field<'_>) -> Checked<u64> {
    let count = field.not_negative(number)?;
    if count.fract() == 0.0 && count <= 9_007_199_254_740_992.0 {
        return Ok(count as u64);
    }
    Err(field.refuse(format_args!("{number} is not a whole number"), "write a whole number of samples"))
}
