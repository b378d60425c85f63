//! The shapes of scripted load, each a rate over time.

use rand::rngs::SmallRng;

use crate::rng::unit;

/// The longest time a Pareto source stays on or off, in seconds.
const PARETO_LONGEST_S: f64 = 60.0;

/// A load over all clients together, in requests per second.
#[derive(Clone, Debug)]
pub(crate) enum Load {
    Constant(f64),
    /// Times and the rate from each on; zero before the first.
    Steps(Vec<(f64, f64)>),
    Ramp {
        from: f64,
        to: f64,
        start: f64,
        end: f64,
    },
    Sine {
        mean: f64,
        amplitude: f64,
        period: f64,
    },
    /// On at time 0 and then by turns; all clients in phase.
    Square {
        high: f64,
        low: f64,
        on: f64,
        off: f64,
        until: Option<f64>,
    },
    /// Each client is on and off independently of the others.
    Pareto(Pareto),
    /// Rows of a file: a rate holds until the next row, and the first rate also before its row.
    Trace {
        rows: Vec<(f64, f64)>,
        speed: f64,
    },
}

/// On and off times with heavy tails. Models of self-similar traffic are sums of such sources (Willinger,
/// Taqqu, Sherman and Wilson, 1997).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pareto {
    pub(crate) mean_rps: f64,
    pub(crate) alpha: f64,
    pub(crate) on_s: f64,
    pub(crate) off_s: f64,
}

/// The state of one client's source: on or off, and the time of the next change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParetoSource {
    on: bool,
    until: f64,
}

// === impl Load ===

impl Load {
    /// Returns the rate at `t` seconds. O(log n) in the steps or rows.
    pub(crate) fn rate(&self, t: f64) -> f64 {
        match self {
            Self::Constant(rate) => *rate,
            Self::Steps(steps) => at_or_before(steps, t).map_or(0.0, |(_, rate)| rate),
            Self::Ramp { from, to, start, end } => {
                let done = if t < *start { 0.0 } else { ((t - start) / (end - start)).min(1.0) };
                from + (to - from) * done
            }
            Self::Sine { mean, amplitude, period } => {
                (mean + amplitude * (std::f64::consts::TAU * t / period).sin()).max(0.0)
            }
            Self::Square { high, low, on, off, until } => {
                if until.is_some_and(|until| t >= until) {
                    0.0
                } else if t.rem_euclid(on + off) < *on {
                    *high
                } else {
                    *low
                }
            }
            Self::Pareto(pareto) => pareto.mean_rps,
            Self::Trace { rows, speed } => {
                let row = at_or_before(rows, t * speed).or_else(|| rows.first().copied());
                row.map_or(0.0, |(_, rate)| rate)
            }
        }
    }

    /// Returns the time of the last scripted change, or `None` for a load that never stops changing.
    pub(crate) fn last_change(&self) -> Option<f64> {
        match self {
            Self::Constant(_) => Some(0.0),
            Self::Steps(steps) => steps.last().map(|(at, _)| *at),
            Self::Ramp { end, .. } => Some(*end),
            Self::Square { until: Some(until), .. } => Some(*until),
            Self::Sine { .. } | Self::Square { .. } | Self::Pareto(_) | Self::Trace { .. } => None,
        }
    }

    pub(crate) const fn pareto(&self) -> Option<Pareto> {
        match self {
            Self::Pareto(pareto) => Some(*pareto),
            _ => None,
        }
    }
}

fn at_or_before(points: &[(f64, f64)], t: f64) -> Option<(f64, f64)> {
    // Rates are read at the middle of a step of 10 ms, so rounding cannot delay a change that is due at its
    // start.
    let after = points.partition_point(|(at, _)| *at <= t);
    points.get(after.checked_sub(1)?).copied()
}

// === impl Pareto ===

