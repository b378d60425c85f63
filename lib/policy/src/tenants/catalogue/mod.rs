//! The catalogue: tenants by the hundred thousand, each with a plan, and some with a weight, a floor or limits of their
//! own. Rows are small, and those of a tenant are found by its name.

mod changes;
mod csv;
mod ndjson;
mod rows;
#[cfg(test)]
mod tests;

pub(crate) use changes::CatalogueChanges;
pub use rows::{CATALOGUE_BYTES_MAX, CATALOGUE_ROWS_MAX, CatalogueSource};

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_core::law::Weight;
use plimsoll_core::names::{DEFAULT_TENANT, Tenant, own_name};
use plimsoll_core::quantity::Rate;

use crate::buckets::{BucketKey, ByBucket};
use crate::hash::fnv;
use crate::tenants::TenantPolicy;
use crate::{Policy, SourcePlace, Warning};

/// A validated catalogue.
pub struct Catalogue {
    /// All names, one after the other.
    names: String,
    /// In the order of names.
    rows: Vec<Row>,
    own: Vec<OwnTerms>,
    /// The limits of all rows, one after the other, by the number of their bucket or pattern.
    limits: Vec<(u32, Rate)>,
    /// The buckets and patterns with limits.
    buckets: Vec<BucketKey>,
    /// The classes, by the number of their plan.
    classes: Vec<Tenant>,
    hash: u64,
}

/// A row, in 16 bytes.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// Where its name begins in all names.
    start: u32,
    line: u32,
    /// Index of its own terms plus one; 0 without any.
    own: u32,
    length: u8,
    /// Number of its plan plus one; 0 without one.
    plan: u8,
}

/// What a row says beside its plan.
#[derive(Clone, Debug, Default)]
struct OwnTerms {
    weight: Option<Weight>,
    floor: Option<Rate>,
    /// Its part of all limits.
    limits: Range<u32>,
}

/// The row of one tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogueRow {
    /// Its entry, as if `tenants.yaml` had it.
    pub policy: TenantPolicy,
    /// True if it has a weight, a floor or limits of its own, and not only a plan.
    pub is_own: bool,
    /// The line in the file.
    pub line: u32,
}

// === impl Catalogue ===

/// Leaves out the rows: they are megabytes.
impl fmt::Debug for Catalogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut catalogue = f.debug_struct("Catalogue");
        catalogue
            .field("rows", &self.rows.len())
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}

/// Two catalogues are equal if they were read from the same bytes.
impl PartialEq for Catalogue {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}

impl Catalogue {
    /// The number of rows.
    pub const fn len(&self) -> usize {
        self.rows.len()
    }

    /// True without any row.
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the hash of a catalogue of these bytes. Linear in them.
    pub fn hash_of(bytes: &[u8]) -> u64 {
        fnv(bytes)
    }

    /// The hash of its bytes.
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    fn name(&self, row: Row) -> &str {
        let start = row.start as usize;
        self.names
            .get(start..start + usize::from(row.length))
            .unwrap_or_default()
    }

    fn class(&self, row: Row) -> Option<&Tenant> {
        self.classes.get(usize::from(row.plan).checked_sub(1)?)
    }

    fn own(&self, row: Row) -> Option<&OwnTerms> {
        self.own.get((row.own as usize).checked_sub(1)?)
    }

    fn limits(&self, own: &OwnTerms) -> ByBucket<Rate> {
        let range = own.limits.start as usize..own.limits.end as usize;
        let mut limits = ByBucket::default();
        for (bucket, rate) in self.limits.get(range).into_iter().flatten() {
            if let Some(key) = self.buckets.get(*bucket as usize) {
                limits.insert(key.clone(), *rate);
            }
        }
        limits
    }

    fn find(&self, name: &str) -> Option<Row> {
        let at = self
            .rows
            .binary_search_by(|row| self.name(*row).cmp(name))
            .ok()?;
        self.rows.get(at).copied()
    }
}

