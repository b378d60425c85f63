//! Enforcement: whether this instance carries refusals out, by the mode of a bucket, the kill switches and
//! the canary.

use plimsoll_core::decision::Mode;
use plimsoll_core::directive::Terms;
use plimsoll_core::kill::Kills;
use plimsoll_core::names::{Bucket, DEFAULT_TENANT, Name};
use plimsoll_core::report::Side;
use plimsoll_core::rollout::Cohort;

/// The unit by which a canary's share is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CanaryBy {
    /// An instance is in the cohort with all its keys, or with none. The default.
    #[default]
    Instance,
    /// A stable share of the keys of this instance is in the cohort: for an instance that serves so many callers that it
    /// would be all or nothing, such as a sidecar in front of a service. The choice depends on the
    /// [name](crate::LimiterBuilder::name) of the instance, which should survive restarts.
    Key,
}

/// The unit of a bucket's canary on this instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Division {
    /// The whole instance is on this side.
    Whole(Side),
    /// Each key is on a side of its own, by this cohort.
    ByKey(Cohort),
}

/// The enforcement of one bucket: its mode, and its canary.
#[derive(Clone, Copy)]
pub(super) struct Stance<'a> {
    pub(super) mode: Mode,
    cohort: Cohort,
    of: &'a Enforcement,
}

/// The kill switches that this instance knows, and its name, which decides on its side of a canary.
pub(crate) struct Enforcement {
    name: Name,
    pub(super) canary_by: CanaryBy,
    pub(super) kills: Kills,
    /// The kill switch of this process alone: it only observes.
    pub(crate) observes: bool,
}

impl Enforcement {
    pub(super) fn new(name: Name) -> Self {
        Self { name, canary_by: CanaryBy::Instance, kills: Kills::default(), observes: false }
    }

    /// Returns the mode that is left of a bucket's terms: shadow while killed.
    pub(super) fn mode(&self, bucket: &Bucket, terms: &Terms) -> Mode {
        if self.observes { Mode::Shadow } else { self.kills.mode(bucket, terms) }
    }

    /// Returns the mode of a bucket without terms, for a rate that the service itself has set.
    pub(super) fn mode_without_terms(&self, bucket: &Bucket) -> Mode {
        self.mode(bucket, &Terms { mode: Mode::Enforce, ..Terms::default() })
    }

    /// Returns the enforcement of a bucket by its terms.
    pub(super) fn stance(&self, bucket: &Bucket, terms: &Terms) -> Stance<'_> {
        Stance { mode: self.mode(bucket, terms), cohort: terms.cohort, of: self }
    }
}

impl Stance<'_> {
    /// Returns true if refusals of a tenant's requests are carried out on this instance.
    pub(super) fn enforces(&self, tenant: &str) -> bool {
        match self.mode {
            Mode::Shadow => false,
            Mode::Canary => self.side(tenant) == Side::Canary,
            Mode::Enforce => true,
        }
    }

    /// Returns the side of a tenant's key, which in other modes is where it would be.
    pub(super) fn side(&self, tenant: &str) -> Side {
        let is_member = match self.of.canary_by {
            CanaryBy::Instance => self.cohort.contains(&self.of.name),
            CanaryBy::Key => self.cohort.contains_key(&self.of.name, tenant),
        };
        if is_member { Side::Canary } else { Side::Control }
    }

    /// Returns the unit of the canary.
    pub(super) fn division(&self) -> Division {
        match self.of.canary_by {
            CanaryBy::Instance => Division::Whole(self.side(DEFAULT_TENANT)),
            CanaryBy::Key => Division::ByKey(self.cohort),
        }
    }

    /// Returns true while the keys of this instance differ in their enforcement.
    pub(super) fn is_divided(&self) -> bool {
        self.mode == Mode::Canary && self.of.canary_by == CanaryBy::Key
    }
}
