//! The shape of a rules file. The reader validates the values.

use std::collections::BTreeMap;
use std::fmt;

use plimsoll_policy::{Flag, Number};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::RefusalForm;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RulesSpec {
    pub(super) rls: Option<RlsSpec>,
    pub(super) http: Option<HttpSpec>,
    pub(super) buckets: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RlsSpec {
    pub(super) domains: BTreeMap<String, DomainSpec>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DomainSpec {
    pub(super) refusal: Option<RefusalForm>,
    pub(super) descriptors: Vec<DescriptorSpec>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DescriptorSpec {
    pub(super) key: String,
    pub(super) value: Option<String>,
    pub(super) bucket: Option<NameSpec>,
    #[serde(default)]
    pub(super) unlimited: Flag,
    pub(super) tenant: Option<NameSpec>,
    pub(super) plan: Option<NameSpec>,
    pub(super) cost: Option<Number>,
    /// Refused with a remedy: a sidecar applies only the limits of buckets.
    pub(super) takes_limit: Option<IgnoredAny>,
    pub(super) refusal: Option<RefusalForm>,
    pub(super) descriptors: Option<Vec<DescriptorSpec>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HttpSpec {
    pub(super) tenant: Option<HttpTenantSpec>,
    pub(super) plan: Option<HeaderSpec>,
    #[serde(default)]
    pub(super) ignore_case: Flag,
    pub(super) rules: Option<Vec<HttpRuleSpec>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HttpRuleSpec {
    pub(super) path: Option<String>,
    pub(super) prefix: Option<String>,
    pub(super) exact: Option<String>,
    pub(super) methods: Option<Vec<String>>,
    pub(super) bucket: Option<String>,
    #[serde(default)]
    pub(super) unlimited: Flag,
    pub(super) cost: Option<Number>,
    pub(super) also: Option<Vec<HttpAlsoSpec>>,
}

/// Another bucket that the requests of a rule count for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HttpAlsoSpec {
    pub(super) bucket: String,
    pub(super) tenant: Option<HttpTenantSpec>,
    pub(super) cost: Option<Number>,
}

/// A name, or the entry of the descriptor that has it.
#[derive(Debug)]
pub(super) enum NameSpec {
    Fixed(String),
    Entry(String),
}

/// The tenant of all requests over HTTP, or the header that has it.
#[derive(Debug)]
pub(super) enum HttpTenantSpec {
    Fixed(String),
    Header(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntrySpec {
    entry: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HeaderSpec {
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
