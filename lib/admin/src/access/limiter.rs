//! The limit of failed logins of a source, at admin ports, at the sidecar's HTTP port and at the quota server's Redis
//! port, and of log lines about refusals. A valid token is never limited.

use std::collections::HashMap;
use std::time::Duration;

use plimsoll_core::exchange::Source;
use plimsoll_core::quantity::MonoTime;

/// Failed attempts of one source that are answered without a wait.
const ATTEMPTS_BURST: u32 = 10;
/// Time that restores one attempt.
const ATTEMPT_EVERY: Duration = Duration::from_secs(1);
const SOURCES_MAX: usize = 4_096;
/// Log lines written without a wait, and the time that restores one.
const LINES_BURST: u32 = 50;
const LINE_EVERY: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub(super) struct Limiter {
    sources: HashMap<Source, Allowance>,
    /// Shared by the sources for which there is no room.
    others: Allowance,
    /// Log lines of all sources.
    lines: Allowance,
}

#[derive(Clone, Copy, Debug, Default)]
struct Allowance {
    /// Time when the whole burst is available again. Each use moves it on by one interval.
    whole_at: MonoTime,
}

impl Limiter {
    /// Takes one failed attempt of a source.
    ///
    /// # Errors
    /// If the source has failed too often: the time after which it may try again.
    pub(super) fn attempt(&mut self, now: MonoTime, source: Source) -> Result<(), Duration> {
        let is_known = self.sources.contains_key(&source);
        if self.sources.len() >= SOURCES_MAX && !is_known {
            self.sources.retain(|_, allowance| allowance.whole_at > now);
        }
        let allowance = if is_known || self.sources.len() < SOURCES_MAX {
            self.sources.entry(source).or_default()
        } else {
            &mut self.others
        };
        allowance.take(now, ATTEMPTS_BURST, ATTEMPT_EVERY)
    }

    /// Returns true if one more refusal may be logged.
    pub(super) fn may_log(&mut self, now: MonoTime) -> bool {
        self.lines.take(now, LINES_BURST, LINE_EVERY).is_ok()
    }
}

impl Allowance {
    /// Takes one use of a burst that is restored by one use in each interval `every`.
    ///
    /// # Errors
    /// If the burst is used up: the time until the next use.
    fn take(&mut self, now: MonoTime, burst: u32, every: Duration) -> Result<(), Duration> {
        let owed = self.whole_at.since(now);
        let owed_max = every * (burst - 1);
        if owed > owed_max {
            return Err(owed - owed_max);
        }
        self.whole_at = now + owed + every;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use super::*;

    fn at(ms: u64) -> MonoTime {
        MonoTime::from_elapsed(Duration::from_millis(ms))
    }

    fn source(number: u32) -> Source {
        Source::from(IpAddr::from(Ipv4Addr::from_bits(number)))
    }

    fn answered(limiter: &mut Limiter, now: MonoTime, source: Source, attempts: u32) -> u32 {
        (0..attempts)
            .filter(|_| limiter.attempt(now, source).is_ok())
            .count() as u32
    }

    #[test]
    fn source_bursts_then_attempts_once_a_second() {
        let mut limiter = Limiter::default();
        assert_eq!(
            answered(&mut limiter, at(0), source(1), 1_000),
            ATTEMPTS_BURST
        );
        assert_eq!(limiter.attempt(at(0), source(1)), Err(ATTEMPT_EVERY));
        assert_eq!(
            limiter.attempt(at(999), source(1)),
            Err(Duration::from_millis(1))
        );
        assert_eq!(answered(&mut limiter, at(1_000), source(1), 5), 1);
        assert_eq!(
            answered(&mut limiter, at(60_000), source(1), 1_000),
            ATTEMPTS_BURST
        );
        assert_eq!(
            answered(&mut limiter, at(60_000), source(2), 3),
            3,
            "another source is not limited"
        );
    }

    #[test]
    fn ipv6_network_shares_one_attempt_allowance() {
        let mut limiter = Limiter::default();
        let host = |host| {
            Source::from(IpAddr::from(Ipv6Addr::new(
                0x2001, 0xdb8, 0, 1, 0, 0, 0, host,
            )))
        };
        let answered = (0..100)
            .filter(|number| limiter.attempt(at(0), host(*number)).is_ok())
            .count();
        assert_eq!(answered, ATTEMPTS_BURST as usize);
    }

    #[test]
    fn surplus_sources_share_one_allowance() {
        let mut limiter = Limiter::default();
        for number in 0..SOURCES_MAX as u32 {
            assert!(limiter.attempt(at(0), source(number)).is_ok());
        }
        let others =
            (0..1_000).filter(|number| limiter.attempt(at(0), source(1 << 20 | number)).is_ok());
        assert_eq!(others.count(), ATTEMPTS_BURST as usize);
        assert_eq!(limiter.sources.len(), SOURCES_MAX);
        assert_eq!(
            answered(&mut limiter, at(0), source(1), 100),
            ATTEMPTS_BURST - 1,
            "those keep their own"
        );
        assert_eq!(
            answered(&mut limiter, at(1_000), source(1 << 20), 100),
            ATTEMPTS_BURST
        );
        assert_eq!(
            limiter.sources.len(),
            2,
            "sources without failed attempts are forgotten"
        );
    }

    #[test]
    fn lines_of_all_sources_are_bounded() {
        let mut limiter = Limiter::default();
        let lines = (0..10_000).filter(|_| limiter.may_log(at(0))).count();
        assert_eq!(lines, LINES_BURST as usize);
        assert!(!limiter.may_log(at(199)));
        assert!(limiter.may_log(at(200)));
    }
}
