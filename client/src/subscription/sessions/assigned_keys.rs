//! The keys that are assigned to one session, numbered densely as its outbox needs them.

use std::collections::HashMap;

use plimsoll_core::names::{Key, KeyId};

/// Keys by their slots in the outbox, and the other way round. A slot that lost its key is given to the next
/// one.
#[derive(Default)]
pub(super) struct AssignedKeys {
    /// By slot.
    names: Vec<Key>,
    /// By slot: the key's id in the table; `None` while the slot is free.
    table_ids: Vec<Option<u32>>,
    /// By id in the table.
    slots: HashMap<u32, KeyId>,
    free: Vec<KeyId>,
}

impl AssignedKeys {
    pub(super) fn insert(&mut self, table_id: u32, name: Key) -> KeyId {
        let slot = if let Some(slot) = self.free.pop() {
            (self.names[slot.index()], self.table_ids[slot.index()]) = (name, Some(table_id));
            slot
        } else {
            self.names.push(name);
            self.table_ids.push(Some(table_id));
            KeyId(self.names.len() as u32 - 1)
        };
        let before = self.slots.insert(table_id, slot);
        debug_assert!(before.is_none(), "key {table_id} was assigned twice");
        slot
    }

    /// Takes the slot of a key away. Returns it; `None` if the key has none.
    pub(super) fn remove(&mut self, table_id: u32) -> Option<KeyId> {
        let slot = self.slots.remove(&table_id)?;
        self.table_ids[slot.index()] = None;
        self.free.push(slot);
        Some(slot)
    }

    pub(super) fn slot(&self, table_id: u32) -> Option<KeyId> {
        self.slots.get(&table_id).copied()
    }

    pub(super) fn table_id(&self, slot: KeyId) -> Option<u32> {
        self.table_ids.get(slot.index()).copied().flatten()
    }

    pub(super) fn names(&self) -> &[Key] {
        &self.names
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use plimsoll_core::names::{Bucket, Tenant};

    use super::*;

    fn key(tenant: &str) -> Key {
        Key {
            bucket: Bucket::new("api").unwrap(),
            tenant: Tenant::new(tenant).unwrap(),
        }
    }

    #[test]
    fn freed_slot_is_taken_next() {
        let mut keys = AssignedKeys::default();
        assert_eq!(
            [keys.insert(70, key("a")), keys.insert(50, key("b"))],
            [KeyId(0), KeyId(1)]
        );
        assert_eq!(
            (keys.slot(50), keys.table_id(KeyId(0))),
            (Some(KeyId(1)), Some(70))
        );
        assert_eq!((keys.remove(70), keys.remove(70)), (Some(KeyId(0)), None));
        assert_eq!((keys.slot(70), keys.table_id(KeyId(0))), (None, None));
        assert_eq!(keys.insert(90, key("c")), KeyId(0));
        assert_eq!(keys.names(), [key("c"), key("b")]);
    }
}
