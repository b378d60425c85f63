//! Canaries that are divided by key: the side of each key, and the marks of keys that follow their class, but not
//! its side.

use std::collections::{HashMap, HashSet};

use plimsoll_core::rollout::Cohort;

use super::Published;
use super::names::Names;
use crate::hot::table::Table;
use crate::subscription::enforcement::{Division, Stance};

/// The buckets with a canary that is divided by key, by id. All keys of another bucket are on the
/// side of the instance.
#[derive(Default)]
pub(super) struct Divisions {
    /// The cohort of the published sides of the keys.
    cohorts: HashMap<u32, Cohort>,
    /// The buckets in canary, with marked keys.
    pub(super) marked: HashSet<u32>,
}

impl Divisions {
    /// Publishes the sides of a bucket's keys, and marks the keys if the bucket is in canary now. Must be called before
    /// its directive is published, so that no key follows the side of its class for a moment. Linear in the
    /// keys when the canary begins or its share changes, and else constant.
    pub(super) fn begin(
        &mut self,
        table: &Table,
        published: Published<'_>,
        names: &Names,
        stance: &Stance<'_>,
    ) {
        let Division::ByKey(cohort) = stance.division() else {
            return;
        };
        let id = published.id;
        let is_new_cohort = self.cohorts.insert(id, cohort) != Some(cohort);
        let is_new_canary = stance.is_divided() && self.marked.insert(id);
        if !is_new_cohort && !is_new_canary {
            return;
        }
        for (key, name) in published.registry.present(table, id) {
            let side = stance.side(name.tenant.as_str());
            table.responses.set_side(key, side);
            if stance.is_divided() {
                names.publish(table, key, name, stance);
            }
        }
    }

    /// Removes the marks of a bucket that has left the canary. Must be called after its directive was published, so
    /// that a kill stops the default class first.
    pub(super) fn end(
        &mut self,
        table: &Table,
        published: Published<'_>,
        names: &Names,
        stance: &Stance<'_>,
    ) {
        if stance.is_divided() || !self.marked.remove(&published.id) {
            return;
        }
        for (key, name) in published.registry.present(table, published.id) {
            names.publish(table, key, name, stance);
        }
    }
}
