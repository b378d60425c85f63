//! The YAML as written: what may stand where. What the values mean, and which of them are refused, is said by the
//! types they become.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Unexpected, Visitor};

use super::Number;
use super::buckets::{Coin, LawName, OnSilence, Release};
use super::tenants::Algorithm;
use crate::rollout::Mode;

/// `policy.yaml`: what is protected, and how far enforcement has been rolled out.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicySpec {
    #[serde(default)]
    pub(super) kill_switch: bool,
    pub(super) guardrails: Option<Switch>,
    pub(super) buckets: BTreeMap<String, BucketSpec>,
    #[serde(default)]
    pub(super) rollout: RolloutSpec,
}

/// One bucket, or one pattern of buckets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BucketSpec {
    pub(super) limit: LimitSpec,
    pub(super) tenant_limit: Option<Number>,
    pub(super) burst_s: Option<Number>,
    #[serde(default)]
    pub(super) on_silence: OnSilence,
    #[serde(default)]
    pub(super) release: Release,
    #[serde(default)]
    pub(super) coin: Coin,
    #[serde(default)]
    pub(super) law: LawName,
    pub(super) candidate: Option<Number>,
    #[serde(default)]
    pub(super) mode: Mode,
    #[serde(default)]
    pub(super) rollout: RolloutSpec,
}

/// Where a limit comes from.
#[derive(Debug)]
pub(super) enum LimitSpec {
    PerSecond(Number),
    Unlimited,
    Source(SourceSpec),
}

/// A source of limits; exactly one of its fields is to be written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SourceSpec {
    pub(super) learned: Option<LearnedSpec>,
    pub(super) prometheus: Option<PrometheusSpec>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LearnedSpec {
    pub(super) percentile: Option<Number>,
    pub(super) days: Option<Number>,
    pub(super) headroom: Option<Number>,
    pub(super) min: Option<Number>,
    pub(super) max: Option<Number>,
    pub(super) until_history: Option<Number>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PrometheusSpec {
    pub(super) url: String,
    pub(super) query: String,
    pub(super) min: Option<Number>,
    pub(super) max: Option<Number>,
}

/// A rollout block: what is not written is inherited.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RolloutSpec {
    pub(super) canary_percent: Option<Number>,
    pub(super) auto_promote: Option<bool>,
    pub(super) shadow: ShadowSpec,
    pub(super) canary: CanarySpec,
    pub(super) min_samples: Option<Number>,
    pub(super) require_gates: Option<bool>,
    pub(super) queries: Option<Vec<QuerySpec>>,
}

/// An extra gate; exactly one of its bounds is to be written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QuerySpec {
    pub(super) name: String,
    pub(super) url: String,
    pub(super) query: String,
    pub(super) max: Option<Number>,
    pub(super) min: Option<Number>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ShadowSpec {
    pub(super) min_days: Option<Number>,
    pub(super) window_h: Option<Number>,
    pub(super) max_drop_ratio: Option<Number>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CanarySpec {
    pub(super) min_hours: Option<Number>,
    pub(super) window_min: Option<Number>,
    pub(super) max_drop_ratio: Option<Number>,
    pub(super) max_p99_delta_ms: Option<Number>,
}

/// `tenants.yaml`: who gets how much when there is not enough.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TenantsSpec {
    pub(super) tenants: BTreeMap<String, TenantSpec>,
    pub(super) fairness: Option<FairnessSpec>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TenantSpec {
    pub(super) weight: Option<Number>,
    pub(super) burst_multiplier: Option<Number>,
    pub(super) notes: Option<String>,
    pub(super) boost: Option<Number>,
    pub(super) boost_until: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FairnessSpec {
    #[serde(default)]
    pub(super) algorithm: Algorithm,
    pub(super) reweight_interval_s: Option<Number>,
    pub(super) min_floor_rps: Option<Number>,
}

/// `on` or `off`: text to YAML 1.2, truth values to YAML 1.1, so all four ways are taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Switch(pub(super) bool);

impl<'de> Deserialize<'de> for Switch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Expected;
        impl Visitor<'_> for Expected {
            type Value = Switch;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`on` or `off`")
            }

            fn visit_bool<E: Error>(self, on: bool) -> Result<Switch, E> {
                Ok(Switch(on))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Switch, E> {
                match text {
                    "on" => Ok(Switch(true)),
                    "off" => Ok(Switch(false)),
                    _ => Err(E::unknown_variant(text, &["on", "off"])),
                }
            }
        }
        deserializer.deserialize_any(Expected)
    }
}

impl<'de> Deserialize<'de> for LimitSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Expected;
        impl<'de> Visitor<'de> for Expected {
            type Value = LimitSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of requests/s, `unlimited`, `learned: {..}` or `prometheus: {..}`")
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<LimitSpec, E> {
                Ok(LimitSpec::PerSecond(Number(number)))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<LimitSpec, E> {
                self.visit_f64(number as f64)
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<LimitSpec, E> {
                self.visit_f64(number as f64)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<LimitSpec, E> {
                match text {
                    "unlimited" => Ok(LimitSpec::Unlimited),
                    _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LimitSpec, A::Error> {
                SourceSpec::deserialize(MapAccessDeserializer::new(map)).map(LimitSpec::Source)
            }
        }
        deserializer.deserialize_any(Expected)
    }
}
