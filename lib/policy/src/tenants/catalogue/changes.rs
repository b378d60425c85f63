//! The difference between two catalogues, in counts of rows that were added, removed and changed.

use std::cmp::Ordering;

use super::{Catalogue, Row};
use crate::Difference;

/// Names that a reason shows.
const NAMED_MAX: usize = 3;

/// The rows that differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CatalogueChanges {
    /// The rows before.
    pub(crate) before: usize,
    pub(crate) added: usize,
    pub(crate) removed: usize,
    /// Rows of the same tenant with another plan, weight, floor or limit.
    pub(crate) changed: usize,
    /// The first that were removed or changed.
    pub(crate) names: Vec<String>,
}

impl CatalogueChanges {
    /// Returns the counts as a difference; `None` if nothing differs.
    pub(crate) fn shown(&self) -> Option<Difference> {
        let counts = [
            (self.added, "added"),
            (self.removed, "removed"),
            (self.changed, "changed"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        (!counts.is_empty()).then(|| Difference {
            path: "catalogue".to_owned(),
            from: Some(format!("{} rows", self.before)),
            to: Some(format!(
                "{} rows, {}",
                self.before + self.added - self.removed,
                counts.join(", ")
            )),
        })
    }

    /// Compares two catalogues. Linear in their rows.
    pub(crate) fn of(before: Option<&Catalogue>, after: Option<&Catalogue>) -> Self {
        let mut changes = Self::default();
        let rows = |catalogue: Option<&Catalogue>| catalogue.map_or(0, Catalogue::len);
        changes.before = rows(before);
        let (Some(before), Some(after)) = (before, after) else {
            (changes.removed, changes.added) = (rows(before), rows(after));
            return changes;
        };
        if before == after {
            return changes;
        }
        let (mut old, mut new) = (before.rows.iter().peekable(), after.rows.iter().peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => return changes,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(one), Some(other)) => before.name(**one).cmp(after.name(**other)),
            };
            let one = old.next_if(|_| order.is_le());
            let other = new.next_if(|_| order.is_ge());
            match (one, other) {
                (Some(one), Some(other)) if is_same((before, *one), (after, *other)) => {}
                (Some(one), other) => {
                    changes.removed += usize::from(other.is_none());
                    changes.changed += usize::from(other.is_some());
                    if changes.names.len() < NAMED_MAX {
                        changes.names.push(before.name(*one).to_owned());
                    }
                }
                (None, _) => changes.added += 1,
            }
        }
    }
}

fn is_same((before, one): (&Catalogue, Row), (after, other): (&Catalogue, Row)) -> bool {
    let own = (before.own(one), after.own(other));
    before.class(one) == after.class(other)
        && match own {
            (None, None) => true,
            (Some(one), Some(other)) => {
                (one.weight, one.floor) == (other.weight, other.floor)
                    && before.limits(one) == after.limits(other)
            }
            (Some(_), None) | (None, Some(_)) => false,
        }
}
