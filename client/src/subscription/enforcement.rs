//! Enforcement: whether this instance carries refusals out, by the mode of a bucket, the kill switches and
//! the canary.

use plimsoll_core::decision::Mode;
use plimsoll_core::directive::{Posted, Terms};
use plimsoll_core::kill::Kills;
use plimsoll_core::names::{Bucket, Name};
use plimsoll_core::report::Side;

/// The kill switches that this instance knows, and its name, which decides on its side of a canary.
#[derive(Debug)]
pub(super) struct Enforcement {
    name: Name,
    pub(super) kills: Kills,
    /// The kill switch of this process alone: it only observes.
    pub(super) observes: bool,
}

impl Enforcement {
    pub(super) fn new(name: Name) -> Self {
        Self { name, kills: Kills::default(), observes: false }
    }

    /// Returns the mode that is left of a bucket's terms: shadow while killed.
    pub(super) fn mode(&self, bucket: &Bucket, terms: &Terms) -> Mode {
        if self.observes { Mode::Shadow } else { self.kills.mode(bucket, terms) }
    }

    /// Returns the mode of a bucket without terms, for a rate that the service itself has set.
    pub(super) fn mode_without_terms(&self, bucket: &Bucket) -> Mode {
        self.mode(bucket, &Terms { mode: Mode::Enforce, ..Terms::default() })
    }

    /// Returns true if refusals are carried out on this instance.
    pub(super) fn enforces(&self, bucket: &Bucket, terms: &Terms) -> bool {
        match self.mode(bucket, terms) {
            Mode::Shadow => false,
            Mode::Canary => terms.cohort.contains(&self.name),
            Mode::Enforce => true,
        }
    }

    /// Returns this instance's side of a bucket's canary.
    pub(super) fn side(&self, posted: &Posted) -> Side {
        if posted.terms().cohort.contains(&self.name) { Side::Canary } else { Side::Control }
    }
}
