//! Names that the requests of one entry of `traffic` use in place of the tenant's, each with its
//! own rate.

use std::fmt;

use plimsoll_policy::Number;
use rand::RngExt;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Zipf};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

/// Maximum number of names with separate counts.
pub(crate) const COUNTED_NAMES_MAX: u32 = 100_000;

/// The names of an entry as a scenario writes them: a number of names in turn, or a mapping.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NamesSpec {
    pub(crate) drawn: DrawnSpec,
    /// Number of names that are used in turn.
    pub(crate) in_turn: Option<u32>,
}

/// Names that are drawn at random.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DrawnSpec {
    pub(crate) count: Option<u32>,
    /// Exponent of the rates by rank; equal rates if absent.
    pub(crate) zipf: Option<Number>,
    /// True if no name is used twice.
    pub(crate) once: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Names {
    InTurn(u32),
    Equal(u32),
    Zipf { count: u32, exponent: f64 },
    Once,
}

#[derive(Debug)]
pub(crate) enum NameSource {
    /// Next name of each client. The names of one client are as far apart as there are clients.
    InTurn {
        of: u32,
        next: Vec<u32>,
    },
    Equal(u32),
    Zipf(Zipf<f64>),
    Once(u32),
}

impl Names {
    /// Returns the number of names, if few enough to count each of them.
    pub(crate) fn counted(self) -> Option<u32> {
        let (Self::InTurn(count) | Self::Equal(count) | Self::Zipf { count, .. }) = self else {
            return None;
        };
        Some(count).filter(|count| *count <= COUNTED_NAMES_MAX)
    }

    pub(crate) fn source(self, clients: usize) -> NameSource {
        match self {
            Self::InTurn(of) => NameSource::InTurn {
                of,
                next: (0..clients as u32).map(|client| client % of).collect(),
            },
            Self::Equal(count) => NameSource::Equal(count),
            Self::Zipf { count, exponent } => {
                Zipf::new(count.into(), exponent).map_or(NameSource::Equal(count), NameSource::Zipf)
            }
            Self::Once => NameSource::Once(0),
        }
    }
}

impl NameSource {
    /// Draws the name of a request at `client`. A random choice for each request of a Poisson
    /// process makes the requests of each name a Poisson process, too.
    pub(crate) fn draw(&mut self, client: u32, rng: &mut SmallRng) -> u32 {
        match self {
            Self::InTurn { of, next } => {
                let step = next.len() as u32;
                let next = &mut next[client as usize];
                let name = *next;
                *next = (name + step) % *of;
                name
            }
            Self::Equal(count) => rng.random_range(0..*count),
            Self::Zipf(zipf) => zipf.sample(rng) as u32 - 1,
            Self::Once(next) => {
                *next += 1;
                *next - 1
            }
        }
    }
}

impl<'de> Deserialize<'de> for NamesSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Expected;
        impl<'de> Visitor<'de> for Expected {
            type Value = NamesSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of names, or { count: 5000 }")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<NamesSpec, E> {
                let in_turn = Some(u32::try_from(number).unwrap_or(u32::MAX));
                Ok(NamesSpec {
                    in_turn,
                    ..NamesSpec::default()
                })
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<NamesSpec, E> {
                self.visit_u64(number.try_into().unwrap_or_default())
            }

            fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<NamesSpec, A::Error> {
                let drawn = DrawnSpec::deserialize(MapAccessDeserializer::new(entries))?;
                Ok(NamesSpec {
                    drawn,
                    in_turn: None,
                })
            }
        }
        deserializer.deserialize_any(Expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, generator};

    fn drawn(names: Names, draws: u32) -> Vec<u32> {
        let mut rng = generator(1, Purpose::Names);
        let mut source = names.source(3);
        (0..draws)
            .map(|draw| source.draw(draw % 3, &mut rng))
            .collect()
    }

    #[test]
    fn names_have_their_rates() {
        assert_eq!(drawn(Names::InTurn(4), 8), [0, 1, 2, 3, 0, 1, 2, 3]);
        assert_eq!(drawn(Names::Once, 5), [0, 1, 2, 3, 4]);
        let count =
            |names: &[u32], name| names.iter().filter(|other| **other == name).count() as f64;
        let equal = drawn(Names::Equal(10), 100_000);
        assert!((0..10).all(|name| (count(&equal, name) / 1e4 - 1.0).abs() < 0.05));
        let zipf = drawn(
            Names::Zipf {
                count: 100,
                exponent: 1.1,
            },
            100_000,
        );
        let ratio = count(&zipf, 0) / count(&zipf, 9);
        assert!((ratio / 10.0_f64.powf(1.1) - 1.0).abs() < 0.1, "{ratio}");
        assert!(zipf.iter().all(|name| *name < 100));
    }
}
