//! The gates between the stages of a rollout: evidence in, judgement out. Pure.
//!
//! Too few samples, an absent value and NaN are inconclusive and never pass. A value known to be
//! bad fails the gate, regardless of unknown values.
//!
//! Behind a proxy, no instance may observe responses. Then the canary gate rests on refusals and extra gates:
//! see [`LatencyBasis`].

use std::fmt;
use std::time::Duration;

use super::query_gate::{QueryFlaw, QueryGateState};
use crate::names::Name;

/// The age of a zone's last report above which the zone is stale, unless it stopped in order.
pub const STALE_AFTER: Duration = Duration::from_secs(60);

/// The gate from shadow to canary.
#[derive(Clone, Debug, PartialEq)]
pub struct ShadowGate {
    /// The shortest time in shadow.
    pub min: Duration,
    /// The window of evidence, up to now.
    pub window: Duration,
    /// The highest would-drop ratio: finite, 0 or more.
    pub max_drop_ratio: f64,
}

/// The gate from canary to enforce.
#[derive(Clone, Debug, PartialEq)]
pub struct CanaryGate {
    /// The shortest time in canary.
    pub min: Duration,
    /// The span of time judged, up to now.
    pub window: Duration,
    /// The highest drop ratio in the canary cohort: finite, 0 or more.
    pub max_drop_ratio: f64,
    /// Maximum difference of the 99th percentile of latency between the canary cohort and the
    /// others.
    pub max_p99_delta: Duration,
}

impl Default for ShadowGate {
    fn default() -> Self {
        let day = Duration::from_secs(86_400);
        Self {
            min: 7 * day,
            window: day,
            max_drop_ratio: 0.005,
        }
    }
}

impl Default for CanaryGate {
    fn default() -> Self {
        Self {
            min: Duration::from_secs(48 * 3_600),
            window: Duration::from_secs(15 * 60),
            max_drop_ratio: 0.001,
            max_p99_delta: Duration::from_millis(5),
        }
    }
}

/// The evidence of one policy entry, a bucket or a pattern, in its present stage: counts and latencies over the
/// window of the gate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The time with data since the stage began.
    pub with_data: Duration,
    /// In shadow would-dropped / offered, in canary refused / offered in the cohort; the samples are the
    /// offered requests.
    pub drop_ratio: Reading,
    /// The 99th percentile of the canary cohort in seconds.
    pub canary_p99: Reading,
    /// The 99th percentile of all other instances in seconds.
    pub control_p99: Reading,
    /// True if an instance on either side has reported a latency since the stage began. It outlives the window
    /// and restarts, unlike the samples.
    pub has_latencies: bool,
    /// Admitted requests on both sides with responses that no instance can observe.
    pub unobserved: u64,
    /// The zone with the oldest report, if that is stale.
    pub stale: Option<StaleZone>,
    /// The extra gates of the policy with their answers.
    pub queries: Vec<QueryGateState>,
}

/// One measured number and its sample size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// The number; `None` if unknown.
    pub value: Option<f64>,
    /// The number of samples.
    pub samples: u64,
}

/// The treatment of latency by the canary gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyBasis {
    /// The p99 of the cohorts is compared; too few samples are inconclusive.
    Compared,
    /// Latency is not compared: no instance has reported any since the stage began, and some say that they
    /// cannot.
    NotReported,
}

/// A zone without a recent report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleZone {
    /// The name of the zone.
    pub zone: String,
    /// The age of its last report.
    pub age: Duration,
}

/// The judgement of a gate.
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    /// The bucket may move to the next stage.
    Pass,
    /// The bucket must not move on: at least one value is bad.
    Fail(Vec<Why>),
    /// No value is known to be bad, but some are unknown.
    Inconclusive(Vec<Why>),
}

/// A number that gates compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Would-dropped / offered.
    WouldDropRatio,
    /// Refused / offered in the canary cohort.
    CanaryDropRatio,
    /// The 99th percentile of latency in the canary cohort.
    CanaryP99,
    /// The 99th percentile of latency outside it.
    ControlP99,
}

