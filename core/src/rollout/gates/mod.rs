//! The gates between the stages of a rollout: evidence in, a judgement out. Pure.
//!
//! What is not known never passes: too few samples, an absent value and one that is no number are inconclusive. What is
//! known to be bad fails, whatever else is unknown.

use std::fmt;
use std::time::Duration;

use super::query_gate::{Extra, Flaw};
use crate::names::Name;

/// A zone is stale when nothing was heard of it for longer than this, unless it stopped in good order.
pub const STALE_AFTER: Duration = Duration::from_secs(60);

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

impl Default for ShadowGate {
    fn default() -> Self {
        let day = Duration::from_secs(86_400);
        Self { min: 7 * day, window: day, max_drop_ratio: 0.005 }
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

/// What was observed of one bucket, or of all that a pattern matches, since its present stage began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// How long, in time that had data.
    pub with_data: Duration,
    /// In shadow would-dropped by offered, in canary refused by offered in the cohort; its samples are what was offered.
    pub drop_ratio: Reading,
    /// The 99th percentile of the canary cohort in seconds.
    pub canary_p99: Reading,
    /// The same of all others.
    pub control_p99: Reading,
    /// The zone that was not heard for the longest time, if that is too long.
    pub stale: Option<StaleZone>,
    /// The extra gates of the policy, each with its answer.
    pub extras: Vec<Extra>,
}

/// One number, and what it rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// The number; `None` where there is none.
    pub value: Option<f64>,
    /// How many samples it was made from.
    pub samples: u64,
}

/// A zone whose feed is too old.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleZone {
    /// Its name.
    pub zone: String,
    /// Since it was last heard.
    pub age: Duration,
}

/// What a gate says.
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    /// Enforcement may go further.
    Pass,
    /// It must not: at least one thing is bad.
    Fail(Vec<Why>),
    /// Nothing is known to be bad, but not enough to be good.
    Inconclusive(Vec<Why>),
}

/// Which number is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Would-dropped by offered.
    WouldDropRatio,
    /// StreamRejected by offered in the canary cohort.
    CanaryDropRatio,
    /// The 99th percentile of latency in the canary cohort.
    CanaryP99,
    /// The 99th percentile of latency outside it.
    ControlP99,
}

/// One reason of a judgement.
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    /// A share of requests is above what is allowed.
    TooMany {
        /// Which share.
        measure: Measure,
        /// What it is.
        ratio: f64,
        /// What it may be at most.
        most: f64,
    },
    /// The canary cohort is slower than the others by more than is allowed.
    Slower {
        /// By how much, in seconds.
        by: f64,
        /// By how much it may be.
        most: Duration,
    },
    /// A zone was not heard for too long.
    Stale(StaleZone),
    /// Not enough time with data has passed.
    TooSoon {
        /// How much did.
        with_data: Duration,
        /// How much must.
        due: Duration,
    },
    /// A number rests on too little.
    TooFew {
        /// Which one.
        measure: Measure,
        /// On how many samples.
        samples: u64,
        /// How many it takes.
        due: u64,
    },
    /// There is no such number.
    Absent(Measure),
    /// It is not a number.
    NotANumber(Measure),
    /// An extra gate is not passed.
    Extra {
        /// What it is called.
        name: Name,
        /// Why.
        flaw: Flaw,
    },
}

/// Whether a bucket may leave shadow for canary. A stale zone makes it inconclusive: what it would have shown is missing.
#[must_use]
pub fn leave_shadow(gate: &ShadowGate, min_samples: u64, observed: &Observed) -> Judgement {
    let mut reasons = Reasons::default();
    reasons.share(Measure::WouldDropRatio, observed.drop_ratio, min_samples, gate.max_drop_ratio);
    reasons.unknown.extend(observed.stale.clone().map(Why::Stale));
    reasons.extras(&observed.extras);
    reasons.time(observed.with_data, gate.min);
    reasons.judgement()
}

