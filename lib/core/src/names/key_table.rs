//! Interns keys to dense ids and holds a value for each. The id of a removed key is reused with another
//! generation, so that a stale reference is found.

use std::collections::HashMap;

use super::{Key, KeyId};

/// Keys that a tier has room for beyond its bound: keys of classes and of listed
/// tenants; the policy and the bounds of buckets limit their number.
pub const DECLARED_MAX: usize = 1 << 20;

/// A reference to a key in a [`KeyTable`]: its id, and which use of the id is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TablePlace {
    /// The id that the table gave to the key.
    pub id: KeyId,
    /// The generation of the id.
    pub generation: u32,
}

impl TablePlace {
    /// A place that is never current. Counts of several keys may share it, and each key is looked up again
    /// next time.
    pub const fn shared(id: KeyId) -> Self {
        Self { id, generation: 0 }
    }
}

/// Interns keys to dense ids, up to a bound, each with a value.
#[derive(Debug, Default)]
pub struct KeyTable<T> {
    ids: HashMap<Key, KeyId>,
    keys: Vec<Key>,
    values: Vec<T>,
    /// By id: odd while a key has it, even while it is free, never 0.
    generations: Vec<u32>,
    free: Vec<KeyId>,
    keys_max: usize,
    /// The index where the next part begins.
    searched: usize,
}

impl<T: Default> KeyTable<T> {
    /// An empty table for at most `keys_max` keys, and never more than `u32::MAX`.
    pub fn new(keys_max: usize) -> Self {
        Self {
            keys_max: keys_max.min(u32::MAX as usize),
            ..Self::default()
        }
    }

    /// The place of `key`, and true if the key is new and was given a default value. `None` when the table is
    /// full. Amortised O(1).
    pub fn intern(&mut self, key: &Key) -> Option<(TablePlace, bool)> {
        if let Some(id) = self.get(key) {
            return Some((self.place(id), false));
        }
        let id = match self.free.pop() {
            Some(id) => {
                self.keys[id.index()] = key.clone();
                self.generations[id.index()] += 1;
                id
            }
            None if self.keys.len() >= self.keys_max => return None,
            None => {
                let id = KeyId(u32::try_from(self.keys.len()).ok()?);
                self.keys.push(key.clone());
                self.values.push(T::default());
                self.generations.push(1);
                id
            }
        };
        self.ids.insert(key.clone(), id);
        Some((self.place(id), true))
    }

    /// Removes the key with this id and returns its value; `None` if no key has the id. A later key gets the
    /// id. Until then the removed key stays among [`keys`](Self::keys).
    pub fn remove(&mut self, id: KeyId) -> Option<T> {
        if !self.has(id) {
            return None;
        }
        self.ids.remove(&self.keys[id.index()]);
        self.free.push(id);
        self.advance(id, 1);
        Some(std::mem::take(self.value_mut(id)))
    }

    /// Makes every place of this id stale; the key keeps id and value.
    pub fn renew(&mut self, id: KeyId) {
        debug_assert!(self.has(id), "{id:?} has no key");
        self.advance(id, 2);
    }

    fn advance(&mut self, id: KeyId, by: u32) {
        // From the largest, which is odd, on to the smallest above 0 with the parity of the sum.
        let generation = &mut self.generations[id.index()];
        *generation = generation.checked_add(by).unwrap_or(3 - by);
    }

    /// The id of `key`, if it has one.
    pub fn get(&self, key: &Key) -> Option<KeyId> {
        self.ids.get(key).copied()
    }

    /// The key with this id, or the last key that had it. Panics for an id that this table has not
    /// given out.
    pub fn key(&self, id: KeyId) -> &Key {
        &self.keys[id.index()]
    }

    /// The place of the key that has this id now.
    pub fn place(&self, id: KeyId) -> TablePlace {
        debug_assert!(self.has(id), "{id:?} has no key");
        TablePlace {
            id,
            generation: self.generations[id.index()],
        }
    }

    /// Returns true if a place still means the key that it was given out for.
    #[inline]
    pub fn is_current(&self, place: TablePlace) -> bool {
        self.generations.get(place.id.index()) == Some(&place.generation)
    }

    /// The value of an id. Panics for an id that this table has not given out.
    #[inline]
    pub fn value(&self, id: KeyId) -> &T {
        &self.values[id.index()]
    }

    /// The value of an id, to be changed. Panics for an id that this table has not given out.
    #[inline]
    pub fn value_mut(&mut self, id: KeyId) -> &mut T {
        &mut self.values[id.index()]
    }

