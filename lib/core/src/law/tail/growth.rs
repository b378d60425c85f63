//! The pace of establishing the names of a class, so that names that a caller invents and keeps
//! cannot replace the tenants before them immediately.

use std::time::Duration;

use crate::law::parameters;
use crate::quantity::MonoTime;

/// The established names of one class in one zone, and the room for more.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    since: MonoTime,
    /// True once a child has named names that were established before.
    was_told: bool,
    names: u32,
    room: f64,
}

impl Growth {
    /// The growth of a class that begins now.
    pub const fn new(now: MonoTime) -> Self {
        Self {
            since: now,
            was_told: false,
            names: 0,
            room: 1.0,
        }
    }

    /// The time since the first request of the class.
    pub fn age(&self, now: MonoTime) -> Duration {
        now.since(self.since)
    }

    /// The established names.
    pub const fn names(&self) -> u32 {
        self.names
    }

    /// Returns true in the class's first minute: every name that arrives then is established, unless the class is older
    /// than this process.
    pub fn is_young(&self, now: MonoTime) -> bool {
        !self.was_told && self.takes_claims(now)
    }

    /// Returns true while a child may name names that were established before this process began: a later claim would
    /// go around the room.
    pub fn takes_claims(&self, now: MonoTime) -> bool {
        self.age(now) < parameters::TENANT_YOUNG
    }

    /// Records that a child has named names that were established before.
    pub const fn on_claim(&mut self) {
        self.was_told = true;
    }

    /// Adds a name that needs no room.
    pub const fn on_arrival(&mut self) {
        self.names += 1;
    }

    /// Forgets an established name.
    pub const fn on_gone(&mut self) {
        self.names = self.names.saturating_sub(1);
    }

    /// Grows the room by the time since the last call: by as many names as there are in
    /// [`parameters::TENANT_GROWTH`]. At most an eighteenth of the names is saved up, or one name.
    pub fn on_time(&mut self, elapsed: Duration) {
        let names = f64::from(self.names);
        let more = names.max(parameters::TENANT_GROWTH_MIN as f64);
        let part = elapsed.as_secs_f64() / parameters::TENANT_GROWTH.as_secs_f64();
        self.room = (self.room + more * part).min((names / 18.0).max(1.0));
    }

    /// Takes room for a name. Returns false if there is none.
    pub fn take(&mut self) -> bool {
        let has_room = self.room >= 1.0;
        if has_room {
            self.room -= 1.0;
            self.names += 1;
        }
        has_room
    }
}
