//! The shapes of scripted load, each a rate over time.

use plimsoll_policy::Number;
use rand::rngs::SmallRng;
use serde::Deserialize;

use crate::rng::unit;

/// Maximum time that a Pareto source stays on or off, in seconds.
const PARETO_LONGEST_S: f64 = 60.0;

/// A load over all clients together, in requests per second, as a scenario writes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Load {
    Constant(Number),
    /// Rate from each step on; zero before the first.
    Steps(Vec<Step>),
    Ramp {
        from_rps: Number,
        to_rps: Number,
        start_s: Number,
        end_s: Number,
    },
    Sine {
        mean_rps: Number,
        amplitude_rps: Number,
        period_s: Number,
    },
    /// On at time 0 and then alternating; all clients in phase. From `until_s` on the load is zero.
    Square {
        high_rps: Number,
        #[serde(default)]
        low_rps: Number,
        on_s: Number,
        off_s: Number,
        until_s: Option<Number>,
    },
    Pareto(Pareto),
    Trace(Trace),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) at_s: Number,
    pub(crate) rps: Number,
}

/// On and off times with heavy tails. Models of self-similar traffic are sums of such sources
/// (Willinger, Taqqu, Sherman and Wilson, 1997).
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pareto {
    pub(crate) mean_rps: Number,
    pub(crate) alpha: Number,
    pub(crate) on_s: Number,
    pub(crate) off_s: Number,
    #[serde(default)]
    pub(crate) per: Per,
}

/// Clients that share a source, and so are on and off together: each alone, or all of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Per {
    #[default]
    Client,
    Tenant,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trace {
    pub(crate) csv: String,
    /// Seconds of the file for each second of the run; 1 if absent.
    #[serde(default = "own_speed")]
    pub(crate) speed: Number,
    /// Rows of the file: a rate holds until the next row, and the first rate also before its row.
    #[serde(skip)]
    pub(crate) rows: Vec<(f64, f64)>,
}

const fn own_speed() -> Number {
    Number(1.0)
}

/// State of one source: on or off, and the time of the next change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParetoSource {
    on: bool,
    until: f64,
}

impl Load {
    /// Returns the rate at `t` seconds. O(log n) in the steps or rows.
    pub(crate) fn rate(&self, t: f64) -> f64 {
        // Read at the middle of a step of 10 ms, so rounding cannot delay a change that is due at its start.
        match self {
            Self::Constant(rate) => rate.0,
            Self::Steps(steps) => {
                let begun = steps.partition_point(|step| step.at_s.0 <= t);
                steps[..begun].last().map_or(0.0, |step| step.rps.0)
            }
            Self::Ramp {
                from_rps: from,
                to_rps: to,
                start_s: start,
                end_s: end,
            } => {
                let done = if t < start.0 {
                    0.0
                } else {
                    ((t - start.0) / (end.0 - start.0)).min(1.0)
                };
                from.0 + (to.0 - from.0) * done
            }
            Self::Sine {
                mean_rps,
                amplitude_rps,
                period_s,
            } => {
                let swing = amplitude_rps.0 * (std::f64::consts::TAU * t / period_s.0).sin();
                (mean_rps.0 + swing).max(0.0)
            }
            Self::Square {
                until_s: Some(until),
                ..
            } if t >= until.0 => 0.0,
            Self::Square {
                high_rps,
                low_rps,
                on_s,
                off_s,
                ..
            } => {
                if t.rem_euclid(on_s.0 + off_s.0) < on_s.0 {
                    high_rps.0
                } else {
                    low_rps.0
                }
            }
            Self::Pareto(pareto) => pareto.mean_rps.0,
            Self::Trace(Trace { rows, speed, .. }) => {
                let t = t * speed.0;
                let begun = rows.partition_point(|(at, _)| *at <= t);
                rows.get(begun.saturating_sub(1))
                    .map_or(0.0, |(_, rate)| *rate)
            }
        }
    }

