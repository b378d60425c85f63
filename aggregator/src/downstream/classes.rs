//! The classes of names that a client was told: its requests bring no plan, and the catalogue of tenants has one.

use std::collections::{BTreeSet, HashMap};

use plimsoll_core::directive::CATALOGUED_MAX;
use plimsoll_core::names::{KeyId, Tenant, is_class_of_plan};

#[derive(Debug, Default)]
pub(crate) struct SentClasses {
    /// By the client's id of the key; none for a name of the class `default`.
    classes: HashMap<KeyId, Tenant>,
    changed: BTreeSet<KeyId>,
}

impl SentClasses {
    pub(crate) fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    pub(super) fn define(&mut self, id: KeyId) {
        self.classes.remove(&id);
        self.changed.remove(&id);
    }

    /// Notes the present class of a name; `None` without a plan, as in the class `default`.
    pub(crate) fn note(&mut self, id: KeyId, class: Option<&str>) {
        let class = class.filter(|class| is_class_of_plan(class));
        if self.classes.get(&id).map(Tenant::as_str) == class {
            return;
        }
        match class.and_then(|class| Tenant::new(class).ok()) {
            Some(class) => self.classes.insert(id, class),
            None => self.classes.remove(&id),
        };
        self.changed.insert(id);
    }

    /// Takes the changes since the last message, at most as many as one carries.
    pub(super) fn take(&mut self) -> Vec<(KeyId, Tenant)> {
        let next = self.changed.iter().take(CATALOGUED_MAX).copied();
        let next: Vec<KeyId> = next.collect();
        let each = next.into_iter().map(|id| {
            self.changed.remove(&id);
            let class = self.classes.get(&id).cloned();
            (id, class.unwrap_or_else(Tenant::default_class))
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_is_told_changes_alone() {
        let mut sent = SentClasses::default();
        let (pro, default) = (Tenant::new("%~pro").unwrap(), Tenant::default_class());
        for without_plan in [None, Some("default")] {
            sent.note(KeyId(1), without_plan);
            assert!(sent.take().is_empty(), "{without_plan:?}");
        }
        sent.note(KeyId(1), Some("%~pro"));
        sent.note(KeyId(2), Some("%~pro"));
        let told = sent.take();
        assert_eq!(told, [(KeyId(1), pro.clone()), (KeyId(2), pro.clone())]);
        sent.note(KeyId(1), Some("%~pro"));
        sent.note(KeyId(2), Some("default"));
        assert_eq!(sent.take(), [(KeyId(2), default)]);
        sent.define(KeyId(1));
        sent.note(KeyId(1), Some("%~pro"));
        assert_eq!(
            sent.take(),
            [(KeyId(1), pro)],
            "the id is of another name now"
        );
    }
}
