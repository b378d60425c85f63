//! A request rate that changes in steps, and its arrivals.

use std::str::FromStr;

use rand::RngExt;
use rand::rngs::SmallRng;

/// Maximum rate in requests/s. Far above it, sending the requests of an interval would take longer than the
/// interval.
const RPS_MAX: f64 = 1e6;

/// A rate in requests/s that changes at given times.
///
/// Written as `800,10000@10s`: 800 requests/s at first, and 10,000 from ten seconds on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Schedule {
    /// Start in seconds, ascending from 0, and rate in requests/s, finite and not negative.
    steps: Vec<(f64, f64)>,
}

impl Schedule {
    pub(crate) fn constant(rps: f64) -> Self {
        Self {
            steps: vec![(0.0, rps)],
        }
    }

    pub(crate) fn times(&self, factor: f64) -> Self {
        Self {
            steps: self
                .steps
                .iter()
                .map(|(from_s, rps)| (*from_s, rps * factor))
                .collect(),
        }
    }

    /// Arrivals in a second that begins at `at_s`, at least 1.
    fn arrivals_per_s(&self, at_s: f64) -> f64 {
        let step = self.steps.iter().rev().find(|(from_s, _)| *from_s <= at_s);
        step.map_or(1.0, |(_, rps)| rps.round().max(1.0))
    }

    /// Time in seconds when `arrivals` more requests are due after `from_s`, or `None` if they
    /// never are.
    fn due(&self, from_s: f64, mut arrivals: f64) -> Option<f64> {
        let mut from_s = from_s;
        for (number, (_, rps)) in self.steps.iter().enumerate() {
            let until_s = self
                .steps
                .get(number + 1)
                .map_or(f64::INFINITY, |(until_s, _)| *until_s);
            if until_s <= from_s || *rps == 0.0 {
                from_s = from_s.max(until_s);
                continue;
            }
            let due_s = from_s + arrivals / rps;
            if due_s <= until_s {
                return Some(due_s);
            }
            arrivals -= rps * (until_s - from_s);
            from_s = until_s;
        }
        None
    }
}

/// Arrivals of a schedule. The number in each second is the rate. Their moments in it are drawn
/// uniformly, as for independent callers.
pub(crate) struct Arrivals {
    schedule: Schedule,
    rng: SmallRng,
    /// Remaining arrivals of the current second, and remaining part of that second, in units of the
    /// mean gap.
    left: f64,
    room: f64,
    last_s: f64,
}

impl Arrivals {
    pub(crate) fn new(schedule: Schedule, rng: SmallRng) -> Self {
        Self {
            schedule,
            rng,
            left: 0.0,
            room: 0.0,
            last_s: 0.0,
        }
    }
}

impl Iterator for Arrivals {
    type Item = f64;