    /// Returns the time of the last scripted change, or `None` for a load that never stops
    /// changing.
    pub(crate) fn last_change(&self) -> Option<f64> {
        match self {
            Self::Constant(_) => Some(0.0),
            Self::Steps(steps) => steps.last().map(|step| step.at_s.0),
            Self::Ramp { end_s: end, .. }
            | Self::Square {
                until_s: Some(end), ..
            } => Some(end.0),
            Self::Sine { .. } | Self::Square { .. } | Self::Pareto(_) | Self::Trace { .. } => None,
        }
    }

    /// Returns the seconds of the file for each second of the run, if the load is from a file.
    pub(crate) fn trace_speed(&self) -> Option<f64> {
        match self {
            Self::Trace(trace) => Some(trace.speed.0),
            _ => None,
        }
    }

    pub(crate) const fn pareto(&self) -> Option<Pareto> {
        match self {
            Self::Pareto(pareto) => Some(*pareto),
            _ => None,
        }
    }
}

impl Pareto {
    /// Draws the state of a source at `t` seconds.
    pub(crate) fn source(&self, t: f64, generator: &mut SmallRng) -> ParetoSource {
        let on = unit(generator) * (self.on_s.0 + self.off_s.0) < self.on_s.0;
        let until = t + unit(generator) * self.duration(on, generator);
        ParetoSource { on, until }
    }

    /// Returns the rate while on, as a multiple of the mean.
    fn boost(&self) -> f64 {
        (self.on_s.0 + self.off_s.0) / self.on_s.0
    }

    /// Draws a duration by inversion: `minimum * u^(-1/alpha)` with the minimum that gives the
    /// mean, at most [`PARETO_LONGEST_S`].
    fn duration(&self, on: bool, generator: &mut SmallRng) -> f64 {
        let mean = if on { self.on_s.0 } else { self.off_s.0 };
        let minimum = mean * (self.alpha.0 - 1.0) / self.alpha.0;
        let u = 1.0 - unit(generator);
        (minimum * u.powf(-1.0 / self.alpha.0)).min(PARETO_LONGEST_S)
    }
}

impl ParetoSource {
    /// Advances the source by `span` seconds from `t` and returns its rate in them, as a multiple
    /// of the mean.
    pub(crate) fn rate(
        &mut self,
        pareto: &Pareto,
        t: f64,
        span: f64,
        generator: &mut SmallRng,
    ) -> f64 {
        self.share_on(pareto, t, span, generator) * pareto.boost()
    }

    /// Advances the source by `span` seconds from `t` and returns the share of that time when it
    /// was on.
    fn share_on(&mut self, pareto: &Pareto, t: f64, span: f64, generator: &mut SmallRng) -> f64 {
        let (mut from, end, mut on) = (t, t + span, 0.0);
        while from < end {
            if self.until <= from {
                self.on = !self.on;
                self.until = from.max(self.until) + pareto.duration(self.on, generator);
            }
            let to = self.until.min(end);
            on += if self.on { to - from } else { 0.0 };
            from = to;
        }
        on / span
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, generator};

    fn check(load: &Load, expected: &[(f64, f64)]) {
        for (t, rate) in expected {
            assert!(
                (load.rate(*t) - rate).abs() < 1e-9,
                "{load:?} at {t}: {}",
                load.rate(*t)
            );
        }
    }

    fn steps(steps: &[(f64, f64)]) -> Load {
        let step = |(at_s, rps): &(f64, f64)| Step {
            at_s: Number(*at_s),
            rps: Number(*rps),
        };
        Load::Steps(steps.iter().map(step).collect())
    }

    fn ramp([from_rps, to_rps, start_s, end_s]: [f64; 4]) -> Load {
        let [from_rps, to_rps, start_s, end_s] = [from_rps, to_rps, start_s, end_s].map(Number);
        Load::Ramp {
            from_rps,
            to_rps,
            start_s,
            end_s,
        }
    }

