//! The first excess of a zone: a few requests above its room that the coin does not answer, because
//! a group of simultaneous requests is no overload.

use std::time::Duration;

use crate::law::parameters;

/// The requests that may still exceed the room of a zone before ratios follow. Fills up while the zone uses
/// less than its room.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FirstExcess {
    requests: f64,
}

impl FirstExcess {
    /// Accounts for a `span` with `offered` requests/s at a zone with room for `room` requests/s; 0
    /// if its bucket is overloaded.
    pub fn on_span(&mut self, room: f64, offered: f64, span: Duration) {
        let most = parameters::EXCESS_REQUESTS.min(parameters::EXCESS_TIME.as_secs_f64() * room);
        let requests = self.requests + (room - offered) * span.as_secs_f64();
        self.requests = requests.min(most).max(0.0);
    }

    /// Returns true while the zone may exceed its room.
    pub fn is_left(self) -> bool {
        self.requests > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_millis(100);

    #[test]
    fn excess_is_saved_below_the_room() {
        // room, offered, requests left after each span
        for (room, spans) in [
            (
                300.0,
                &[
                    (0.0, 30.0),
                    (0.0, 60.0),
                    (0.0, 60.0),
                    (600.0, 30.0),
                    (600.0, 0.0),
                ][..],
            ),
            (
                20.0,
                &[(0.0, 2.0), (0.0, 4.0), (20.0, 4.0), (9e9, 0.0), (10.0, 1.0)],
            ),
            (10_000.0, &[(0.0, 60.0), (10_200.0, 40.0), (10_401.0, 0.0)]),
        ] {
            let mut excess = FirstExcess::default();
            assert!(!excess.is_left(), "nothing was saved at the start");
            for (offered, left) in spans {
                excess.on_span(room, *offered, SPAN);
                assert!(
                    (excess.requests - left).abs() < 1e-9,
                    "{room} {offered}: {excess:?}"
                );
                assert_eq!(excess.is_left(), *left > 0.0);
            }
        }
    }

    #[test]
    fn small_room_saves_two_seconds_of_excess() {
        let mut excess = FirstExcess::default();
        (0..30).for_each(|_| excess.on_span(8.0, 0.0, SPAN));
        assert_eq!(excess.requests, 16.0);
    }

    #[test]
    fn overload_ends_the_excess_at_once() {
        let mut excess = FirstExcess::default();
        excess.on_span(1_000.0, 0.0, SPAN);
        assert!(excess.is_left());
        excess.on_span(0.0, 0.0, SPAN);
        assert!(!excess.is_left());
    }
}
