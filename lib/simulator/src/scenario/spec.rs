//! The YAML schema of a scenario: keys and types. [`check`](super::check) validates the values.

use std::collections::BTreeMap;
use std::fmt;

use plimsoll_policy::Number;
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::changes::ChangeSpec;
use super::{FaultKind, Join, Network, Pace, Start, WaitingCallers};
use crate::traffic::{Groups, Load, NamesSpec, Retry, Share};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScenarioSpec {
    pub(crate) name: String,
    pub(crate) duration_s: Number,
    #[serde(default)]
    pub(crate) warmup_s: Number,
    pub(crate) zones: u32,
    #[serde(default)]
    pub(crate) upper: u32,
    pub(crate) clients: u32,
    pub(crate) report_ms: Option<u32>,
    pub(crate) tick_ms: Option<u32>,
    #[serde(default)]
    pub(crate) network: Network,
    // Parsed by the policy's own reader, from the same text.
    pub(crate) policy: Option<IgnoredAny>,
    pub(crate) policy_file: Option<String>,
    pub(crate) tenants: Option<IgnoredAny>,
    pub(crate) tenants_file: Option<String>,
    pub(crate) traffic: Vec<TrafficSpec>,
    #[serde(default)]
    pub(crate) joins: Vec<Join>,
    #[serde(default)]
    pub(crate) faults: Vec<FaultSpec>,
    #[serde(default)]
    pub(crate) changes: Vec<ChangeSpec>,
    #[serde(default)]
    pub(crate) pace: Pace,
    #[serde(default)]
    pub(crate) align_rollups: bool,
    pub(crate) start: Option<Start>,
    #[serde(default)]
    pub(crate) expect: BTreeMap<String, OneOrMany<ExpectSpec>>,
    #[serde(default)]
    pub(crate) variants: Vec<Variant>,
    #[serde(default)]
    pub(crate) expect_at_tick: BTreeMap<String, BTreeMap<String, OneOrMany<ExpectSpec>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrafficSpec {
    pub(crate) bucket: String,
    #[serde(default = "default_tenant")]
    pub(crate) tenant: String,
    pub(crate) plan: Option<String>,
    pub(crate) names: Option<NamesSpec>,
    pub(crate) cost: Option<u32>,
    #[serde(default)]
    pub(crate) zones: Vec<u32>,
    pub(crate) callers: Option<WaitingCallers>,
    pub(crate) load: Load,
    pub(crate) clients: Option<ClientsSpec>,
    pub(crate) groups: Option<Groups>,
    pub(crate) retry: Option<Retry>,
}

fn default_tenant() -> String {
    plimsoll_core::names::DEFAULT_TENANT.to_owned()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientsSpec {
    pub(crate) share: Vec<Share>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FaultSpec {
    pub(crate) kind: FaultKind,
    pub(crate) zone: Option<u32>,
    pub(crate) client: Option<u32>,
    pub(crate) at_s: Number,
    pub(crate) until_s: Option<Number>,
    pub(crate) keep_state: Option<bool>,
    pub(crate) reconnect_s: Option<Vec<Number>>,
}

/// Expectations of one bucket: bounds by the name of the figure.
pub(crate) type ExpectSpec = BTreeMap<String, BoundSpec>;

#[derive(Clone, Debug)]
pub(crate) enum BoundSpec {
    Numbers(Vec<Number>),
    Number(Number),
    Flag(bool),
}

/// One value or a list of them. Errors name the position in a list.
#[derive(Debug)]
pub(crate) struct OneOrMany<T> {
    pub(crate) values: Vec<T>,
    pub(crate) is_list: bool,
}

impl<'de> Deserialize<'de> for BoundSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Expected;
        impl<'de> Visitor<'de> for Expected {
            type Value = BoundSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bounds such as [0, 1.65]")
            }

            fn visit_bool<E: Error>(self, flag: bool) -> Result<BoundSpec, E> {
                Ok(BoundSpec::Flag(flag))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<BoundSpec, E> {
                Ok(BoundSpec::Number(Number(number)))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<BoundSpec, E> {
                self.visit_f64(number as f64)
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<BoundSpec, E> {
                self.visit_f64(number as f64)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<BoundSpec, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(items)).map(BoundSpec::Numbers)
            }
        }
        deserializer.deserialize_any(Expected)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Expected<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Expected<T> {
            type Value = OneOrMany<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping, or a list of them")
            }

            fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<OneOrMany<T>, A::Error> {
                let one = T::deserialize(MapAccessDeserializer::new(entries))?;
                Ok(OneOrMany {
                    values: vec![one],
                    is_list: false,
                })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<OneOrMany<T>, A::Error> {
                Ok(OneOrMany {
                    values: Vec::deserialize(SeqAccessDeserializer::new(items))?,
                    is_list: true,
                })
            }
        }
        deserializer.deserialize_any(Expected(std::marker::PhantomData))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Variant {
    pub(super) name: String,
    // Read by `variants` before, with the whole file's multiples of it.
    #[serde(rename = "limit")]
    _limit: Number,
    pub(super) traffic: Option<Vec<TrafficSpec>>,
    pub(super) zones: Option<u32>,
    pub(super) clients: Option<u32>,
    pub(super) expect: Option<BTreeMap<String, OneOrMany<ExpectSpec>>>,
}
