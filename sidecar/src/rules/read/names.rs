//! The names of buckets in a file: names that callers may use, and names in rules.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::names::Bucket;
use plimsoll_policy::{Field, check_entries};

use super::super::Spot;
use super::super::bounds::NAMES_MAX;
use super::{Findings, NAME_HINT};

#[derive(Default)]
pub(super) struct Names {
    /// The names that callers may use, if the file lists any.
    pub(super) listed: Option<BTreeSet<Bucket>>,
    /// Listed names and those of rules, with the place of the first.
    pub(super) all: BTreeMap<Bucket, Spot>,
}

impl Names {
    pub(super) fn read(
        list: Option<Vec<String>>,
        field: &Field<'_>,
        findings: &mut Findings,
    ) -> Self {
        let Some(list) = list else {
            return Self::default();
        };
        let hint = "leave `buckets` out, if callers may give any name";
        if findings
            .take(check_entries(field, NAMES_MAX, "NAMES_MAX", hint))
            .is_none()
        {
            // Not `None`, which would take every name: later findings would be false.
            return Self {
                listed: Some(BTreeSet::new()),
                ..Self::default()
            };
        }
        if list.is_empty() {
            findings.refuse(field, "the list is empty, so that no name is taken", hint);
        }
        let mut all = BTreeMap::new();
        for (index, text) in list.into_iter().enumerate() {
            if findings.is_full() {
                break;
            }
            let item = field.then(&index.to_string());
            let bucket = Bucket::new(&text).map_err(|error| item.refuse(error, NAME_HINT));
            let Some(bucket) = findings.take(bucket) else {
                continue;
            };
            match all.entry(bucket) {
                Entry::Vacant(free) => drop(free.insert(Spot::of(&item))),
                Entry::Occupied(first) => {
                    let why = format!(
                        "duplicate name `{text}`, first written at {}",
                        first.get().at
                    );
                    findings.refuse(&item, why, "keep one of the two");
                }
            }
        }
        Self {
            listed: Some(all.keys().cloned().collect()),
            all,
        }
    }

    pub(super) fn add(
        &mut self,
        text: &str,
        field: &Field<'_>,
        findings: &mut Findings,
    ) -> Option<Bucket> {
        let bucket =
            findings.take(Bucket::new(text).map_err(|error| field.refuse(error, NAME_HINT)))?;
        self.all
            .entry(bucket.clone())
            .or_insert_with(|| Spot::of(field));
        Some(bucket)
    }
}
