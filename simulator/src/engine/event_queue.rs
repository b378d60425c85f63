//! A queue of future events, ordered by time; events at one time keep the order in which they were planned.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::engine::clock::SimTime;

/// Future events.
#[derive(Debug)]
pub(crate) struct EventQueue<E> {
    heap: BinaryHeap<Reverse<Planned<E>>>,
    sequence: u64,
}

#[derive(Debug)]
struct Planned<E> {
    at: SimTime,
    sequence: u64,
    event: E,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0 }
    }
}

impl<E> EventQueue<E> {
    /// Plans an event. O(log n).
    pub(crate) fn plan(&mut self, at: SimTime, event: E) {
        self.heap.push(Reverse(Planned { at, sequence: self.sequence, event }));
        self.sequence += 1;
    }

    /// Removes and returns the next event at `until` or before. O(log n).
    pub(crate) fn next(&mut self, until: SimTime) -> Option<(SimTime, E)> {
        if self.heap.peek()?.0.at > until {
            return None;
        }
        self.heap.pop().map(|Reverse(planned)| (planned.at, planned.event))
    }
}

impl<E> PartialEq for Planned<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Planned<E> {}

impl<E> Ord for Planned<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl<E> PartialOrd for Planned<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_ordered_by_time_and_then_by_planning() {
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