/// One reason of a judgement.
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    /// A ratio is above its maximum.
    TooMany {
        /// The ratio that is meant.
        measure: Measure,
        /// The value.
        ratio: f64,
        /// The maximum.
        most: f64,
    },
    /// The canary cohort is slower than the others by more than the maximum.
    Slower {
        /// The difference in seconds.
        by: f64,
        /// The maximum difference.
        most: Duration,
    },
    /// A zone is stale.
    Stale(StaleZone),
    /// Not enough time with data has passed.
    TooSoon {
        /// The time with data.
        with_data: Duration,
        /// The time due.
        due: Duration,
    },
    /// A number has too few samples.
    TooFew {
        /// The number that is meant.
        measure: Measure,
        /// The samples there are.
        samples: u64,
        /// The samples due.
        due: u64,
    },
    /// A number is unknown.
    Absent(Measure),
    /// A number is NaN or infinite.
    NotANumber(Measure),
    /// An extra gate does not pass.
    Query {
        /// The name of the extra gate.
        name: Name,
        /// The reason.
        flaw: QueryFlaw,
    },
}

/// Judges whether a bucket may leave shadow for canary. A stale zone makes the judgement inconclusive: its
/// evidence is missing.
pub fn leave_shadow(gate: &ShadowGate, min_samples: u64, observed: &Observed) -> Judgement {
    let mut reasons = Reasons::default();
    reasons.share(
        Measure::WouldDropRatio,
        observed.drop_ratio,
        min_samples,
        gate.max_drop_ratio,
    );
    reasons
        .unknown
        .extend(observed.stale.clone().map(Why::Stale));
    reasons.queries(&observed.queries);
    reasons.time(observed.with_data, gate.min);
    reasons.judgement()
}

/// Judges whether a bucket may leave canary for enforce; a bucket that fails returns to shadow. A
/// stale zone fails the gate: the effect of its canary is unknown. Latency counts unless it is [not
/// reported](LatencyBasis::NotReported).
pub fn leave_canary(gate: &CanaryGate, min_samples: u64, observed: &Observed) -> Judgement {
    let mut reasons = Reasons::default();
    reasons.bad.extend(observed.stale.clone().map(Why::Stale));
    reasons.share(
        Measure::CanaryDropRatio,
        observed.drop_ratio,
        min_samples,
        gate.max_drop_ratio,
    );
    if observed.latency_basis() == LatencyBasis::Compared {
        reasons.latency(gate.max_p99_delta, observed, min_samples);
    }
    reasons.queries(&observed.queries);
    reasons.time(observed.with_data, gate.min);
    reasons.judgement()
}

impl Observed {
    /// Returns the treatment of latency by the canary gate. One reported latency is enough for it to be
    /// compared, so that no claim about unobserved requests hides a slow canary.
    pub const fn latency_basis(&self) -> LatencyBasis {
        let samples = self.canary_p99.samples > 0 || self.control_p99.samples > 0;
        if self.unobserved > 0 && !self.has_latencies && !samples {
            LatencyBasis::NotReported
        } else {
            LatencyBasis::Compared
        }
    }
}

impl Reading {
    /// Returns `part / whole` as a reading; without a value if `whole` is 0.
    pub fn share(part: u64, whole: u64) -> Self {
        Self {
            value: (whole > 0).then(|| part as f64 / whole as f64),
            samples: whole,
        }
    }
}

impl Judgement {
    /// Returns true if the gate passes.
    pub const fn is_pass(&self) -> bool {
        matches!(self, Self::Pass)
    }

    /// The judgement as one word, for tables and scripts.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail(_) => "fail",
            Self::Inconclusive(_) => "inconclusive",
        }
    }

    /// The reasons against passing.
    pub fn reasons(&self) -> &[Why] {
        match self {
            Self::Pass => &[],
            Self::Fail(why) | Self::Inconclusive(why) => why,
        }
    }
}

#[derive(Default)]
struct Reasons {
    bad: Vec<Why>,
    unknown: Vec<Why>,
}

