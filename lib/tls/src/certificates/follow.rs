//! Follows the files of certificates. Takes a set that is valid as a whole; of another set, whose three
//! files can be read, it takes only changed authorities.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::MissedTickBehavior;

use super::{Certificates, lock};
use crate::files::{Digests, Files, KEY_FILE};
use crate::generation::Generation;

const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of naming an unusable certificate in the log.
const UNUSABLE_AGAIN: Duration = Duration::from_secs(600);

/// Digests of the files, or the reason why they cannot be read.
type Seen = Result<Digests, String>;

#[derive(Default)]
pub(super) struct Looks {
    /// Result of the last read.
    last: Option<Seen>,
    /// Result that was refused and logged.
    refused: Option<Seen>,
    /// Generation and age that were noted last, and when; all but `Fresh` are logged.
    logged: Option<(u64, Age, SystemTime)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Age {
    Fresh,
    Ending,
    Untrusted,
    Expired,
}

impl Certificates {
    /// Reads the files once a second, takes each valid set, and logs a refused set once two reads found
    /// the same. Never ends.
    pub async fn follow(&self) {
        let mut interval = tokio::time::interval(LOOK_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let certificates = self.clone();
            // A disk may hang. A panic leaves the current set in place.
            let _ = tokio::task::spawn_blocking(move || certificates.look(SystemTime::now())).await;
        }
    }

    pub(super) fn look(&self, now: SystemTime) {
        let mut looks = lock(&self.shared.looks);
        self.take_change(&mut looks, now);
        self.log_age(&mut looks, now);
    }

    fn take_change(&self, looks: &mut Looks, now: SystemTime) {
        let current = self.current();
        let files = Files::read(self.directory());
        let seen = files
            .as_ref()
            .map(Files::digests)
            .map_err(ToString::to_string);
        let is_settled = looks.last.replace(seen.clone()).as_ref() == Some(&seen);
        if seen == Ok(current.digests) {
            if looks.refused.take().is_some() {
                lock(&self.shared.state).refused = None;
                tracing::info!(directory = %self.directory().display(), "certificate files are restored");
            }
            return;
        }
        let error = match files.map(|files| (current.next(&files, now), files)) {
            Ok((Ok(next), _)) => {
                looks.refused = None;
                self.warn_of_public_key();
                return self.replace(next);
            }
            // Files are replaced one by one: a set is judged when two looks found it the same.
            _ if !is_settled => return,
            Ok((Err(error), files)) => {
                let digests = files.digests();
                if digests.ca != current.digests.ca
                    && let Ok(next) = current.with_authorities(&files, now)
                {
                    let is_whole = next.digests == digests;
                    self.replace(next);
                    if is_whole {
                        looks.refused = None;
                        return;
                    }
                }
                error
            }
            Err(error) => error,
        };
        if looks.refused.as_ref() != Some(&seen) {
            looks.refused = Some(seen);
            let text = error.to_string();
            tracing::warn!(
                error = text,
                "changed certificate files are refused: the certificate and key read before stay in use"
            );
            let mut state = lock(&self.shared.state);
            state.failures += 1;
            state.refused = Some(text);
        }
    }

    fn replace(&self, next: Generation) {
        let (number, id) = (next.number, next.id.clone());
        let mut state = lock(&self.shared.state);
        state.current = Arc::new(next);
        state.refused = None;
        drop(state);
        self.shared.changes.send_replace(number);
        tracing::info!(generation = number, %id, "certificates renewed");
    }

    pub(super) fn warn_of_public_key(&self) {
        if self.is_key_public() {
            let path = self.directory().join(KEY_FILE);
            tracing::warn!(
                path = %path.display(),
                "private key is readable by all users of this machine: chmod 640 or 600"
            );
        }
    }

    /// Logs that a certificate is about to end, and, at intervals, that peers refuse it.
    pub(super) fn log_age(&self, looks: &mut Looks, now: SystemTime) {
        let (health, id) = (self.health(), self.id());
        let age = match () {
            () if health.is_expired(now) => Age::Expired,
            () if health.is_untrusted => Age::Untrusted,
            () if health.is_ending(now) => Age::Ending,
            () => Age::Fresh,
        };
        if let Some((generation, logged, at)) = looks.logged
            && (generation, logged) == (health.generation, age)
            // After the clock was set back, the interval starts anew.
            && (matches!(age, Age::Fresh | Age::Ending) || now.duration_since(at).is_ok_and(|since| since < UNUSABLE_AGAIN))
        {
            return;
        }
        looks.logged = Some((health.generation, age, now));
        let directory = self.directory().display();
        match age {
            Age::Fresh => {}
            Age::Ending => {
                let left = health.not_after.duration_since(now).unwrap_or_default();
                let left_s = left.as_secs();
                tracing::warn!(%directory, %id, left_s, "certificate expires soon: renew it");
            }
            Age::Untrusted => tracing::error!(
                %directory, %id,
                "no authority of ca.crt signs the own certificate, peers refuse it: issue one of a new authority"
            ),
            Age::Expired => {
                tracing::error!(%directory, %id, "certificate has expired, peers refuse it: renew it");
            }
        }
    }
}
