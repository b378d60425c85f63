//! Arrivals: the number of requests, or of groups of them, in one step, exactly Poisson.

use rand::rngs::SmallRng;
use rand_distr::{Distribution, Poisson};

use crate::rng::unit;

/// Maximum mean for inversion; above it the methods of `rand_distr` are cheaper.
const INVERSION_MEAN_MAX: f64 = 10.0;

/// The Poisson distribution with one mean, created once for many draws.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arrivals {
    None,
    /// Inversion: sums the distribution function until it passes one uniform draw (53 bits of it).
    /// `none` is the probability of no arrival.
    Small {
        mean: f64,
        none: f64,
    },
    /// The methods of `rand_distr`, exact as well.
    Large(Poisson<f64>),
}

impl Arrivals {
    /// A mean that is negative or not a number gives no arrivals.
    pub(crate) fn of(mean: f64) -> Self {
        if mean.is_nan() || mean <= 0.0 {
            Self::None
        } else if mean <= INVERSION_MEAN_MAX {
            Self::Small {
                mean,
                none: (-mean).exp(),
            }
        } else {
            Poisson::new(mean).map_or(Self::None, Self::Large)
        }
    }

    pub(crate) fn draw(&self, generator: &mut SmallRng) -> u32 {
        match self {
            Self::None => 0,
            Self::Small { mean, none } => {
                let u = unit(generator);
                let (mut count, mut term, mut sum) = (0_u32, *none, *none);
                // Rounding may keep the sum below 1; at these means no draw of 53 bits exceeds this count.
                while u >= sum && count < 200 {
                    count += 1;
                    term *= mean / f64::from(count);
                    sum += term;
                }
                count
            }
            Self::Large(poisson) => poisson.sample(generator) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, generator};

    #[test]
    fn mean_and_variance_are_those_of_poisson() {
        let mut rng = generator(3, Purpose::Traffic);
        for mean in [0.01, 0.7, 3.0, 9.9, 10.1, 250.0] {
            let arrivals = Arrivals::of(mean);
            let n = 200_000;
            let (mut sum, mut squares) = (0.0, 0.0);
            for _ in 0..n {
                let count = f64::from(arrivals.draw(&mut rng));
                sum += count;
                squares += count * count;
            }
            let average = sum / f64::from(n);
            let variance = squares / f64::from(n) - average * average;
            let tolerance = 6.0 * (mean / f64::from(n)).sqrt();
            assert!((average - mean).abs() < tolerance, "{mean}: {average}");
            assert!(
                (variance / mean - 1.0).abs() < 0.06,
                "{mean}: variance {variance}"
            );
        }
        assert_eq!(Arrivals::of(0.0).draw(&mut rng), 0);
        assert_eq!(Arrivals::of(f64::NAN).draw(&mut rng), 0);
    }
}