impl Reasons {
    /// Returns the number, if it is finite and has enough samples.
    fn known(&mut self, measure: Measure, reading: Reading, min_samples: u64) -> Option<f64> {
        let why = match reading.value {
            None => Why::Absent(measure),
            Some(value) if !value.is_finite() => Why::NotANumber(measure),
            Some(_) if reading.samples < min_samples => Why::TooFew {
                measure,
                samples: reading.samples,
                due: min_samples,
            },
            known => return known,
        };
        self.unknown.push(why);
        None
    }

    fn share(&mut self, measure: Measure, reading: Reading, min_samples: u64, most: f64) {
        if let Some(ratio) = self.known(measure, reading, min_samples)
            && ratio > most
        {
            self.bad.push(Why::TooMany {
                measure,
                ratio,
                most,
            });
        }
    }

    fn latency(&mut self, most: Duration, observed: &Observed, min_samples: u64) {
        let canary = self.known(Measure::CanaryP99, observed.canary_p99, min_samples);
        let control = self.known(Measure::ControlP99, observed.control_p99, min_samples);
        if let Some((canary, control)) = canary.zip(control) {
            let by = canary - control;
            if by > most.as_secs_f64() {
                self.bad.push(Why::Slower { by, most });
            }
        }
    }

    fn queries(&mut self, queries: &[QueryGateState]) {
        for query in queries {
            let Some(flaw) = query.flaw() else { continue };
            let reasons = if flaw.is_known() {
                &mut self.bad
            } else {
                &mut self.unknown
            };
            reasons.push(Why::Query {
                name: query.name.clone(),
                flaw,
            });
        }
    }

    fn time(&mut self, with_data: Duration, due: Duration) {
        if with_data < due {
            self.unknown.push(Why::TooSoon { with_data, due });
        }
    }

    fn judgement(self) -> Judgement {
        match (self.bad.is_empty(), self.unknown.is_empty()) {
            (false, _) => Judgement::Fail(self.bad),
            (true, false) => Judgement::Inconclusive(self.unknown),
            (true, true) => Judgement::Pass,
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WouldDropRatio => "would-drop ratio",
            Self::CanaryDropRatio => "drop ratio of the canary cohort",
            Self::CanaryP99 => "p99 of the canary cohort",
            Self::ControlP99 => "p99 of the control cohort",
        })
    }
}

impl fmt::Display for LatencyBasis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compared => "latency is compared",
            Self::NotReported => "latency is not compared: no instance reports it",
        })
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany {
                measure,
                ratio,
                most,
            } => {
                write!(
                    f,
                    "{measure} {:.3} % exceeds the maximum of {} %",
                    ratio * 100.0,
                    most * 100.0
                )
            }
            Self::Slower { by, most } => {
                let most = most.as_secs_f64() * 1e3;
                write!(
                    f,
                    "p99 of the canary cohort is {:.1} ms above the control cohort's, more than the maximum of {most} ms",
                    by * 1e3
                )
            }
            Self::Stale(StaleZone { zone, age }) => {
                write!(f, "zone {zone} has sent no report for {} s", age.as_secs())
            }
            Self::TooSoon { with_data, due } => {
                write!(
                    f,
                    "{} with data of the {} due",
                    Span(*with_data),
                    Span(*due)
                )
            }
            Self::TooFew {
                measure,
                samples,
                due,
            } => {
                write!(f, "{measure} has {samples} samples of the {due} due")
            }
            Self::Absent(measure) => write!(f, "{measure} is unknown"),
            Self::NotANumber(measure) => write!(f, "{measure} is not a number"),
            Self::Query { name, flaw } => write!(f, "{name} {flaw}"),
        }
    }
}

struct Span(Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        let (unit, name) = match seconds {
            s if s >= 86_400.0 => (86_400.0, "d"),
            s if s >= 3_600.0 => (3_600.0, "h"),
            s if s >= 60.0 => (60.0, "min"),
            _ => (1.0, "s"),
        };
        write!(f, "{} {name}", (seconds / unit * 10.0).round() / 10.0)
    }
}

#[cfg(test)]
mod tests;
