//! The log of an interner: the names that were inserted or revived, in order, until the subscription reads
//! them.

/// The names that fit the log without an allocation, at most. It is read for each report, every 100 ms to 1 s, so this
/// is room for 40,000 to 4,000 new names a second. Further names count as their class until the next report.
const NAMES_MAX: usize = 4_096;
const NAMES_MIN: usize = 16;
const NAME_BYTES: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    /// This id has a new name: the id was unused, or its former name was released.
    Inserted {
        id: u32,
        owner: u32,
        name: &'a str,
    },
    Revived(u32),
}

/// Events in order, with a room that is allocated at the start.
#[derive(Default)]
pub(crate) struct Log {
    events: Vec<Logged>,
    names: String,
}

/// An event. The bytes of an inserted name follow the bytes of the names before.
#[derive(Clone, Copy)]
enum Logged {
    Inserted { id: u32, owner: u32, bytes: u8 },
    Revived(u32),
}

impl Log {
    pub(crate) fn new(ids: usize) -> Self {
        let names = ids.clamp(NAMES_MIN, NAMES_MAX);
        Self {
            events: Vec::with_capacity(names),
            names: String::with_capacity(names * NAME_BYTES),
        }
    }

    pub(crate) fn has_room(&self, name: &str) -> bool {
        self.events.len() < self.events.capacity()
            && name.len() <= self.names.capacity() - self.names.len()
    }

    pub(crate) fn insert(&mut self, id: u32, owner: u32, name: &str) {
        let bytes = u8::try_from(name.len());
        debug_assert!(bytes.is_ok(), "names have at most 128 bytes");
        if let Ok(bytes) = bytes {
            self.names.push_str(name);
            self.events.push(Logged::Inserted { id, owner, bytes });
        }
    }

    pub(crate) fn revive(&mut self, id: u32) {
        self.events.push(Logged::Revived(id));
    }

    pub(crate) fn events(&self) -> impl Iterator<Item = Event<'_>> {
        let mut rest = self.names.as_str();
        self.events.iter().map(move |event| match *event {
            Logged::Inserted { id, owner, bytes } => {
                let (name, others) = rest
                    .split_at_checked(usize::from(bytes))
                    .unwrap_or_default();
                rest = others;
                Event::Inserted { id, owner, name }
            }
            Logged::Revived(id) => Event::Revived(id),
        })
    }

    pub(crate) fn inserted(&self) -> impl Iterator<Item = (u32, u32, &str)> {
        self.events().filter_map(|event| match event {
            Event::Inserted { id, owner, name } => Some((id, owner, name)),
            Event::Revived(_) => None,
        })
    }

    /// Removes all events, and keeps the room.
    pub(crate) fn clear(&mut self) {
        self.events.clear();
        self.names.clear();
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_in_order() {
        let mut log = Log::new(1);
        log.insert(0, 7, "acme");
        log.revive(4);
        log.insert(1, 8, "globex");
        let [acme, globex] = [(0, 7, "acme"), (1, 8, "globex")]
            .map(|(id, owner, name)| Event::Inserted { id, owner, name });
        assert_eq!(
            log.events().collect::<Vec<_>>(),
            [acme, Event::Revived(4), globex]
        );
        (3..NAMES_MIN as u32).for_each(|id| log.revive(id));
        assert!(!log.has_room("x"));
        log.clear();
        assert_eq!(log.events().count(), 0);
        assert!(log.has_room("x"));
    }
}