    fn sine([mean_rps, amplitude_rps, period_s]: [f64; 3]) -> Load {
        let [mean_rps, amplitude_rps, period_s] = [mean_rps, amplitude_rps, period_s].map(Number);
        Load::Sine {
            mean_rps,
            amplitude_rps,
            period_s,
        }
    }

    #[test]
    fn every_shape_yields_the_written_rates() {
        check(&Load::Constant(Number(5.0)), &[(0.0, 5.0), (99.0, 5.0)]);
        let steps = steps(&[(1.0, 10.0), (3.0, 0.0), (4.0, 7.0)]);
        check(
            &steps,
            &[
                (0.5, 0.0),
                (1.0, 10.0),
                (2.99, 10.0),
                (3.0, 0.0),
                (4.005, 7.0),
                (99.0, 7.0),
            ],
        );
        let ramp = ramp([10.0, 30.0, 5.0, 15.0]);
        check(
            &ramp,
            &[
                (0.0, 10.0),
                (5.0, 10.0),
                (10.0, 20.0),
                (15.0, 30.0),
                (20.0, 30.0),
            ],
        );
        let sine = sine([1.0, 2.0, 4.0]);
        check(&sine, &[(0.0, 1.0), (1.0, 3.0), (2.0, 1.0), (3.0, 0.0)]);
        let [high_rps, low_rps, on_s, off_s] = [9.0, 1.0, 0.5, 0.25].map(Number);
        let square = Load::Square {
            high_rps,
            low_rps,
            on_s,
            off_s,
            until_s: Some(Number(10.0)),
        };
        check(
            &square,
            &[
                (0.0, 9.0),
                (0.49, 9.0),
                (0.5, 1.0),
                (0.74, 1.0),
                (0.75, 9.0),
                (10.0, 0.0),
            ],
        );
        let rows = vec![(60.0, 5.0), (120.0, 8.0)];
        let trace = Load::Trace(Trace {
            rows,
            speed: Number(60.0),
            csv: String::new(),
        });
        check(
            &trace,
            &[(0.0, 5.0), (1.0, 5.0), (1.99, 5.0), (2.0, 8.0), (50.0, 8.0)],
        );
    }

    #[test]
    fn only_scripted_loads_have_a_last_change() {
        assert_eq!(Load::Constant(Number(1.0)).last_change(), Some(0.0));
        assert_eq!(steps(&[(0.0, 1.0), (20.0, 2.0)]).last_change(), Some(20.0));
        assert_eq!(ramp([0.0, 1.0, 2.0, 9.0]).last_change(), Some(9.0));
        assert_eq!(sine([1.0, 1.0, 1.0]).last_change(), None);
    }

    #[test]
    fn pareto_sources_keep_their_share_of_time() {
        let [mean_rps, alpha, on_s, off_s] = [1.0, 2.5, 1.0, 2.0].map(Number);
        let pareto = Pareto {
            mean_rps,
            alpha,
            on_s,
            off_s,
            per: Per::Client,
        };
        let mut rng = generator(7, Purpose::Sources);
        let (mut on, steps, sources) = (0.0, 2_000, 200);
        for _ in 0..sources {
            let mut source = pareto.source(0.0, &mut rng);
            for step in 0..steps {
                on += source.share_on(&pareto, f64::from(step) * 0.01, 0.01, &mut rng);
            }
        }
        let share = on / f64::from(steps * sources);
        assert!((share - 1.0 / 3.0).abs() < 0.02, "{share}");
        assert!((pareto.boost() - 3.0).abs() < 1e-12);
        for on in [true, false] {
            let longest = (0..10_000)
                .map(|_| pareto.duration(on, &mut rng))
                .fold(0.0, f64::max);
            assert!(longest <= PARETO_LONGEST_S);
        }
    }
}
