//! A number as written in YAML, before validation.

use std::fmt;

use schemars::JsonSchema;
use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// Any number of YAML, NaN and infinity included: those are refused with a better message where the number is
/// interpreted. A quoted number is text, not a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema)]
#[schemars(inline, description = "A number in plain decimal digits")]
pub struct Number(pub f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Expected;
        impl Visitor<'_> for Expected {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Number, E> {
                Ok(Number(number))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Number, E> {
                Ok(Number(number as f64))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Number, E> {
                Ok(Number(number as f64))
            }
        }
        deserializer.deserialize_any(Expected)
    }
}
