//! A queue of future events, ordered by time; events at one time keep the order of their planning.

use std::collections::BTreeMap;

use crate::engine::clock::SimTime;

#[derive(Debug)]
pub(crate) struct EventQueue<E> {
    events: BTreeMap<(SimTime, u64), E>,
    planned: u64,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self {
            events: BTreeMap::new(),
            planned: 0,
        }
    }
}

impl<E> EventQueue<E> {
    /// Plans an event. O(log n).
    pub(crate) fn plan(&mut self, at: SimTime, event: E) {
        self.events.insert((at, self.planned), event);
        self.planned += 1;
    }

    /// Removes and returns the next event at `until` or before. O(log n).
    pub(crate) fn next(&mut self, until: SimTime) -> Option<(SimTime, E)> {
        let entry = self
            .events
            .first_entry()
            .filter(|entry| entry.key().0 <= until)?;
        let ((at, _), event) = entry.remove_entry();
        Some((at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_ordered_by_time_then_planning() {
        let mut queue = EventQueue::default();
        for (at, event) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b'), (9, 'e')] {
            queue.plan(SimTime(at), event);
        }
        let early: Vec<char> =
            std::iter::from_fn(|| queue.next(SimTime(5)).map(|(_, event)| event)).collect();
        assert_eq!(early, ['a', 'b', 'c', 'd']);
        assert_eq!(queue.next(SimTime(8)), None);
        assert_eq!(queue.next(SimTime(9)), Some((SimTime(9), 'e')));
    }
}