    /// Every key with its id and value, in the order of ids.
    pub fn iter(&self) -> impl Iterator<Item = (KeyId, &Key, &T)> {
        self.range(0, self.keys.len())
    }

    /// A part of the keys, continued by the next call: `parts` calls visit every key.
    pub fn next_part(&mut self, parts: usize) -> impl Iterator<Item = (KeyId, &Key, &T)> {
        let from = if self.searched >= self.keys.len() {
            0
        } else {
            self.searched
        };
        self.searched = (from + self.keys.len().div_ceil(parts.max(1))).min(self.keys.len());
        self.range(from, self.searched)
    }

    fn range(&self, from: usize, to: usize) -> impl Iterator<Item = (KeyId, &Key, &T)> {
        let all = (from..to).map(|at| (KeyId(at as u32), &self.keys[at], &self.values[at]));
        all.filter(|(id, ..)| self.has(*id))
    }

    fn has(&self, id: KeyId) -> bool {
        self.generations
            .get(id.index())
            .is_some_and(|generation| generation % 2 == 1)
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns true if there is no key.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Returns true if there is no room for another key.
    pub fn is_full(&self) -> bool {
        self.free.is_empty() && self.keys.len() >= self.keys_max
    }

    /// All keys, each at its id's index. At the ids of removed keys are the keys that had them last.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{Bucket, Tenant};

    fn key(tenant: &str) -> Key {
        Key {
            bucket: Bucket::new("b").unwrap(),
            tenant: Tenant::new(tenant).unwrap(),
        }
    }

    #[test]
    fn key_table_is_dense_and_bounded() {
        let mut table = KeyTable::<()>::new(2);
        let mut id = |name: &str| {
            table
                .intern(&key(name))
                .map(|(place, is_new)| (place.id, is_new))
        };
        assert_eq!(id("x"), Some((KeyId(0), true)));
        assert_eq!(id("y"), Some((KeyId(1), true)));
        assert_eq!(id("x"), Some((KeyId(0), false)));
        assert_eq!(id("z"), None);
        assert_eq!(table.keys()[1], key("y"));
        assert!(table.remove(KeyId(0)).is_some());
        assert!(
            table.remove(KeyId(0)).is_none() && table.remove(KeyId(2)).is_none(),
            "each once"
        );
        assert_eq!(
            (table.get(&key("x")), table.len(), table.keys().len()),
            (None, 1, 2)
        );
        assert_eq!(
            table.intern(&key("z")).map(|(place, _)| place.id),
            Some(KeyId(0)),
            "ids are reused"
        );
        assert_eq!(table.intern(&key("x")), None);
        assert_eq!((table.keys()[0].clone(), table.len()), (key("z"), 2));
    }

    #[test]
    fn place_expires_when_its_key_leaves() {
        let mut table = KeyTable::<u8>::new(2);
        let (first, _) = table.intern(&key("x")).unwrap();
        *table.value_mut(first.id) = 7;
        assert!(table.is_current(first) && !table.is_current(TablePlace::shared(first.id)));
        table.renew(first.id);
        let renewed = table.place(first.id);
        assert!(!table.is_current(first) && table.is_current(renewed));
        assert_eq!(table.remove(first.id), Some(7));
        assert!(!table.is_current(renewed));
        let (second, is_new) = table.intern(&key("y")).unwrap();
        assert!(
            is_new
                && second.id == first.id
                && !table.is_current(first)
                && !table.is_current(renewed)
        );
        assert_eq!(
            table.value(second.id),
            &0,
            "a new key starts with a default value"
        );
        table.generations[0] = u32::MAX;
        table.renew(second.id);
        assert_eq!(table.place(second.id).generation, 1);
    }

    #[test]
    fn search_visits_every_key_once() {
        let mut table = KeyTable::<()>::new(10);
        for name in ["a", "b", "c", "d", "e"] {
            table.intern(&key(name));
        }
        table.remove(KeyId(3));
        let mut calls = (0..4).map(|_| table.next_part(2).map(|(id, ..)| id.0).collect::<Vec<_>>());
        assert_eq!(calls.next(), Some(vec![0, 1, 2]));
        assert_eq!(calls.next(), Some(vec![4]));
        assert_eq!(calls.next(), Some(vec![0, 1, 2]));
        drop(calls);
        assert_eq!(table.iter().count(), 4);
    }
}
