//! The rules of a sidecar: they map what proxies send to a bucket, a tenant and a cost.
//!
//! `spec` has the shape of a file, `read` validates it, `tree` compares descriptors. All of these
//! are pure: text in, rules out. Only `follow` reads files.

mod bounds;
mod follow;
mod http;
mod read;
mod spec;
#[cfg(test)]
pub(crate) mod tests;
mod tree;

pub use bounds::{
    DESCRIPTOR_RULES_MAX, DOMAINS_MAX, ENTRIES_MAX, ENTRY_BYTES_MAX, HTTP_RULES_MAX, NAMES_MAX,
};
pub use follow::{ReadError, Reloads, RulesFile};
pub use http::{BUCKET_HEADER, COST_HEADER, HttpRules, HttpTenant, TENANT_HEADER};

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use plimsoll_client::internals::{TenantFound, TenantSource};
use plimsoll_core::names::{Bucket, DEFAULT_TENANT, Encoded, check_name, stable_hash};
use plimsoll_policy::{Field, Policy, PolicyError, Source, SourcePlace, Warning};
use serde::{Deserialize, Serialize};

use tree::{Level, Limited, NameOf, Target, TenantOf};

/// Name of the domain with rules for every domain that has none.
pub const ANY_DOMAIN: &str = "*";

/// Keys of entries that name bucket, tenant and plan without rules.
const BUILT_IN_KEYS: [&str; 3] = ["bucket", "tenant", "plan"];

/// Validated rules of one file.
#[derive(Clone, Debug)]
pub struct Rules {
    /// `None`: the entries `bucket`, `tenant` and `plan` are the names.
    domains: Option<Domains>,
    http: HttpRules,
    /// Names that callers may give; `None` for all.
    listed: Option<BTreeSet<Bucket>>,
    buckets: BTreeMap<Bucket, Spot>,
    hash: RulesHash,
}

/// Place in the file, for messages about values that are valid by themselves.
#[derive(Clone, Debug)]
struct Spot {
    at: SourcePlace,
    path: Box<str>,
}

/// Sizes of the parts of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RulesSize {
    /// Domains with rules.
    pub domains: usize,
    /// Rules for descriptors, nested rules included.
    pub descriptors: usize,
    /// Rules for requests over HTTP.
    pub http: usize,
    /// Buckets that the file names.
    pub buckets: usize,
}

#[derive(Clone, Debug, Default)]
struct Domains {
    named: HashMap<Box<str>, Level, foldhash::fast::RandomState>,
    any: Option<Level>,
    /// Text of each rule with a target.
    texts: Vec<String>,
}

/// 64-bit hash of the text of rules, equal on every machine and in every version. It distinguishes
/// contents; collisions can be constructed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RulesHash(u64);

/// Result of comparing a descriptor with the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// No rule matches, or the named bucket is invalid or not listed: the descriptor passes and is counted as unmatched.
    NoRule,
    /// The descriptor passes by the rule with this index.
    Unlimited(usize),
    /// The descriptor counts for a key.
    Limited(Ask<'a>),
}

/// Key that a descriptor counts for, by names, and its cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask<'a> {
    /// Name of the bucket.
    pub bucket: &'a str,
    /// Tenant as its caller sent it; an empty one counts as the class `default`.
    pub tenant: Cow<'a, str>,
    /// Plan of the tenant, if any, as its caller sent it.
    pub plan: Option<&'a str>,
    /// Number of requests that one hit counts as, from 1 on.
    pub cost: u32,
    /// Form of a refusal.
    pub refusal: RefusalForm,
    /// Index of the rule; `None` without rules for descriptors.
    pub rule: Option<usize>,
    /// Result of looking for the tenant in the entries; `None` if the rule reads none.
    pub tenant_found: Option<TenantFound>,
}

