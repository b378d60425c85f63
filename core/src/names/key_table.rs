//! Interns keys to dense ids, bounded, and reuses the ids of removed keys.

use std::collections::HashMap;

use super::{Key, KeyId};

/// Interns keys to dense ids, up to a bound. The id of a key that is removed goes to a later one.
#[derive(Debug)]
pub struct KeyTable {
    ids: HashMap<Key, KeyId>,
    keys: Vec<Key>,
    free: Vec<KeyId>,
    keys_max: usize,
}

impl KeyTable {
    /// An empty table that will hold at most `keys_max` keys (and never more than `u32::MAX`).
    #[must_use]
    pub fn new(keys_max: usize) -> Self {
        let keys_max = keys_max.min(u32::MAX as usize);
        Self { ids: HashMap::new(), keys: Vec::new(), free: Vec::new(), keys_max }
    }

    /// The id of `key`, newly given if need be; `None` when the table is full. Amortised O(1).
    pub fn intern(&mut self, key: &Key) -> Option<KeyId> {
        if let Some(id) = self.ids.get(key) {
            return Some(*id);
        }
        let id = match self.free.pop() {
            Some(id) => {
                if let Some(held) = self.keys.get_mut(id.index()) {
                    *held = key.clone();
                }
                id
            }
            None if self.keys.len() >= self.keys_max => return None,
            None => {
                let id = KeyId(u32::try_from(self.keys.len()).ok()?);
                self.keys.push(key.clone());
                id
            }
        };
        self.ids.insert(key.clone(), id);
        Some(id)
    }

    /// Removes the key with this id, which a later key gets; false if there is none. Until then the id still has its old
    /// key among [`keys`](Self::keys).
    pub fn remove(&mut self, id: KeyId) -> bool {
        let Some(key) = self.keys.get(id.index()) else { return false };
        let is_held = self.ids.get(key) == Some(&id);
        if is_held {
            self.ids.remove(key);
            self.free.push(id);
        }
        is_held
    }

    /// The id of `key`, if it has one.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<KeyId> {
        self.ids.get(key).copied()
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Whether a key that is not here finds no room.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.free.is_empty() && self.keys.len() >= self.keys_max
    }

    /// All keys, each at its id's index, and at the ids of keys that were removed those that were there.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{Bucket, Tenant};

    #[test]
    fn a_key_table_is_dense_and_bounded() {
        let key =
            |tenant: &str| Key { bucket: Bucket::new("b").unwrap(), tenant: Tenant::new(tenant).unwrap() };
        let mut table = KeyTable::new(2);
        assert_eq!(table.intern(&key("x")), Some(KeyId(0)));
        assert_eq!(table.intern(&key("y")), Some(KeyId(1)));
        assert_eq!(table.intern(&key("x")), Some(KeyId(0)));
        assert_eq!(table.intern(&key("z")), None);
        assert_eq!(table.keys()[1], key("y"));
        assert!(table.remove(KeyId(0)));
        assert!(!table.remove(KeyId(0)) && !table.remove(KeyId(2)), "each once");
        assert_eq!((table.get(&key("x")), table.len(), table.keys().len()), (None, 1, 2));
        assert_eq!(table.intern(&key("z")), Some(KeyId(0)), "ids are used again");
        assert_eq!(table.intern(&key("x")), None);
        assert_eq!((table.keys()[0].clone(), table.len()), (key("z"), 2));
    }
}