impl Pareto {
    /// Creates a source in its stationary state.
    pub(crate) fn source(&self, t: f64, generator: &mut SmallRng) -> ParetoSource {
        let on = unit(generator) * (self.on_s + self.off_s) < self.on_s;
        let until = t + unit(generator) * self.duration(on, generator);
        ParetoSource { on, until }
    }

    /// Returns the rate of a client that is on, as a multiple of its mean.
    pub(crate) fn boost(&self) -> f64 {
        (self.on_s + self.off_s) / self.on_s
    }

    /// Draws a duration by inversion: `minimum * u^(-1/alpha)` with the minimum that gives the mean, at most
    /// [`PARETO_LONGEST_S`].
    fn duration(&self, on: bool, generator: &mut SmallRng) -> f64 {
        let mean = if on { self.on_s } else { self.off_s };
        let minimum = mean * (self.alpha - 1.0) / self.alpha;
        let u = 1.0 - unit(generator);
        (minimum * u.powf(-1.0 / self.alpha)).min(PARETO_LONGEST_S)
    }
}

// === impl ParetoSource ===

impl ParetoSource {
    /// Advances the source by `span` seconds from `t` and returns the share of them in which it was on.
    pub(crate) fn share_on(&mut self, pareto: &Pareto, t: f64, span: f64, generator: &mut SmallRng) -> f64 {
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
            assert!((load.rate(*t) - rate).abs() < 1e-9, "{load:?} at {t}: {}", load.rate(*t));
        }
    }

    #[test]
    fn every_shape_yields_the_written_rates() {
        check(&Load::Constant(5.0), &[(0.0, 5.0), (99.0, 5.0)]);
        let steps = Load::Steps(vec![(1.0, 10.0), (3.0, 0.0), (4.0, 7.0)]);
        check(&steps, &[(0.5, 0.0), (1.0, 10.0), (2.99, 10.0), (3.0, 0.0), (4.005, 7.0), (99.0, 7.0)]);
        let ramp = Load::Ramp { from: 10.0, to: 30.0, start: 5.0, end: 15.0 };
        check(&ramp, &[(0.0, 10.0), (5.0, 10.0), (10.0, 20.0), (15.0, 30.0), (20.0, 30.0)]);
        let sine = Load::Sine { mean: 1.0, amplitude: 2.0, period: 4.0 };
        check(&sine, &[(0.0, 1.0), (1.0, 3.0), (2.0, 1.0), (3.0, 0.0)]);
        let square = Load::Square { high: 9.0, low: 1.0, on: 0.5, off: 0.25, until: Some(10.0) };
        check(&square, &[(0.0, 9.0), (0.49, 9.0), (0.5, 1.0), (0.74, 1.0), (0.75, 9.0), (10.0, 0.0)]);
        let trace = Load::Trace { rows: vec![(60.0, 5.0), (120.0, 8.0)], speed: 60.0 };
        check(&trace, &[(0.0, 5.0), (1.0, 5.0), (1.99, 5.0), (2.0, 8.0), (50.0, 8.0)]);
    }

    #[test]
    fn only_scripted_loads_have_a_last_change() {
        assert_eq!(Load::Constant(1.0).last_change(), Some(0.0));
        assert_eq!(Load::Steps(vec![(0.0, 1.0), (20.0, 2.0)]).last_change(), Some(20.0));
        assert_eq!(Load::Ramp { from: 0.0, to: 1.0, start: 2.0, end: 9.0 }.last_change(), Some(9.0));
        assert_eq!(Load::Sine { mean: 1.0, amplitude: 1.0, period: 1.0 }.last_change(), None);
    }

    #[test]
    fn pareto_sources_are_on_for_their_share_of_the_time() {
        let pareto = Pareto { mean_rps: 1.0, alpha: 2.5, on_s: 1.0, off_s: 2.0 };
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
            let longest = (0..10_000).map(|_| pareto.duration(on, &mut rng)).fold(0.0, f64::max);
            assert!(longest <= PARETO_LONGEST_S);
        }
    }
}
