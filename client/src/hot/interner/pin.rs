//! The pins that protect keys from eviction while a handle lives.

use std::sync::Arc;

use plimsoll_core::names::check_tenant;

use super::ids::Ids;
use super::{Interner, Lookup};
use crate::hot::sync::{AtomicU32, Ordering};
use crate::hot::table::Table;

#[derive(Debug)]
pub(crate) struct Pin {
    table: Arc<Table>,
    pub(crate) key: u32,
}

impl Interner {
    /// Interns a name and pins it: it is not tombstoned until it is [unpinned](Self::unpin) as often as it
    /// was pinned.
    pub(crate) fn pin(&self, owner: u32, name: &str) -> Option<u32> {
        check_tenant(name).ok()?;
        self.insert_pinned(&mut self.lock(), owner, name).id()
    }

    /// Pins like [`pin`](Self::pin), on the request path: does not wait.
    pub(crate) fn try_pin(&self, owner: u32, name: &str) -> Lookup {
        match self.try_lock() {
            Some(_) if self.capacity().free == 0 => Lookup::Full,
            Some(mut ids) if ids.log.has_room(name) => self.insert_pinned(&mut ids, owner, name),
            _ => Lookup::Busy,
        }
    }

    fn insert_pinned(&self, ids: &mut Ids, owner: u32, name: &str) -> Lookup {
        let found = self.insert(ids, self.hash_of_name(owner, name), owner, name);
        found.id().into_iter().for_each(|id| self.pin_again(id));
        found
    }

    pub(crate) fn pin_again(&self, id: u32) {
        if let Some(pins) = self.pins_of(id) {
            pins.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn unpin(&self, id: u32) {
        if let Some(pins) = self.pins_of(id) {
            pins.fetch_sub(1, Ordering::Release);
        }
    }

    fn pins_of(&self, id: u32) -> Option<&AtomicU32> {
        let pins = self.pins.get(id as usize);
        debug_assert!(pins.is_some(), "id {id} was never assigned");
        pins
    }
}

impl Pin {
    pub(crate) fn new(table: &Arc<Table>, bucket: u32, tenant: &str) -> Option<Self> {
        let key = table.keys.pin(bucket, tenant)?;
        Some(Self {
            table: Arc::clone(table),
            key,
        })
    }
}

impl Clone for Pin {
    fn clone(&self) -> Self {
        self.table.keys.pin_again(self.key);
        Self {
            table: Arc::clone(&self.table),
            key: self.key,
        }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.table.keys.unpin(self.key);
    }
}
