//! The shape of a rules file, and its JSON Schema for editors, which shows the comments of the fields. The reader validates
//! the values.

use std::collections::BTreeMap;
use std::fmt;

use plimsoll_policy::{Flag, Number};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::RefusalForm;

/// What a sidecar makes of requests: their bucket, tenant and cost.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "rules of a sidecar")]
pub(super) struct RulesSpec {
    /// Rules for Envoy's rate limit service.
    pub(super) rls: Option<RlsSpec>,
    /// Rules for requests over HTTP.
    pub(super) http: Option<HttpSpec>,
    /// The only buckets that headers, JSON callers and entries may name.
    pub(super) buckets: Option<Vec<String>>,
}

/// Rules for Envoy's rate limit service.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RlsSpec {
    /// Rules by domain; `"*"` for all that are not listed.
    pub(super) domains: BTreeMap<String, DomainSpec>,
}

/// A domain.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DomainSpec {
    /// The form of refusals. Default: problem.
    pub(super) refusal: Option<RefusalForm>,
    /// Rules for the first entry of a descriptor.
    pub(super) descriptors: Vec<DescriptorSpec>,
}

/// A rule for an entry of a descriptor.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DescriptorSpec {
    /// The key of the entry.
    pub(super) key: String,
    /// The value, or its beginning and one `*` at the end. Default: all values.
    pub(super) value: Option<String>,
    /// The bucket of descriptors that end here.
    pub(super) bucket: Option<NameSpec>,
    /// True: descriptors that end here pass.
    #[serde(default)]
    pub(super) unlimited: Flag,
    /// The tenant, a text without `%`. Default: the values of the entries from the first rule to this one that may have
    /// any value, except those of bucket and plan; without one, `default`.
    pub(super) tenant: Option<NameSpec>,
    /// The plan of tenants that the policy does not list.
    pub(super) plan: Option<NameSpec>,
    /// The requests that one hit counts as, 1 to 10,000. Default: 1.
    pub(super) cost: Option<Number>,
    /// Refused with a remedy: a sidecar applies only the limits of buckets.
    #[schemars(skip)]
    pub(super) takes_limit: Option<IgnoredAny>,
    /// The form of refusals, also for the rules below.
    pub(super) refusal: Option<RefusalForm>,
    /// Rules for the next entry.
    pub(super) descriptors: Option<Vec<DescriptorSpec>>,
}

/// Rules for requests over HTTP.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HttpSpec {
    /// The tenant. Default: the header `x-plimsoll-tenant`.
    pub(super) tenant: Option<HttpTenantSpec>,
    /// The plan of tenants that the policy does not list. The proxy must replace this header.
    pub(super) plan: Option<HeaderSpec>,
    /// True: paths are compared without regard to the case of ASCII letters.
    #[serde(default)]
    pub(super) ignore_case: Flag,
    /// Rules, of which the first that matches applies.
    pub(super) rules: Option<Vec<HttpRuleSpec>>,
}

/// A rule for requests over HTTP, with at most one of `path`, `prefix` and `exact`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HttpRuleSpec {
    /// A template: `/orders/{id}` for one segment, `/files/{*rest}` for all below.
    pub(super) path: Option<String>,
    /// A path and all below it.
    pub(super) prefix: Option<String>,
    /// A path, taken literally.
    pub(super) exact: Option<String>,
    /// Methods in upper case. Default: all.
    pub(super) methods: Option<Vec<String>>,
    /// The bucket.
    pub(super) bucket: Option<String>,
    /// True: the requests pass.
    #[serde(default)]
    pub(super) unlimited: Flag,
    /// The requests that one counts as, 1 to 10,000. Default: 1.
    pub(super) cost: Option<Number>,
    /// Further buckets, at most 7: all admit a request, or none is charged.
    pub(super) also: Option<Vec<HttpAlsoSpec>>,
}

/// Another bucket that the requests of a rule count for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HttpAlsoSpec {
    /// The bucket.
    pub(super) bucket: String,
    /// The tenant there, as in `http.tenant`.
    pub(super) tenant: Option<HttpTenantSpec>,
    /// The requests that one counts as, 1 to 10,000. Default: 1.
    pub(super) cost: Option<Number>,
}

/// A name, or the entry of the descriptor that has it.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(super) enum NameSpec {
    Fixed(String),
    Entry(#[schemars(with = "EntrySpec")] String),
}

/// The tenant of all requests over HTTP, or the header that has it.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(super) enum HttpTenantSpec {
    Fixed(String),
    Header(#[schemars(with = "HeaderSpec")] String),
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EntrySpec {
    /// The key of the entry.
    entry: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HeaderSpec {
    /// The name of the header.
    pub(super) header: String,
}

macro_rules! text_or_field {
    ($name:ident, $fixed:path, $field:path, $spec:ident.$of:ident, $expected:literal) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Expected;
                impl<'de> Visitor<'de> for Expected {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }

                    fn visit_str<E: Error>(self, text: &str) -> Result<$name, E> {
                        Ok($fixed(text.to_owned()))
                    }

                    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<$name, A::Error> {
                        let spec = $spec::deserialize(MapAccessDeserializer::new(map))?;
                        Ok($field(spec.$of))
                    }
                }
                deserializer.deserialize_any(Expected)
            }
        }
    };
}

text_or_field!(
    NameSpec,
    NameSpec::Fixed,
    NameSpec::Entry,
    EntrySpec.entry,
    "a name or `{ entry: KEY }`"
);
text_or_field!(
    HttpTenantSpec,
    HttpTenantSpec::Fixed,
    HttpTenantSpec::Header,
    HeaderSpec.header,
    "a name or `{ header: NAME }`"
);
