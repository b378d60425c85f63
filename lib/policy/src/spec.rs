//! The shape of the YAML files, and its JSON Schema for editors, which shows the comments of the fields. The types that the
//! values become validate them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Serialize};

use crate::yaml::{Flag, Number};
use plimsoll_core::decision::{Coin, Mode};
use plimsoll_core::quota::{OnStoreError, QuotaKey};

/// Limits of buckets, exact quotas, modes and rollout.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "policy.yaml")]
pub(crate) struct PolicySpec {
    /// True kills the whole fleet: nothing is refused. Default: false.
    #[serde(default)]
    pub(crate) kill_switch: Flag,
    /// `on`, the default, holds back changes with a large effect.
    pub(crate) guardrails: Option<Switch>,
    /// Buckets by name, or by pattern: the beginning of a name and one `*` at its end.
    pub(crate) buckets: BTreeMap<String, BucketSpec>,
    /// Exact quotas by name, which buckets attach.
    #[serde(default)]
    pub(crate) quotas: BTreeMap<String, QuotaSpec>,
    /// Rollout settings of every bucket that does not replace them.
    #[serde(default)]
    pub(crate) rollout: RolloutSpec,
}

/// An exact number of requests in a time.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuotaSpec {
    /// Tokens of a full token bucket. A request takes as many as it costs, mostly 1.
    pub(crate) max: Number,
    /// Tokens of one refill, up to `max`. Default: `max`.
    pub(crate) refill: Option<Number>,
    /// Time between two refills, such as `500ms`, `1m 30s`, `1h` or `30days`.
    pub(crate) every: String,
    /// Requests that share one token bucket: those of one tenant, or all.
    #[serde(default)]
    pub(crate) key: QuotaKey,
    /// Behaviour of an instance while the store does not answer.
    #[serde(default)]
    pub(crate) on_store_error: OnStoreError,
    /// Tokens that an instance takes at once for one key. Default: 1.
    pub(crate) lease: Option<Number>,
}

/// A protected resource.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BucketSpec {
    /// Requests/s over all zones together; 0 refuses everything.
    pub(crate) limit: LimitSpec,
    /// Requests/s that no single tenant exceeds, even if the bucket has room.
    pub(crate) tenant_limit: Option<Number>,
    /// Unused limit that may be saved up, in seconds of the limit. Default: 0.25.
    pub(crate) burst_s: Option<Number>,
    /// What happens to the share of a silent zone.
    #[serde(default)]
    pub(crate) release: Release,
    /// How a drop ratio becomes decisions.
    #[serde(default)]
    pub(crate) coin: Coin,
    /// A second limit in requests/s, which is only evaluated.
    pub(crate) candidate: Option<Number>,
    /// The requested stage of the rollout.
    #[serde(default)]
    pub(crate) mode: Mode,
    /// Names of exact quotas, all of which a request has to pass.
    #[serde(default)]
    pub(crate) quotas: Vec<String>,
    /// Rollout settings that replace those of the file.
    #[serde(default)]
    pub(crate) rollout: RolloutSpec,
}

#[derive(Debug)]
pub(crate) enum LimitSpec {
    PerSecond(Number),
    Unlimited,
    Source(SourceSpec),
}

/// A source of a limit: exactly one of its keys.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SourceSpec {
    /// A limit learned from the history of the bucket.
    pub(crate) learned: Option<LearnedSpec>,
    /// A limit that a Prometheus server answers.
    pub(crate) prometheus: Option<PrometheusSpec>,
}

/// How a limit is learned.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LearnedSpec {
    /// Percentile of offered rates, above 0 to 100. Default: 95.
    pub(crate) percentile: Option<Number>,
    /// Days of history, 1 to 90. Default: 7.
    pub(crate) days: Option<Number>,
    /// Factor on the percentile, 0.01 to 100. Default: 1.2.
    pub(crate) headroom: Option<Number>,
    /// Lower bound of the limit in requests/s.
    pub(crate) min: Option<Number>,
    /// Upper bound of the limit in requests/s.
    pub(crate) max: Option<Number>,
    /// Limit in requests/s before there is enough history. Without it everything is admitted and counted.
    pub(crate) until_history: Option<Number>,
}

/// A query for a limit.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PrometheusSpec {
    /// A server, beginning with `http://` or `https://`.
    pub(crate) url: String,
    /// PromQL that yields one number of requests/s.
    pub(crate) query: String,
    /// Lower bound of the limit in requests/s.
    pub(crate) min: Option<Number>,
    /// Upper bound of the limit in requests/s.
    pub(crate) max: Option<Number>,
}

