//! The log of an expired certificate: a service without connections decides by what it holds for as long as it runs,
//! and its operators need to know why.

use std::time::{Duration, SystemTime};

use plimsoll_tls::Certificates;
use tokio::time::{MissedTickBehavior, interval};

/// The interval at which the certificate is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The interval at which an expired certificate is logged again.
const REPEAT_INTERVAL: Duration = Duration::from_secs(600);

/// An event to be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The certificate has expired, now or [`REPEAT_INTERVAL`] after it was last logged.
    Expired,
    /// The certificate is valid again.
    Renewed,
}

/// The state of the log.
#[derive(Debug, Default)]
struct ExpiryLog {
    /// The time at which an expired certificate was logged; `None` while the certificate is valid.
    logged: Option<SystemTime>,
}

impl ExpiryLog {
    fn on_check(&mut self, now: SystemTime, not_after: SystemTime) -> Option<Event> {
        if now < not_after {
            return self.logged.take().map(|_| Event::Renewed);
        }
        // A clock that was set back begins a new interval.
        let is_recent = |logged| now.duration_since(logged).is_ok_and(|age| age < REPEAT_INTERVAL);
        if self.logged.is_some_and(is_recent) {
            return None;
        }
        self.logged = Some(now);
        Some(Event::Expired)
    }
}

/// Follows the files of certificates, and logs when the one in use expires and when it is renewed. Never ends.
pub(super) async fn follow(certificates: &Certificates) {
    tokio::join!(certificates.follow(), log(certificates));
}

async fn log(certificates: &Certificates) {
    let mut ticks = interval(CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut log = ExpiryLog::default();
    loop {
        ticks.tick().await;
        let health = certificates.health();
        let directory = certificates.directory().display();
        match log.on_check(SystemTime::now(), health.not_after) {
            Some(Event::Expired) => tracing::error!(
                %directory,
                "certificate of this service expired: aggregators refuse it, and the directives held stay in force; renew \
                 the files in the directory, which are read again once a second"
            ),
            Some(Event::Renewed) => tracing::info!(%directory, "certificate of this service renewed"),
            None => {}
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;

    #[test]
    fn expired_certificate_is_logged_once_an_interval_and_its_renewal_once() {
        let at = |secs: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
        let mut log = ExpiryLog::default();
        let table = [
            (999, 1_000, None),
            (1_000, 1_000, Some(Event::Expired)),
            (1_001, 1_000, None),
            (1_599, 1_000, None),
            (1_600, 1_000, Some(Event::Expired)),
            (2_199, 1_000, None),
            (2_200, 1_000, Some(Event::Expired)),
            // The clock is set back by less than the certificate is expired.
            (1_100, 1_000, Some(Event::Expired)),
            (1_101, 1_000, None),
            (1_102, 9_000, Some(Event::Renewed)),
            (1_103, 9_000, None),
            (9_000, 9_000, Some(Event::Expired)),
        ];
        for (now, not_after, event) in table {
            assert_eq!(log.on_check(at(now), at(not_after)), event, "at {now} s");
        }
    }
}
