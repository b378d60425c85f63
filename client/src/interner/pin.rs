//! The pin that protects a key from eviction while a handle lives.

use std::sync::Arc;

use crate::hot::table::Table;

/// A key that is not evicted while this pin or a clone of it lives.
#[derive(Debug)]
pub(crate) struct Pin {
    table: Arc<Table>,
    key: u32,
}

impl Pin {
    /// Pins a key, which gets an id if it has none; `None` when no id is free, or the name is invalid.
    pub(crate) fn new(table: &Arc<Table>, bucket: u32, tenant: &str) -> Option<Self> {
        let key = table.keys.pin(bucket, tenant)?;
        Some(Self { table: Arc::clone(table), key })
    }

    pub(crate) const fn key(&self) -> u32 {
        self.key
    }
}

impl Clone for Pin {
    fn clone(&self) -> Self {
        self.table.keys.pin_again(self.key);
        Self { table: Arc::clone(&self.table), key: self.key }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.table.keys.unpin(self.key);
    }
}