// === impl Policy ===

impl Policy {
    /// Returns the row of a tenant that `tenants.yaml` does not list; a plan in its name does not count. Logarithmic in
    /// the rows.
    pub fn row(&self, tenant: &str) -> Option<CatalogueRow> {
        let name = own_name(tenant);
        if self.tenants.written.contains_key(name) {
            return None;
        }
        let catalogue = self.catalogue.as_ref()?;
        let row = catalogue.find(name)?;
        let class = catalogue.class(row).map_or(DEFAULT_TENANT, Tenant::as_str);
        let class = self.tenants.written.get(class);
        let mut policy = TenantPolicy::of_plan(class.and_then(|class| class.plan.clone()));
        let own = catalogue.own(row);
        if let Some(own) = own {
            policy.weight = own.weight.unwrap_or(policy.weight);
            policy.floor = own.floor.or(policy.floor);
            policy.limits = catalogue.limits(own);
        }
        Some(CatalogueRow {
            policy,
            is_own: own.is_some(),
            line: row.line,
        })
    }

    /// Returns this policy with these rows of the catalogue listed as if `tenants.yaml` listed them, in place of those
    /// listed before. Tenants without a row are left out.
    #[must_use]
    pub fn listing(&self, active: impl IntoIterator<Item = Tenant>) -> Self {
        let mut policy = self.clone();
        let rows = active
            .into_iter()
            .filter_map(|tenant| Some((self.row(tenant.as_str())?.policy, tenant)));
        let rows = rows.map(|(row, tenant)| (tenant, row));
        policy.tenants.listed.clone_from(&*self.tenants.written);
        policy.tenants.listed.extend(rows);
        policy
    }

    /// Returns a warning if the catalogue has rows of tenants that `tenants.yaml` lists.
    pub(crate) fn listed_twice(&self, file: &str, catalogue: &Catalogue) -> Option<Warning> {
        let written = self.tenants.written.keys();
        let twice = written.filter_map(|name| Some((name, catalogue.find(name.as_str())?)));
        let twice: Vec<(&Tenant, Row)> = twice.collect();
        let (name, row) = twice.first()?;
        Some(Warning {
            file: file.to_owned(),
            at: SourcePlace {
                line: row.line as usize,
                column: 1,
            },
            path: "tenant".to_owned(),
            message: format!(
                "tenants.yaml lists `{name}` and {} other tenants of this file, too: its entries count, and not these rows",
                twice.len() - 1
            ),
            since: None,
        })
    }

    /// Returns this policy with the catalogue of another one, or without any.
    #[must_use]
    pub fn with_catalogue(mut self, catalogue: Option<Arc<Catalogue>>) -> Self {
        let texts = Arc::make_mut(&mut self.texts);
        texts.catalogue = catalogue.as_ref().map(|catalogue| catalogue.hash);
        self.hash = texts.hash();
        self.catalogue = catalogue;
        self
    }

    /// Returns this policy with a comparison of its catalogue to that of another one. Linear in the rows, which
    /// [`differences`](crate::differences) and [`reasons_to_hold`](crate::reasons_to_hold) between the two are not
    /// then.
    #[must_use]
    pub fn compared_to(mut self, before: &Self) -> Self {
        let changes = CatalogueChanges::of(before.catalogue(), self.catalogue());
        let hash = before.catalogue().map(|catalogue| catalogue.hash);
        self.compared = Some(Arc::new((hash, changes)));
        self
    }

    /// The changes of the catalogue from an earlier policy to this one.
    pub(crate) fn catalogue_changes(&self, before: &Self) -> CatalogueChanges {
        let hash = before.catalogue().map(|catalogue| catalogue.hash);
        let compared = self.compared.as_deref();
        match compared.filter(|(of, _)| *of == hash) {
            Some((_, changes)) => changes.clone(),
            None => CatalogueChanges::of(before.catalogue(), self.catalogue()),
        }
    }
}