    /// Returns the seconds since the start when the next request is due.
    fn next(&mut self) -> Option<f64> {
        let mut gap = 0.0;
        if self.left < 1.0 {
            gap = self.room;
            self.left = self.schedule.arrivals_per_s(self.last_s);
            self.room = self.left;
        }
        // The first of `left` moments that are drawn uniformly from `room`.
        let first = self.room * (1.0 - self.rng.random::<f64>().powf(1.0 / self.left));
        self.left -= 1.0;
        self.room -= first;
        self.last_s = self.schedule.due(self.last_s, gap + first)?;
        Some(self.last_s)
    }
}

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut steps: Vec<(f64, f64)> = Vec::new();
        for step in text.split(',') {
            let (rps, from) = step
                .split_once('@')
                .map_or((step, None), |(rps, from)| (rps, Some(from)));
            let rps: f64 = rps
                .parse()
                .map_err(|_| format!("`{rps}` is not a number of requests/s, such as 800"))?;
            if !(0.0..=RPS_MAX).contains(&rps) {
                return Err(format!("`{rps}` is not a rate from 0 to {RPS_MAX}"));
            }
            let from_s = match (from, steps.last()) {
                (None, None) => 0.0,
                (Some(from), Some((last_s, _))) => {
                    let from_s =
                        humantime::parse_duration(from).map_err(|error| error.to_string())?;
                    Some(from_s.as_secs_f64())
                        .filter(|from_s| from_s > last_s)
                        .ok_or_else(|| {
                            format!("`{step}` must begin later than the step before it")
                        })?
                }
                _ => {
                    return Err(format!(
                        "`{step}`: write RATE first, then RATE@TIME, such as 800,10000@10s"
                    ));
                }
            };
            steps.push((from_s, rps));
        }
        if steps.iter().all(|(_, rps)| *rps == 0.0) {
            return Err("at least one rate must be above 0".to_owned());
        }
        Ok(Self { steps })
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn every_second_has_the_rate() {
        let moments = |rates: &str, seed| {
            let arrivals = Arrivals::new(rates.parse().unwrap(), SmallRng::seed_from_u64(seed));
            arrivals
                .take_while(|due_s| *due_s < 3.0)
                .collect::<Vec<f64>>()
        };
        for (rates, expected) in [
            ("1", [1, 1, 1]),
            ("10", [10; 3]),
            ("1000", [1000; 3]),
            ("10,0@1s,10@2s", [10, 0, 10]),
        ] {
            for seed in 0..20 {
                let moments = moments(rates, seed);
                let seen = [0.0, 1.0, 2.0].map(|from_s| {
                    moments
                        .iter()
                        .filter(|due_s| (from_s..from_s + 1.0).contains(*due_s))
                        .count()
                });
                assert_eq!(seen, expected, "{rates} with seed {seed}");
            }
        }
        assert_eq!(moments("10", 1), moments("10", 1));
        assert_ne!(moments("10", 1), moments("10", 2));
    }

    #[test]
    fn invalid_schedules_are_rejected() {
        let steps = |text: &str| text.parse::<Schedule>().map(|schedule| schedule.steps).ok();
        assert_eq!(steps("0.5"), Some(vec![(0.0, 0.5)]));
        assert_eq!(
            steps("800,10000@10s"),
            Some(vec![(0.0, 800.0), (10.0, 10_000.0)])
        );
        assert_eq!(
            steps("0,5@1s,0@1500ms"),
            Some(vec![(0.0, 0.0), (1.0, 5.0), (1.5, 0.0)])
        );
        for wrong in [
            "",
            "0",
            "-1",
            "inf",
            "NaN",
            "x",
            "1,2",
            "1@1s",
            "1,2@3s,3@3s",
            "1,2@3",
            "1,,2@3s",
            "0,0@1s",
        ] {
            assert_eq!(steps(wrong), None, "{wrong}");
        }
        assert!(
            steps("1000000").is_some() && steps("1000001").is_none() && steps("1e19").is_none()
        );
    }

    #[test]
    fn arrivals_follow_the_steps() {
        let schedule: Schedule = "10,0@1s,100@2s,0@3s".parse().unwrap();
        for (from_s, arrivals, due_s) in [
            (0.0, 0.0, Some(0.0)),
            (0.0, 5.0, Some(0.5)),
            (0.5, 5.0, Some(1.0)),
            (0.0, 11.0, Some(2.01)),
            (0.9, 51.0, Some(2.5)),
            (1.5, 1.0, Some(2.01)),
            (2.5, 50.0, Some(3.0)),
            (2.5, 51.0, None),
            (4.0, 1.0, None),
        ] {
            let seen = schedule.due(from_s, arrivals);
            let near = match (seen, due_s) {
                (Some(seen), Some(due_s)) => (seen - due_s).abs() < 1e-9,
                (seen, due_s) => seen == due_s,
            };
            assert!(
                near,
                "{arrivals} from {from_s} s on: {seen:?}, not {due_s:?}"
            );
        }
        assert_eq!(schedule.times(2.0), "20,0@1s,200@2s,0@3s".parse().unwrap());
        assert_eq!(Schedule::constant(4.0).due(100.0, 2.0), Some(100.5));
    }
}
