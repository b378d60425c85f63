//! Enforcement: whether this instance carries refusals out, by the mode of a bucket, the kill switches and
//! the canary.

use plimsoll_core::decision::Mode;
use plimsoll_core::directive::{Posted, Terms};
use plimsoll_core::kill::Kills;
use plimsoll_core::names::{Bucket, DEFAULT_TENANT, Name};
use plimsoll_core::report::Side;
use plimsoll_core::rollout::Cohort;

/// The unit of a canary's share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CanaryBy {
    /// An instance is in the cohort with all its keys, or with none. The default.
    #[default]
    Instance,
    /// A stable share of the keys of this instance is in the cohort: for an instance that serves so many callers that
    /// it would be all or nothing, such as a sidecar in front of a service. The choice depends on the
    /// [name](crate::LimiterBuilder::name) of the instance, which should survive restarts.
    Key,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Division {
    Whole(Side),
    /// Each key has its own side, by this cohort.
    ByKey(Cohort),
}

/// The directive of one bucket, and whether this instance carries out its refusals.
#[derive(Clone, Copy)]
pub(super) struct Stance<'a> {
    pub(super) posted: &'a Posted,
    pub(super) mode: Mode,
    of: &'a Enforcement,
}

pub(crate) struct Enforcement {
    name: Name,
    pub(super) canary_by: CanaryBy,
    pub(super) kills: Kills,
    /// The kill switch of this process: it only observes.
    pub(crate) observes: bool,
}

impl Enforcement {
    pub(super) fn new(name: Name) -> Self {
        Self {
            name,
            canary_by: CanaryBy::Instance,
            kills: Kills::default(),
            observes: false,
        }
    }

    pub(super) fn mode(&self, bucket: &Bucket, terms: &Terms) -> Mode {
        if self.observes {
            Mode::Shadow
        } else {
            self.kills.mode(bucket, terms)
        }
    }

    /// Returns the mode of a bucket before its first directive: it refuses unless it is killed.
    pub(super) fn mode_without_terms(&self, bucket: &Bucket) -> Mode {
        self.mode(
            bucket,
            &Terms {
                mode: Mode::Enforce,
                ..Terms::default()
            },
        )
    }

    pub(super) fn stance<'a>(&'a self, bucket: &Bucket, posted: &'a Posted) -> Stance<'a> {
        Stance {
            posted,
            mode: self.mode(bucket, posted.terms()),
            of: self,
        }
    }
}

impl Stance<'_> {
    pub(super) fn enforces(&self, tenant: &str) -> bool {
        match self.mode {
            Mode::Shadow => false,
            Mode::Canary => self.side(tenant) == Side::Canary,
            Mode::Enforce => true,
        }
    }

    /// Returns the side of a tenant's key, which in other modes is where it would be.
    pub(super) fn side(&self, tenant: &str) -> Side {
        let cohort = self.posted.terms().cohort;
        let is_member = match self.of.canary_by {
            CanaryBy::Instance => cohort.contains(&self.of.name),
            CanaryBy::Key => cohort.contains_key(&self.of.name, tenant),
        };
        if is_member {
            Side::Canary
        } else {
            Side::Control
        }
    }

    pub(super) fn division(&self) -> Division {
        match self.of.canary_by {
            CanaryBy::Instance => Division::Whole(self.side(DEFAULT_TENANT)),
            CanaryBy::Key => Division::ByKey(self.posted.terms().cohort),
        }
    }

    pub(super) fn is_divided(&self) -> bool {
        self.mode == Mode::Canary && self.of.canary_by == CanaryBy::Key
    }
}
