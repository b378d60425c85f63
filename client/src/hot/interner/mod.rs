//! Maps names to dense ids, and reuses the ids of idle names. The request path neither waits, allocates nor
//! makes a system call here.
//!
//! Everything is allocated at the start. A lookup only reads: the hash of a name leads to a
//! [slot](slots::Slots) with its fingerprint, and the slot to its id. A writer holds a lock and
//! publishes a slot with one release store. The request path never waits for the lock.
//!
//! **The life of an id.** It is unused until a new name takes it. An idle name is
//! [tombstoned](Interner::tombstone): lookups miss it, and inserting it again revives it with its
//! id. Once no thread can still count for the id, the owner of the table
//! [releases](Interner::release) it for another name; until one takes it, the old name can still be
//! revived. So a name never has two ids at a time.

pub(crate) mod eviction;
pub(crate) mod frequency;
mod ids;
pub(crate) mod key_registry;
pub(crate) mod log;
pub(crate) mod pin;
mod slots;
#[cfg(not(feature = "loom"))]
#[cfg(test)]
mod tests;

use std::hash::Hasher;
use std::sync::TryLockError;

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;
use plimsoll_core::names::{NAME_BYTES_MAX, Planned, check_name, check_tenant, own_name};

use crate::hot::directive_word::{DirectiveWord, IDS_MAX, KeyWord};
use crate::hot::interner::frequency::{Sketch, WaitingCounts};
use crate::hot::sync::{AtomicU32, Mutex, MutexGuard, Ordering, zeroed};

use ids::{Ids, State};
use log::Log;
use slots::{Found, Slots};

/// The bit of an owner that the hashes of names with escapes have. Callers' texts are looked up as they are, and must
/// not find a name that another text is encoded to.
const ESCAPED: u32 = 1 << 31;

/// Number of requests in about a second that give a name an id while fewer than half of the ids are
/// free.
const OFTEN: u32 = 8;

/// An interner of (owner, name) pairs with a fixed number of ids. The fields that a lookup reads come first, in
/// one cache line.
#[repr(C, align(64))]
pub(crate) struct Interner {
    slots: Slots,
    seed: u64,
    /// The secret of the hash. Callers who know it could choose names that collide.
    secret: SharedSeed,
    /// By id: its slot.
    slot_of: Vec<AtomicU32>,
    /// By id: its owner, which for a key is its bucket.
    owner_of: Vec<AtomicU32>,
    /// By id: the number of pins that protect it from eviction.
    pins: Vec<AtomicU32>,
    /// The number of ids that are unused or released.
    free: AtomicU32,
    /// Free ids that names which arrive in requests must leave to names that the service declares or
    /// a directive brings.
    reserved: u32,
    sketch: Sketch,
    ids: Mutex<Ids>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    Found(KeyWord),
    /// The name is new, and another thread holds the lock, or the log of new names has no room.
    Busy,
    /// Ids are scarce, and the name is not frequent enough.
    Rare,
    /// No id or no slot is free.
    Full,
    Invalid,
}

/// The number of ids in all and of free ids, both without the reserved ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capacity {
    pub(crate) ids: u32,
    /// Unused ids, and released ids with a name that can still be revived.
    pub(crate) free: u32,
}

// === Lookups ===

impl Interner {
    /// Makes an interner for `ids` names, at most [`IDS_MAX`]. `seed` must differ between processes, so that
    /// callers cannot choose names that collide.
    pub(crate) fn new(ids: usize, seed: u64) -> Self {
        let ids = ids.clamp(1, IDS_MAX);
        Self {
            slots: Slots::new(ids),
            seed,
            secret: SharedSeed::from_u64(seed),
            slot_of: zeroed(ids),
            owner_of: zeroed(ids),
            pins: zeroed(ids),
            free: AtomicU32::new(ids as u32),
            reserved: 0,
            sketch: frequency::sketch_for(ids),
            ids: Mutex::new(Ids::new(ids as u32)),
        }
    }

    /// Keeps so many ids for names that are entered off the request path.
    #[must_use]
    pub(crate) fn reserving(self, reserved: usize) -> Self {
        Self {
            reserved: u32::try_from(reserved).unwrap_or(u32::MAX),
            ..self
        }
    }

    /// Looks up what a caller sent under `owner`, on the request path. A new name gets an id
    /// immediately while half of the ids are free, and after that only if it is frequent. A name
    /// that is found needs no validation: inserted names are valid, and names with escapes are not
    /// found.
    #[inline]
    pub(crate) fn look_up(&self, owner: u32, name: &str) -> Lookup {
        if name.len() > NAME_BYTES_MAX {
            return Lookup::Invalid;
        }
        let hash = self.hash(owner, name);
        match self.slots.find(hash) {
            Some(word) => Lookup::Found(word),
            None => self.insert_plain(hash, owner, name),
        }
    }

