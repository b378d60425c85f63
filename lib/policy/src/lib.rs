//! The policy that operators write: limits of buckets, weights of tenants, and the rollout of enforcement.
//!
//! Pure: text in, [`Policy`] out. A `Policy` is always valid; a [`PolicyError`] names the place,
//! the field and the remedy of each fault. The steps, each in its own file:
//!
//! 1. `yaml::outline` checks that the text is YAML of the allowed kind and records the place of each field.
//! 2. `spec` checks the shape.
//! 3. `buckets` and `tenants` interpret the values. Numbers are validated only here.
//! 4. `warning` reports legal values that may surprise.

#![forbid(unsafe_code)]

mod buckets;
mod changes;
mod hash;
pub mod learning;
mod read;
mod spec;
mod tenants;
#[cfg(test)]
mod tests;
mod timestamp;
mod warning;
mod yaml;

pub use buckets::quotas::{QUOTAS_MAX, every_text};
pub use buckets::{
    BURST_DEFAULT, Bounds, BucketPolicy, Learned, LimitSource, Prometheus, QUERIES_MAX, QueryGate,
    RolloutPolicy,
};
pub use changes::{
    ADMITTED_LOST_MIN, CATALOGUE_CHANGED_MAX, Difference, FORECAST_MAX, Forecast, LIMIT_FACTOR_MAX,
    Offered, REASONS_MAX, REFUSED_MORE_MAX, Regime, Shift, Shifts, TENANTS_REMOVED_MAX,
    differences, forecast, reasons_to_hold,
};
pub use hash::{PolicyHash, PolicyTexts};
pub use read::{BUCKETS_MAX, KEYS_MAX, LEARNED_MAX, TENANTS_MAX};
pub use spec::{Algorithm, Release};
pub use tenants::catalogue::{
    CATALOGUE_BYTES_MAX, CATALOGUE_ROWS_MAX, Catalogue, CatalogueRow, CatalogueSource,
};
pub use tenants::{
    Boost, BurstMultiplier, Fairness, InvalidBurstMultiplier, Plan, REWEIGHT_INTERVAL_DEFAULT,
    TenantPolicy,
};
pub use timestamp::{InvalidTimestamp, UnixSeconds};
pub use warning::Warning;
pub use yaml::{
    Checked, Document, FAULTS_MAX, FILE_BYTES_MAX, Field, Flag, Number, PolicyError, PolicyFault,
    Source, SourcePlace, check_entries, hint, schema_of,
};

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::directive::LimitOwner;
use plimsoll_core::names::{Bucket, Name, Tenant};
use plimsoll_core::quantity::Rate;
use plimsoll_core::quota::Quota;

use buckets::Buckets;
use tenants::Tenants;
use tenants::catalogue::CatalogueChanges;

/// The text of a `tenants.yaml` with only the class `default`, used if no such file is given.
pub const ONE_CLASS_TENANTS: &str = "tenants: { default: { weight: 1.0 } }\n";

/// Returns the JSON Schemas of a `policy.yaml` and a `tenants.yaml`.
pub fn schemas() -> [schemars::Schema; 2] {
    [
        schema_of::<spec::PolicySpec>(),
        schema_of::<spec::TenantsSpec>(),
    ]
}

/// The validated policy: limits, tenants and rollout.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// True if the file kills the whole fleet.
    pub kill_switch: bool,
    /// True if a drastic change waits for an acknowledgement.
    pub guardrails: bool,
    buckets: Buckets,
    quotas: BTreeMap<Name, Arc<Quota>>,
    tenants: Tenants,
    fairness: Fairness,
    hash: PolicyHash,
    texts: Arc<PolicyTexts>,
    catalogue: Option<Arc<Catalogue>>,
    /// The changes from the catalogue with this hash.
    compared: Option<Arc<(Option<u64>, CatalogueChanges)>>,
}

impl Policy {
    /// Reads the two files of a policy, `policy.yaml` and `tenants.yaml`. Linear in their length, except for
    /// sorting names.
    ///
    /// # Errors
    /// All faults of both files that one pass can find: one fault for a file that is not well-formed or has the wrong
    /// shape, else one for each bucket and tenant with a wrong value.
    pub fn read(
        policy: Source<'_>,
        tenants: Source<'_>,
    ) -> Result<(Self, Vec<Warning>), PolicyError> {
        read::read(policy, tenants)
    }

    /// Reads the two files and a catalogue of tenants.
    ///
    /// # Errors
    /// As [`read`](Self::read), and all faults of the catalogue once the two files have none.
    pub fn read_with(
        policy: Source<'_>,
        tenants: Source<'_>,
        catalogue: CatalogueSource<'_>,
    ) -> Result<(Self, Vec<Warning>), PolicyError> {
        let (policy, mut warnings) = Self::read(policy, tenants)?;
        let classes = policy.written_tenants().keys();
        let classes = classes.filter(|tenant| tenant.is_class()).cloned();
        let (file, catalogue) = (catalogue.name, catalogue.read(classes.collect())?);
        warnings.extend(policy.listed_twice(file, &catalogue));
        Ok((policy.with_catalogue(Some(Arc::new(catalogue))), warnings))
    }

