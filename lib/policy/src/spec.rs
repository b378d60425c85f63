//! The shape of the YAML files. The types that the values become validate them.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Serialize};

use crate::yaml::{Flag, Number};
use plimsoll_core::decision::{Coin, Mode};
use plimsoll_core::quota::{OnStoreError, QuotaKey};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicySpec {
    #[serde(default)]
    pub(crate) kill_switch: Flag,
    pub(crate) guardrails: Option<Switch>,
    pub(crate) buckets: BTreeMap<String, BucketSpec>,
    #[serde(default)]
    pub(crate) quotas: BTreeMap<String, QuotaSpec>,
    #[serde(default)]
    pub(crate) rollout: RolloutSpec,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuotaSpec {
    pub(crate) max: Number,
    pub(crate) refill: Option<Number>,
    pub(crate) every: String,
    #[serde(default)]
    pub(crate) key: QuotaKey,
    #[serde(default)]
    pub(crate) on_store_error: OnStoreError,
    pub(crate) lease: Option<Number>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BucketSpec {
    pub(crate) limit: LimitSpec,
    pub(crate) tenant_limit: Option<Number>,
    pub(crate) burst_s: Option<Number>,
    #[serde(default)]
    pub(crate) release: Release,
    #[serde(default)]
    pub(crate) coin: Coin,
    pub(crate) candidate: Option<Number>,
    #[serde(default)]
    pub(crate) mode: Mode,
    #[serde(default)]
    pub(crate) quotas: Vec<String>,
    #[serde(default)]
    pub(crate) rollout: RolloutSpec,
}

#[derive(Debug)]
pub(crate) enum LimitSpec {
    PerSecond(Number),
    Unlimited,
    Source(SourceSpec),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SourceSpec {
    pub(crate) learned: Option<LearnedSpec>,
    pub(crate) prometheus: Option<PrometheusSpec>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LearnedSpec {
    pub(crate) percentile: Option<Number>,
    pub(crate) days: Option<Number>,
    pub(crate) headroom: Option<Number>,
    pub(crate) min: Option<Number>,
    pub(crate) max: Option<Number>,
    pub(crate) until_history: Option<Number>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PrometheusSpec {
    pub(crate) url: String,
    pub(crate) query: String,
    pub(crate) min: Option<Number>,
    pub(crate) max: Option<Number>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RolloutSpec {
    pub(crate) canary_percent: Option<Number>,
    pub(crate) auto_promote: Option<Flag>,
    pub(crate) shadow: ShadowSpec,
    pub(crate) canary: CanarySpec,
    pub(crate) min_samples: Option<Number>,
    pub(crate) require_gates: Option<Flag>,
    pub(crate) queries: Option<Vec<QuerySpec>>,
}

/// An extra gate; exactly one of its bounds must be present.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuerySpec {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) query: String,
    pub(crate) max: Option<Number>,
    pub(crate) min: Option<Number>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ShadowSpec {
    pub(crate) min_days: Option<Number>,
    pub(crate) window_h: Option<Number>,
    pub(crate) max_drop_ratio: Option<Number>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CanarySpec {
    pub(crate) min_hours: Option<Number>,
    pub(crate) window_min: Option<Number>,
    pub(crate) max_drop_ratio: Option<Number>,
    pub(crate) max_p99_delta_ms: Option<Number>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantsSpec {
    #[serde(default)]
    pub(crate) plans: BTreeMap<String, TenantSpec>,
    #[serde(default)]
    pub(crate) tenants: BTreeMap<String, TenantSpec>,
    pub(crate) fairness: Option<FairnessSpec>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantSpec {
    pub(crate) weight: Option<Number>,
    pub(crate) burst_multiplier: Option<Number>,
    pub(crate) notes: Option<String>,
    pub(crate) boost: Option<Number>,
    pub(crate) boost_until: Option<String>,
    pub(crate) plan: Option<String>,
    pub(crate) floor_rps: Option<Number>,
    #[serde(default)]
    pub(crate) limits: BTreeMap<String, Number>,
    #[serde(default)]
    pub(crate) quotas: BTreeMap<String, OverrideSpec>,
}

/// Numbers of a quota for one tenant or plan.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OverrideSpec {
    pub(crate) max: Number,
    pub(crate) refill: Option<Number>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FairnessSpec {
    #[serde(default)]
    pub(crate) algorithm: Algorithm,
    pub(crate) reweight_interval_s: Option<Number>,
    pub(crate) min_floor_rps: Option<Number>,
}

/// `on` or `off`: strings in YAML 1.2 and booleans in YAML 1.1, so all four spellings are accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Switch(pub(crate) bool);

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
                f.write_str(
                    "a number of requests/s, `unlimited`, `learned: {..}` or `prometheus: {..}`",
                )
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

/// The rule for the share of a silent zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Release {
    /// The share is held for 30 s and then released to the others. The default.
    #[default]
    Auto,
    /// The share is held until the zone returns or leaves in order.
    Never,
}

/// The algorithm of fairness. Both names mean the same: the long-run shares of deficit round robin are
/// weighted max-min.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// The default.
    #[default]
    DeficitRoundRobin,
    /// Weighted max-min fairness.
    WeightedMaxMin,
}