    /// Looks up a valid name, which may have escapes, like [`look_up`](Self::look_up).
    pub(crate) fn look_up_name(&self, owner: u32, name: &str) -> Lookup {
        let hash = self.hash_of_name(owner, name);
        self.slots
            .find(hash)
            .map_or_else(|| self.insert_new(hash, owner, name), Lookup::Found)
    }

    /// Looks up the valid own name of a tenant like [`look_up`](Self::look_up). A new name is entered with its plan,
    /// which must be valid, too.
    pub(crate) fn look_up_in_plan(&self, owner: u32, name: &str, plan: &str) -> Lookup {
        let hash = self.hash_of_name(owner, name);
        if let Some(word) = self.slots.find(hash) {
            return Lookup::Found(word);
        }
        Planned::of(name, plan).map_or(Lookup::Invalid, |name| self.insert_new(hash, owner, &name))
    }

    /// Hashes a valid name. A tenant has one key, whatever its plan.
    fn hash_of_name(&self, owner: u32, name: &str) -> u64 {
        let name = own_name(name);
        self.hash(
            if name.contains('%') {
                owner | ESCAPED
            } else {
                owner
            },
            name,
        )
    }

    /// Hashes a name. The owner is mixed into the seed, which costs one multiplication next to the
    /// loads of the name.
    #[inline(always)]
    fn hash(&self, owner: u32, name: &str) -> u64 {
        let seed = self.seed ^ u64::from(owner).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut hasher = FoldHasher::with_seed(seed, &self.secret);
        // foldhash is inlined for at most 16 bytes, and a call for more: two halves are cheaper than the call.
        match name.as_bytes() {
            name if (17..=32).contains(&name.len()) => {
                let (head, tail) = name.split_at(name.len() / 2);
                hasher.write(head);
                hasher.write(tail);
            }
            name => hasher.write(name),
        }
        hasher.finish()
    }

    #[cold]
    #[inline(never)]
    fn insert_plain(&self, hash: u64, owner: u32, name: &str) -> Lookup {
        if check_name(name).is_ok() {
            self.insert_new(hash, owner, name)
        } else {
            Lookup::Invalid
        }
    }

    #[cold]
    #[inline(never)]
    fn insert_new(&self, hash: u64, owner: u32, name: &str) -> Lookup {
        let Capacity { ids, free } = self.capacity();
        let is_scarce = free < ids.div_ceil(2);
        // A waiting name is counted even when no id is free, to decide which name gets the next one.
        if is_scarce && self.sketch.add(hash, 1) < OFTEN {
            return Lookup::Rare;
        }
        if free == 0 {
            return Lookup::Full;
        }
        let Some(mut ids) = self.try_lock() else {
            return Lookup::Busy;
        };
        if !ids.log.has_room(name) {
            return Lookup::Busy;
        }
        let found = self.insert(&mut ids, hash, owner, name);
        if is_scarce && matches!(found, Lookup::Found(_)) {
            self.sketch.remove(hash);
        }
        found
    }

    /// Returns the id of `name`, off the request path; a new name gets one as long as any is free. `None`
    /// when none is free, or the name is invalid.
    pub(crate) fn intern(&self, owner: u32, name: &str) -> Option<u32> {
        check_tenant(name).ok()?;
        let hash = self.hash_of_name(owner, name);
        let known = self.slots.find(hash).map(KeyWord::id);
        known.or_else(|| self.insert(&mut self.lock(), hash, owner, name).id())
    }

    pub(crate) fn known(&self, owner: u32, name: &str) -> Option<KeyWord> {
        self.slots.find(self.hash_of_name(owner, name))
    }

    /// Interns like [`intern`](Self::intern), but while fewer than half of the ids are free, finds existing
    /// names only: for names that may never receive a request.
    pub(crate) fn intern_if_roomy(&self, owner: u32, name: &str) -> Option<u32> {
        let Capacity { ids, free } = self.capacity();
        if free >= ids.div_ceil(2) {
            self.intern(owner, name)
        } else {
            Some(self.known(owner, name)?.id())
        }
    }

    pub(crate) fn owner_of(&self, id: u32) -> u32 {
        self.owner_of
            .get(id as usize)
            .map_or(0, |owner| owner.load(Ordering::Relaxed))
    }

