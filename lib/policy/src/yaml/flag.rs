//! A switch as written in YAML: `true` or `false` without quotes.

use std::fmt;

use schemars::JsonSchema;
use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A truth value. A quoted one is text: a template that quotes every value would otherwise also turn `"false"`
/// into a value that other readers take for true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(inline, description = "`true` or `false` without quotes")]
pub struct Flag(pub bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Expected;
        impl Visitor<'_> for Expected {
            type Value = Flag;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`true` or `false` without quotes")
            }

            fn visit_bool<E: Error>(self, flag: bool) -> Result<Flag, E> {
                Ok(Flag(flag))
            }
        }
        deserializer.deserialize_any(Expected)
    }
}