    /// The catalogue of tenants.
    pub fn catalogue(&self) -> Option<&Catalogue> {
        self.catalogue.as_deref()
    }

    /// The catalogue, to share it.
    pub const fn shared_catalogue(&self) -> Option<&Arc<Catalogue>> {
        self.catalogue.as_ref()
    }

    /// Returns the policy of the bucket `name`: under its exact name, else under the longest matching
    /// pattern. `None` if the policy does not name it; such a bucket is admitted and counted.
    pub fn bucket(&self, name: &Bucket) -> Option<&BucketPolicy> {
        self.buckets.get(name)
    }

    /// Returns true if the policy lists the bucket `name` by its exact name.
    pub fn is_exact(&self, name: &Bucket) -> bool {
        self.buckets.exact.contains_key(name)
    }

    /// Returns the entry of the policy that applies to the bucket `name`, as written: its own name, or a
    /// pattern.
    pub fn entry(&self, name: &Bucket) -> Option<String> {
        self.buckets.entry(name)
    }

    /// The buckets that are listed by their exact name, in the order of names.
    pub fn exact_buckets(&self) -> impl Iterator<Item = (&Bucket, &BucketPolicy)> {
        self.buckets.exact.iter()
    }

    /// The patterns of buckets as written, `*` included, in the order of their beginnings.
    pub fn patterns(&self) -> impl Iterator<Item = (String, &BucketPolicy)> {
        self.buckets.patterns()
    }

    /// All entries of the policy by their names as written, exact buckets first, then patterns, `*` included.
    pub fn entries(&self) -> impl Iterator<Item = (String, &BucketPolicy)> {
        self.buckets.iter()
    }

    /// The exact quotas, attached or not, in the order of names.
    pub fn quotas(&self) -> impl Iterator<Item = &Arc<Quota>> {
        self.quotas.values()
    }

    /// Returns the exact quota of this name.
    pub fn quota(&self, name: &str) -> Option<&Arc<Quota>> {
        self.quotas.get(name)
    }

    /// The tenants that are listed, rows of the catalogue among them, and the classes of unlisted ones: `default` and one
    /// for each plan. In the order of names.
    pub fn tenants(&self) -> impl Iterator<Item = (&Tenant, &TenantPolicy)> {
        self.tenants.listed.iter()
    }

    /// Returns the boosts that end after `from_s`, up to `to_s`, both in seconds since 1970.
    pub fn boosts_ending(&self, from_s: i64, to_s: i64) -> impl Iterator<Item = (&Tenant, &Boost)> {
        // Rows of the catalogue have none.
        let boosts = self
            .written_tenants()
            .iter()
            .filter_map(|(tenant, of_tenant)| Some((tenant, of_tenant.boost.as_ref()?)));
        boosts.filter(move |(_, boost)| {
            (from_s < boost.until.as_secs()) && (boost.until.as_secs() <= to_s)
        })
    }

    /// The tenants and classes of `tenants.yaml`, without rows of the catalogue.
    pub fn written_tenants(&self) -> &BTreeMap<Tenant, TenantPolicy> {
        &self.tenants.written
    }

    /// Returns the entry of the tenant `name`: its own, else that of its plan, else that of the class `default`.
    pub fn tenant(&self, name: &Tenant) -> &TenantPolicy {
        self.tenants.get(name)
    }

    /// Returns the limit of a tenant in a bucket and the entry that sets it: that of the tenant, of its plan, or of the
    /// bucket. For a class it is the limit of each of its names.
    pub fn tenant_limit(&self, tenant: &Tenant, bucket: &Bucket) -> Option<(Rate, LimitOwner)> {
        let of_bucket = || Some((self.bucket(bucket)?.tenant_limit?, LimitOwner::Bucket));
        self.tenant(tenant).limit_in(bucket).or_else(of_bucket)
    }

    /// Returns the floor of a tenant, or of each name of a class.
    pub fn floor(&self, tenant: &Tenant) -> Rate {
        self.tenant(tenant).floor.unwrap_or(self.fairness.min_floor)
    }

    /// Returns true if the tenant or class `name` has its own entry.
    pub fn is_listed(&self, name: &Tenant) -> bool {
        self.tenants.listed.contains_key(name)
    }

    /// The fairness settings.
    pub const fn fairness(&self) -> &Fairness {
        &self.fairness
    }

    /// The texts that this policy was read from.
    pub const fn texts(&self) -> &Arc<PolicyTexts> {
        &self.texts
    }

    /// The hash of this policy.
    pub const fn hash(&self) -> PolicyHash {
        self.hash
    }
}
