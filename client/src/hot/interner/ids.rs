//! The ids of an interner: which are assigned, which wait for another name, and the log of their changes.
//! Only the holder of the interner's lock reads or writes it.

use std::collections::VecDeque;

use plimsoll_core::names::own_name;

use super::log::Log;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Assigned,
    Tombstoned,
    /// Its name is tombstoned, and can be revived until another name takes the id.
    Released,
}

/// Every id that was ever assigned. All room is allocated at the start.
pub(super) struct Ids {
    max: u32,
    /// By id.
    states: Vec<State>,
    /// By id: true while it is in `released`.
    queued: Vec<bool>,
    /// Released ids, in order; some may have been revived since.
    released: VecDeque<u32>,
    pub(super) log: Log,
    spare: Option<Log>,
}

impl Ids {
    pub(super) fn new(max: u32) -> Self {
        let room = max as usize;
        Self {
            max,
            states: Vec::with_capacity(room),
            queued: Vec::with_capacity(room),
            released: VecDeque::with_capacity(room),
            log: Log::new(room),
            spare: Some(Log::new(room)),
        }
    }

    pub(super) fn state(&self, id: u32) -> Option<State> {
        self.states.get(id as usize).copied()
    }

    /// Returns the id for the next new name, and true if another name had it before: unused ids in order, and
    /// then released ones, the first released first.
    pub(super) fn next(&mut self) -> Option<(u32, bool)> {
        let unused = self.states.len() as u32;
        if unused < self.max {
            return Some((unused, false));
        }
        while let Some(id) = self.released.front().copied() {
            if self.state(id) == Some(State::Released) {
                return Some((id, true));
            }
            self.dequeue();
        }
        None
    }

    fn dequeue(&mut self) {
        let id = self.released.pop_front();
        if let Some(queued) = id.and_then(|id| self.queued.get_mut(id as usize)) {
            *queued = false;
        }
    }

    pub(super) fn assign(&mut self, id: u32, owner: u32, name: &str) {
        if let Some(state) = self.states.get_mut(id as usize) {
            *state = State::Assigned;
            self.dequeue();
        } else {
            self.states.push(State::Assigned);
            self.queued.push(false);
        }
        self.log.insert(id, owner, name);
    }

    /// Assigns an id to its former name again. Returns true if the id was released. A tenant may return with another
    /// plan then, and is entered anew.
    pub(super) fn revive(&mut self, id: u32, owner: u32, name: &str) -> bool {
        let was_released = self.state(id) == Some(State::Released);
        if was_released && own_name(name) != name {
            self.log.insert(id, owner, name);
        } else {
            self.log.revive(id);
        }
        let Some(state) = self.states.get_mut(id as usize) else {
            return false;
        };
        std::mem::replace(state, State::Assigned) == State::Released
    }

    pub(super) fn tombstone(&mut self, id: u32) {
        if let Some(state) = self.states.get_mut(id as usize) {
            *state = State::Tombstoned;
        }
    }

    /// Frees the id of a tombstoned name for another name.
    pub(super) fn release(&mut self, id: u32) {
        let at = id as usize;
        if let (Some(state), Some(queued)) = (self.states.get_mut(at), self.queued.get_mut(at)) {
            *state = State::Released;
            if !std::mem::replace(queued, true) {
                self.released.push_back(id);
            }
        }
    }

    pub(super) fn take_log(&mut self) -> Log {
        std::mem::replace(&mut self.log, self.spare.take().unwrap_or_default())
    }

    /// Takes back a log that was read, for the next [`take_log`](Self::take_log).
    pub(super) fn return_log(&mut self, mut log: Log) {
        log.clear();
        self.spare = Some(log);
    }
}
