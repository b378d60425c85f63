//! The sides of keys in a canary that is divided by key, as the request path reads them.

use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_core::report::Side;

/// The side of each key, by id.
pub(super) struct KeySides(Box<[AtomicBool]>);

impl KeySides {
    /// Puts `keys_max` keys on the control side.
    pub(super) fn new(keys_max: usize) -> Self {
        Self((0..keys_max).map(|_| AtomicBool::new(false)).collect())
    }

    pub(super) fn set(&self, key: u32, side: Side) {
        if let Some(is_canary) = self.0.get(key as usize) {
            is_canary.store(side == Side::Canary, Ordering::Relaxed);
        }
    }

    pub(super) fn get(&self, key: u32) -> Side {
        let is_canary = self.0.get(key as usize).is_some_and(|is_canary| is_canary.load(Ordering::Relaxed));
        if is_canary { Side::Canary } else { Side::Control }
    }
}