/// Form of a refusal over RLS for the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RefusalForm {
    /// A problem document with its content type, for HTTP callers.
    #[default]
    Problem,
    /// A sentence without a content type. Envoy makes it the message of a gRPC status.
    Grpc,
    /// No body.
    Bare,
}

/// Returns the JSON Schema of a rules file.
#[must_use]
pub fn schema() -> schemars::Schema {
    plimsoll_policy::schema_of::<spec::RulesSpec>()
}

impl Rules {
    /// Reads a file. Linear in its length, except for sorting names and comparing the rules for
    /// HTTP with each other.
    ///
    /// # Errors
    /// All faults that one pass can find, each with its place.
    pub fn read(source: Source<'_>) -> Result<(Self, Vec<Warning>), PolicyError> {
        read::read(source)
    }

    /// Returns the rules for a sidecar without a file: the entries `bucket`, `tenant` and `plan` of a descriptor of any
    /// domain are the names, and headers of requests over HTTP name bucket and tenant.
    #[must_use]
    pub fn built_in() -> Self {
        Self {
            domains: None,
            http: HttpRules::default(),
            listed: None,
            buckets: BTreeMap::new(),
            hash: RulesHash::of(b""),
        }
    }

    /// Returns the key of a descriptor of Envoy's rate limit service, by its entries in order. A
    /// descriptor matches a rule only if all its entries are consumed. The caller bounds the number
    /// of entries and their length. Allocates only for tenants of several entries.
    pub fn descriptor<'a>(
        &'a self,
        domain: &str,
        entries: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    ) -> Found<'a> {
        let Some(domains) = &self.domains else {
            return self.built_in_descriptor(entries);
        };
        let level = domains.named.get(domain).or(domains.any.as_ref());
        match level.and_then(|level| level.find(entries.clone())) {
            None => Found::NoRule,
            Some(Target::Unlimited(rule)) => Found::Unlimited(*rule),
            Some(Target::Limited(limited)) => self
                .ask(limited, entries)
                .map_or(Found::NoRule, Found::Limited),
        }
    }

    /// Returns the text of each rule for descriptors, by its index.
    pub fn descriptor_rules(&self) -> impl Iterator<Item = String> {
        let domains = self.domains.iter();
        domains.flat_map(|domains| domains.texts.iter().cloned())
    }

    /// Returns the source of the tenants of descriptors.
    #[must_use]
    pub fn descriptor_tenants(&self) -> TenantSource {
        let (name, remedy) = match self.domains {
            None => (
                "entry tenant",
                "let the rate limit actions of the proxy send an entry `tenant` in each descriptor",
            ),
            Some(_) => (
                "entries of descriptors",
                "the entries that rules read tenants from arrive empty: correct the rate limit actions of the proxy",
            ),
        };
        TenantSource {
            name: name.to_owned(),
            remedy: remedy.to_owned(),
        }
    }

    /// Returns the key of a rule. `None` if the descriptor names a bucket that callers may not use.
    fn ask<'a>(
        &'a self,
        limited: &'a Limited,
        entries: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    ) -> Option<Ask<'a>> {
        let value = |index: &usize| entries.clone().nth(*index).map(|(_, value)| value);
        let bucket = match &limited.bucket {
            NameOf::Fixed(name) => name,
            NameOf::Entry(index) => value(index).filter(|bucket| self.takes(bucket))?,
        };
        let tenant = match &limited.tenant {
            TenantOf::Fixed(tenant) => Cow::Borrowed(&**tenant),
            TenantOf::Entries(indexes) => match &**indexes {
                [index] => Cow::Borrowed(value(index)?),
                // No name contains this separator.
                indexes => {
                    let name =
                        |index| Some(Encoded::of(value(index)?).map(|name| String::from(&*name)));
                    let names = indexes
                        .iter()
                        .map(|index| name(index).map(Option::unwrap_or_default));
                    Cow::Owned(names.collect::<Option<Vec<String>>>()?.join("|"))
                }
            },
        };
        let Limited {
            cost,
            refusal,
            rule,
            ..
        } = *limited;
        let is_asked = matches!(limited.tenant, TenantOf::Entries(_));
        Some(Ask {
            bucket,
            tenant_found: is_asked.then(|| TenantFound::of(Some(&tenant))),
            tenant,
            plan: match &limited.plan {
                None => None,
                Some(NameOf::Fixed(plan)) => Some(&**plan),
                Some(NameOf::Entry(index)) => value(index),
            },
            cost,
            refusal,
            rule: Some(rule),
        })
    }

    fn built_in_descriptor<'a>(
        &self,
        entries: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Found<'a> {
        let mut names = [None; BUILT_IN_KEYS.len()];
        for (key, value) in entries {
            let Some(at) = BUILT_IN_KEYS.iter().position(|known| *known == key) else {
                return Found::NoRule;
            };
            if names[at].replace(value).is_some() {
                return Found::NoRule;
            }
        }
        let [Some(bucket), tenant, plan] = names else {
            return Found::NoRule;
        };
        if !self.takes(bucket) {
            return Found::NoRule;
        }
        Found::Limited(Ask {
            bucket,
            tenant: tenant.unwrap_or(DEFAULT_TENANT).into(),
            plan,
            cost: 1,
            refusal: RefusalForm::default(),
            rule: None,
            tenant_found: Some(TenantFound::of(tenant)),
        })
    }

    /// Returns true if callers may use this name of a bucket: it is valid, and listed if the file
    /// lists any.
    #[must_use]
    pub fn takes(&self, bucket: &str) -> bool {
        match &self.listed {
            Some(listed) => listed.contains(bucket),
            None => check_name(bucket).is_ok(),
        }
    }

    /// Returns the rules for requests over HTTP.
    #[must_use]
    pub const fn http(&self) -> &HttpRules {
        &self.http
    }

    /// Returns every bucket that the file names, in the order of names.
    pub fn buckets(&self) -> impl Iterator<Item = &Bucket> {
        self.buckets.keys()
    }

    /// Returns a warning for each bucket that the policy does not name, so that its requests are
    /// admitted and counted. `file` is the name of the rules file.
    #[must_use]
    pub fn beside(&self, policy: &Policy, file: &str) -> Vec<Warning> {
        let unnamed = self
            .buckets
            .iter()
            .filter(|(bucket, _)| policy.entry(bucket).is_none());
        let warning = |(bucket, spot): (&Bucket, &Spot)| Warning {
            file: file.to_owned(),
            at: spot.at,
            path: spot.path.to_string(),
            message: format!(
                "no entry of the policy names the bucket `{bucket}`: all its requests are admitted"
            ),
            since: None,
        };
        let mut warnings: Vec<Warning> = unnamed.map(warning).collect();
        warnings.sort_by_key(|warning| warning.at);
        warnings
    }

    /// Returns the sizes of the parts of the file.
    #[must_use]
    pub fn size(&self) -> RulesSize {
        let levels = || {
            self.domains
                .iter()
                .flat_map(|domains| domains.named.values().chain(&domains.any))
        };
        RulesSize {
            domains: levels().count(),
            descriptors: levels().map(Level::count).sum(),
            http: self.http.rules.as_ref().map_or(0, Vec::len),
            buckets: self.buckets.len(),
        }
    }

    /// Returns the hash of the file, or of an empty text without a file.
    #[must_use]
    pub const fn hash(&self) -> RulesHash {
        self.hash
    }
}

impl Spot {
    fn of(field: &Field<'_>) -> Self {
        Self {
            at: field.at(),
            path: field.path().into(),
        }
    }
}

impl RulesHash {
    /// Hashes the bytes of a file.
    #[must_use]
    pub fn of(text: &[u8]) -> Self {
        Self(stable_hash(text.iter().copied()))
    }
}

impl fmt::Display for RulesHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
