//! The standings and classes of unlisted names, as the aggregator has sent them, and the marks that lead the request path
//! to the ratio of each.

use std::collections::{BTreeSet, HashMap};

use plimsoll_core::directive::{Posted, TailCut};
use plimsoll_core::law::tail::{Bin, Standing};
use plimsoll_core::names::{DEFAULT_TENANT, Key, Tenant, split_class};
use plimsoll_core::quantity::DropRatio;

use crate::hot::directive_word::DirectiveWord;
use crate::hot::table::Table;
use crate::subscription::enforcement::Stance;

#[derive(Default)]
pub(crate) struct Names {
    /// By key.
    standings: Vec<Standing>,
    /// By bucket: the names with a bin for their rate, which have their own ratios.
    counted: HashMap<u32, BTreeSet<u32>>,
    /// By key: the class of a name with a plan that only the catalogue has.
    classes: HashMap<u32, Tenant>,
}

impl Names {
    pub(super) fn set(&mut self, bucket: u32, key: u32, standing: Standing) {
        if self.standings.len() <= key as usize {
            self.standings.resize(key as usize + 1, Standing::default());
        }
        self.standings[key as usize] = standing;
        let counted = self.counted.entry(bucket).or_default();
        if standing.bin.is_some() {
            counted.insert(key);
        } else {
            counted.remove(&key);
        }
    }

    /// Sets the class of a name whose requests bring no plan.
    pub(super) fn set_class(&mut self, key: u32, class: &Tenant) {
        match class.plan() {
            Some(_) => drop(self.classes.insert(key, class.clone())),
            None => drop(self.classes.remove(&key)),
        }
    }

    /// Returns the class of a key: that of the catalogue, else that of the plan in its name.
    pub(super) fn class_of<'a>(&'a self, key: u32, tenant: &'a str) -> &'a str {
        let of_catalogue = self.classes.get(&key).map(Tenant::as_str);
        of_catalogue.unwrap_or_else(|| split_class(tenant).1)
    }

    pub(crate) fn catalogued(&self) -> impl Iterator<Item = u32> {
        self.classes.keys().copied()
    }

    /// Forgets a name before another key may take its id.
    pub(super) fn remove(&mut self, bucket: u32, key: u32) {
        self.classes.remove(&key);
        if self.of(key) != Standing::default() {
            self.set(bucket, key, Standing::default());
        }
    }

    pub(crate) fn of(&self, key: u32) -> Standing {
        self.standings
            .get(key as usize)
            .copied()
            .unwrap_or_default()
    }

    pub(super) fn counted(&self, bucket: u32) -> impl Iterator<Item = u32> {
        self.counted.get(&bucket).into_iter().flatten().copied()
    }

    /// Publishes the word of a key, unless it has its own directive.
    pub(super) fn publish(&self, table: &Table, key: u32, name: &Key, stance: &Stance<'_>) {
        if !table.has_own_directive(key) {
            table.publish(key, self.word(key, name.tenant.as_str(), stance));
        }
    }

    /// Returns the word of a key without its own directive: it follows its class, as far as its
    /// standing and its side of a canary let it.
    pub(super) fn word(&self, key: u32, tenant: &str, stance: &Stance<'_>) -> DirectiveWord {
        // The default class follows nothing. Without a ratio its mode remains, because quotas
        // refuse by it.
        if tenant == DEFAULT_TENANT {
            return DirectiveWord::new(DropRatio::NONE).enforced(stance.enforces(tenant));
        }
        let Standing { established, bin } = self.of(key);
        let (posted, has_plans) = (stance.posted, has_plans(stance.posted));
        let cut = if has_plans {
            let class = posted.class_of(self.class_of(key, tenant));
            posted.terms().of_class(class).cut
        } else {
            posted.terms().cut
        };
        let of_bin = bin
            .zip(cut)
            .map(|(bin, cut): (Bin, TailCut)| cut.ratio_of(established, bin.rate()));
        let mark = match of_bin {
            Some((ratio, is_at_limit)) => Some(DirectiveWord::cut(ratio, established, is_at_limit)),
            None => established.then(DirectiveWord::established),
        };
        match stance.is_divided() {
            true => mark
                .unwrap_or(DirectiveWord::following())
                .on_side(stance.enforces(tenant)),
            // The mark leads to the class of its plan, or of none: the plan of a later request does not count.
            false if has_plans => mark.unwrap_or(DirectiveWord::following()),
            false => mark.unwrap_or(DirectiveWord::NOTHING),
        }
    }
}

pub(super) fn has_plans(posted: &Posted) -> bool {
    !posted.terms().plans.is_empty()
}