    pub(crate) fn slot_of(&self, id: u32) -> u32 {
        self.slot_of
            .get(id as usize)
            .map_or(0, |slot| slot.load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn word(&self, slot: u32) -> KeyWord {
        self.slots.word(slot)
    }

    pub(crate) fn publish(&self, id: u32, directive: DirectiveWord) {
        debug_assert!(
            (id as usize) < self.slot_of.len(),
            "id {id} was never assigned"
        );
        self.slots
            .set_word(self.slot_of(id), KeyWord::new(id, directive));
    }

    pub(crate) fn capacity(&self) -> Capacity {
        let without_reserved = |ids: u32| ids.saturating_sub(self.reserved);
        let free = self.free.load(Ordering::Relaxed);
        Capacity {
            ids: without_reserved(self.slot_of.len() as u32),
            free: without_reserved(free),
        }
    }

    /// Moves the number of free ids, under the lock.
    fn move_free(&self, by: i32) {
        self.free.store(
            self.free.load(Ordering::Relaxed).saturating_add_signed(by),
            Ordering::Relaxed,
        );
    }

    /// Halves the counts of the names that wait for an id, once a second; returns the counts before. Off the
    /// request path; linear in the ids.
    pub(crate) fn decay_waiting(&self) -> WaitingCounts {
        frequency::decay(&self.sketch)
    }
}

impl Lookup {
    pub(crate) fn id(self) -> Option<u32> {
        if let Self::Found(word) = self {
            Some(word.id())
        } else {
            None
        }
    }
}

// === Changes under the lock ===

impl Interner {
    fn try_lock(&self) -> Option<MutexGuard<'_, Ids>> {
        match self.ids.try_lock() {
            Ok(ids) => Some(ids),
            Err(TryLockError::Poisoned(ids)) => Some(ids.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Waits for the lock, off the request path. Yields instead of sleeping, so that the request path never
    /// has to wake a waiting thread, which is a system call.
    fn lock(&self) -> MutexGuard<'_, Ids> {
        loop {
            if let Some(ids) = self.try_lock() {
                return ids;
            }
            #[cfg(feature = "loom")]
            ::loom::thread::yield_now();
            #[cfg(not(feature = "loom"))]
            std::thread::yield_now();
        }
    }

    /// Finds, revives or inserts a name, under the lock.
    fn insert(&self, ids: &mut Ids, hash: u64, owner: u32, name: &str) -> Lookup {
        let slot = match self.slots.place(hash) {
            Found::Live(slot) => return Lookup::Found(self.word(slot)),
            Found::Tombstone(slot) => {
                let word = self.word(slot);
                let was_free = ids.revive(word.id(), owner, name);
                self.move_free(-i32::from(was_free));
                self.slots.set_live(slot, true);
                return Lookup::Found(word);
            }
            Found::Absent(slot) => slot,
            Found::NoRoom => return Lookup::Full,
        };
        let Some((id, was_used)) = ids.next() else {
            return Lookup::Full;
        };
        let word = KeyWord::new(id, DirectiveWord::NOTHING);
        if was_used {
            self.slots.vacate(self.slot_of(id));
        }
        if let (Some(slot_of), Some(owner_of)) = (
            self.slot_of.get(id as usize),
            self.owner_of.get(id as usize),
        ) {
            owner_of.store(owner, Ordering::Relaxed);
            slot_of.store(slot, Ordering::Release);
        }
        self.slots.fill(slot, hash, word);
        ids.assign(id, owner, name);
        self.move_free(-1);
        Lookup::Found(word)
    }

    /// Tombstones a name: lookups miss it; inserting it again before its id is reused revives it. Returns
    /// false for a pinned name. Off the request path.
    pub(crate) fn tombstone(&self, id: u32) -> bool {
        let mut ids = self.lock();
        let is_pinned = self
            .pins
            .get(id as usize)
            .is_none_or(|pins| pins.load(Ordering::Acquire) > 0);
        let is_evictable = ids.state(id) == Some(State::Assigned) && !is_pinned;
        if is_evictable {
            ids.tombstone(id);
            self.slots.set_live(self.slot_of(id), false);
        }
        is_evictable
    }

    /// Lets another name have the id of a tombstoned one. Returns false when the name was revived. Off the
    /// request path.
    ///
    /// A thread that found the name before it was tombstoned may still count for the id. So the tombstone
    /// must be older than any decision takes; a thread that was suspended in a decision for longer counts one
    /// request for another name.
    pub(crate) fn release(&self, id: u32) -> bool {
        let mut ids = self.lock();
        let is_tombstone = ids.state(id) == Some(State::Tombstoned);
        if is_tombstone {
            ids.release(id);
            self.move_free(1);
        }
        is_tombstone
    }

    /// Returns the names that were inserted or revived since the last call. Off the request path, and one
    /// caller at a time, which [returns](Self::return_log) the log before the next call.
    pub(crate) fn take_log(&self) -> Log {
        self.lock().take_log()
    }

    pub(crate) fn return_log(&self, log: Log) {
        self.lock().return_log(log);
    }
}