/// How a mode is raised.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RolloutSpec {
    /// Share of the instances that enforces in canary, in percent. Default: 5.
    pub(crate) canary_percent: Option<Number>,
    /// True raises a stage without an operator once its gate passes. Default: false.
    pub(crate) auto_promote: Option<Flag>,
    /// The gate out of shadow.
    pub(crate) shadow: ShadowSpec,
    /// The gate out of canary.
    pub(crate) canary: CanarySpec,
    /// Fewest samples for a judgement. Default: 1000.
    pub(crate) min_samples: Option<Number>,
    /// True lets a mode raised in the file wait for its gates. Default: true.
    pub(crate) require_gates: Option<Flag>,
    /// Extra gates, at most 8.
    pub(crate) queries: Option<Vec<QuerySpec>>,
}

/// An extra gate; exactly one of its bounds must be present.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuerySpec {
    /// A name, unique in the list.
    pub(crate) name: String,
    /// A server, beginning with `http://` or `https://`.
    pub(crate) url: String,
    /// PromQL that yields one number.
    pub(crate) query: String,
    /// Upper bound of the answer.
    pub(crate) max: Option<Number>,
    /// Lower bound of the answer.
    pub(crate) min: Option<Number>,
}

/// The gate out of shadow.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ShadowSpec {
    /// Days with data before it passes. Default: 7.
    pub(crate) min_days: Option<Number>,
    /// Its window in hours. Default: 24.
    pub(crate) window_h: Option<Number>,
    /// Ratio of would-dropped to offered requests. Default: 0.005.
    pub(crate) max_drop_ratio: Option<Number>,
}

/// The gate out of canary.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CanarySpec {
    /// Hours with data before it passes. Default: 48.
    pub(crate) min_hours: Option<Number>,
    /// Its window in minutes. Default: 15.
    pub(crate) window_min: Option<Number>,
    /// Ratio of refused to offered requests in the cohort. Default: 0.001.
    pub(crate) max_drop_ratio: Option<Number>,
    /// Milliseconds by which the p99 of the cohort may exceed that of the control side. Default: 5.
    pub(crate) max_p99_delta_ms: Option<Number>,
}

/// Shares and limits of tenants.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "tenants.yaml")]
pub(crate) struct TenantsSpec {
    /// Plans by name: what many customers may have.
    #[serde(default)]
    pub(crate) plans: BTreeMap<String, TenantSpec>,
    /// Tenants by name, and `default` for all others.
    #[serde(default)]
    pub(crate) tenants: BTreeMap<String, TenantSpec>,
    /// How tenants share a limit.
    pub(crate) fairness: Option<FairnessSpec>,
}

/// A tenant or a plan.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantSpec {
    /// Share relative to other tenants under overload. Default: 1.
    pub(crate) weight: Option<Number>,
    /// Factor by which the tenant may exceed its share for a moment. Default: 1.
    pub(crate) burst_multiplier: Option<Number>,
    /// Text for operators, without effect.
    pub(crate) notes: Option<String>,
    /// Temporary factor on the weight; needs `boost_until`.
    pub(crate) boost: Option<Number>,
    /// End of the boost in UTC, such as 2026-12-01T00:00:00Z.
    pub(crate) boost_until: Option<String>,
    /// The plan whose values the tenant has where it sets none.
    pub(crate) plan: Option<String>,
    /// The tenant's own `min_floor_rps`.
    pub(crate) floor_rps: Option<Number>,
    /// Requests/s that the tenant does not exceed, by bucket or pattern.
    #[serde(default)]
    pub(crate) limits: BTreeMap<String, Number>,
    /// Its numbers of exact quotas by name.
    #[serde(default)]
    pub(crate) quotas: BTreeMap<String, OverrideSpec>,
}

/// Numbers of a quota for one tenant or plan.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OverrideSpec {
    /// Tokens of a full token bucket.
    pub(crate) max: Number,
    /// Tokens of one refill.
    pub(crate) refill: Option<Number>,
}

/// How tenants share a limit.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FairnessSpec {
    /// Both names mean the same.
    #[serde(default)]
    pub(crate) algorithm: Algorithm,
    /// No effect: changed weights apply immediately.
    pub(crate) reweight_interval_s: Option<Number>,
    /// Tenants that offer fewer requests/s are not refused, as long as all floors fit into the limit. Default: 5.
    pub(crate) min_floor_rps: Option<Number>,
}

/// `on` or `off`: strings in YAML 1.2 and booleans in YAML 1.1, so all four spellings are accepted.
#[derive(Clone, Copy, Debug, JsonSchema)]
#[schemars(inline, description = "`on` or `off`", extend("enum" = ["on", "off", true, false]), extend("type" = ["string", "boolean"]))]
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

impl JsonSchema for LimitSpec {
    fn schema_name() -> Cow<'static, str> {
        "Limit".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let source = generator.subschema_for::<SourceSpec>();
        json_schema!({ "anyOf": [{ "type": "number", "minimum": 0 }, { "const": "unlimited" }, source] })
    }
}

/// The rule for the share of a silent zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// The default.
    #[default]
    DeficitRoundRobin,
    /// Weighted max-min fairness.
    WeightedMaxMin,
}