/// Whether a bucket may leave canary for enforce; one that fails returns to shadow. A stale zone fails: nobody can tell
/// what its canary does.
#[must_use]
pub fn leave_canary(gate: &CanaryGate, min_samples: u64, observed: &Observed) -> Judgement {
    let mut reasons = Reasons::default();
    reasons.bad.extend(observed.stale.clone().map(Why::Stale));
    reasons.share(Measure::CanaryDropRatio, observed.drop_ratio, min_samples, gate.max_drop_ratio);
    let canary = reasons.known(Measure::CanaryP99, observed.canary_p99, min_samples);
    let control = reasons.known(Measure::ControlP99, observed.control_p99, min_samples);
    if let Some((canary, control)) = canary.zip(control) {
        let by = canary - control;
        if by > gate.max_p99_delta.as_secs_f64() {
            reasons.bad.push(Why::Slower { by, most: gate.max_p99_delta });
        }
    }
    reasons.extras(&observed.extras);
    reasons.time(observed.with_data, gate.min);
    reasons.judgement()
}

impl Reading {
    /// A share of `whole`; `None` of nothing.
    #[must_use]
    pub fn share(part: u64, whole: u64) -> Self {
        Self { value: (whole > 0).then(|| part as f64 / whole as f64), samples: whole }
    }
}

impl Judgement {
    /// Whether enforcement may go further.
    #[must_use]
    pub const fn is_pass(&self) -> bool {
        matches!(self, Self::Pass)
    }

    /// Whether something is known to be bad.
    #[must_use]
    pub const fn is_fail(&self) -> bool {
        matches!(self, Self::Fail(_))
    }

    /// A short word for tables and scripts.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail(_) => "fail",
            Self::Inconclusive(_) => "inconclusive",
        }
    }

    /// What speaks against passing.
    #[must_use]
    pub fn reasons(&self) -> &[Why] {
        match self {
            Self::Pass => &[],
            Self::Fail(why) | Self::Inconclusive(why) => why,
        }
    }
}

/// What was found so far.
#[derive(Default)]
struct Reasons {
    bad: Vec<Why>,
    unknown: Vec<Why>,
}

impl Reasons {
    /// The number, if it is one and rests on enough.
    fn known(&mut self, measure: Measure, reading: Reading, min_samples: u64) -> Option<f64> {
        let why = match reading.value {
            None => Why::Absent(measure),
            Some(value) if !value.is_finite() => Why::NotANumber(measure),
            Some(_) if reading.samples < min_samples => {
                Why::TooFew { measure, samples: reading.samples, due: min_samples }
            }
            known => return known,
        };
        self.unknown.push(why);
        None
    }

    fn share(&mut self, measure: Measure, reading: Reading, min_samples: u64, most: f64) {
        if let Some(ratio) = self.known(measure, reading, min_samples)
            && ratio > most
        {
            self.bad.push(Why::TooMany { measure, ratio, most });
        }
    }

    fn extras(&mut self, extras: &[Extra]) {
        for extra in extras {
            let Some(flaw) = extra.flaw() else { continue };
            let reasons = if flaw.is_known() { &mut self.bad } else { &mut self.unknown };
            reasons.push(Why::Extra { name: extra.name.clone(), flaw });
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
            Self::WouldDropRatio => "would-dropped / offered",
            Self::CanaryDropRatio => "refused / offered in the canary cohort",
            Self::CanaryP99 => "p99 of the canary cohort",
            Self::ControlP99 => "p99 of the control cohort",
        })
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany { measure, ratio, most } => {
                write!(f, "{measure} is {:.3} %, at most {} % may be", ratio * 100.0, most * 100.0)
            }
            Self::Slower { by, most } => {
                let most = most.as_secs_f64() * 1e3;
                write!(
                    f,
                    "p99 of the canary cohort is {:.1} ms above the control cohort's, at most {most} ms may be",
                    by * 1e3
                )
            }
            Self::Stale(StaleZone { zone, age }) => {
                write!(f, "zone {zone} has not been heard for {} s", age.as_secs())
            }
            Self::TooSoon { with_data, due } => {
                write!(f, "{} of {} with data", Span(*with_data), Span(*due))
            }
            Self::TooFew { measure, samples, due } => {
                write!(f, "{measure} rests on {samples} samples of {due}")
            }
            Self::Absent(measure) => write!(f, "{measure} is not known"),
            Self::NotANumber(measure) => write!(f, "{measure} is not a number"),
            Self::Extra { name, flaw } => write!(f, "{name} {flaw}"),
        }
    }
}

/// A span as people say it: with the largest unit that leaves a whole part.
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
