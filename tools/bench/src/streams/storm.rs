//! Reconnection storms: at a signal every stream breaks, as in a network failure, and all clients
//! reconnect immediately.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
pub(crate) struct Storm(Mutex<Latest>);

#[derive(Clone, Copy, Debug, Default)]
struct Latest {
    number: u64,
    /// Time when the clients were free to connect, and their number.
    began: Option<(Instant, usize)>,
    took: Option<Duration>,
}

impl Storm {
    /// Begins the next storm of this many clients. None of them is connected.
    pub(crate) fn begin(&self, clients: usize, now: Instant) {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *latest = Latest {
            number: latest.number + 1,
            began: Some((now, clients)),
            took: None,
        };
    }

    pub(crate) fn on_connected(&self, connected: usize, now: Instant) {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((began, clients)) = latest.began
            && connected == clients
        {
            latest
                .took
                .get_or_insert(now.saturating_duration_since(began));
        }
    }

    /// Number of storms so far, and time until every client of the latest was connected again.
    pub(crate) fn figures(&self) -> (u64, Option<Duration>) {
        let latest = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (latest.number, latest.took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storm_ends_with_the_first_full_connection() {
        let (storm, at) = (Storm::default(), Instant::now());
        storm.on_connected(2, at);
        assert_eq!(storm.figures(), (0, None));
        storm.begin(2, at);
        storm.on_connected(1, at + Duration::from_secs(1));
        assert_eq!(storm.figures(), (1, None));
        [3, 9]
            .into_iter()
            .for_each(|seconds| storm.on_connected(2, at + Duration::from_secs(seconds)));
        assert_eq!(storm.figures(), (1, Some(Duration::from_secs(3))));
        storm.begin(2, at);
        assert_eq!(storm.figures(), (2, None));
    }
}
