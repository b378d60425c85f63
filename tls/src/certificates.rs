//! The certificates of a process, which follow their files: a set that is whole is taken, any other leaves the set
//! before in force.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use plimsoll_core::exchange::PeerId;
use rustls::{ClientConfig, ServerConfig};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::error::CertificatesError;
use crate::files::Files;
use crate::generation::Generation;

const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The part of a certificate's validity, as a divisor, that is left when the log warns. Issuers renew before: at a
/// third (cert-manager) or at half (SPIRE).
const ENDING_PART: u32 = 4;

/// The certificates of this process: `tls.crt`, `tls.key` and `ca.crt` of one directory. Clones share one set.
#[derive(Clone)]
pub struct Certificates {
    shared: Arc<Shared>,
}

/// The state of the certificates of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The begin of the validity of the certificate in force.
    pub not_before: SystemTime,
    /// Its end.
    pub not_after: SystemTime,
    /// The number of sets that were in force, this one included.
    pub generation: u64,
    /// The number of changes of the files that were refused.
    pub failures: u64,
    /// The reason why the files are refused now; the set before is in force.
    pub refused: Option<String>,
}

impl Health {
    /// Returns true if the validity of the certificate in force is over.
    pub fn is_expired(&self, now: SystemTime) -> bool {
        now > self.not_after
    }
}

struct Shared {
    directory: PathBuf,
    state: Mutex<State>,
    /// Held while the files are read, which may take long.
    looks: Mutex<Looks>,
    changes: watch::Sender<u64>,
}

struct State {
    current: Arc<Generation>,
    failures: u64,
    refused: Option<String>,
}

/// A look at the files: the digest of their content, or the reason why they cannot be read.
type Seen = Result<[u8; 32], String>;

#[derive(Default)]
struct Looks {
    last: Option<Seen>,
    /// The look that was refused and logged.
    refused: Option<Seen>,
    /// The generation and the age that were logged.
    logged: Option<(u64, Age)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Age {
    Fresh,
    Ending,
    Expired,
}

impl Certificates {
    /// Reads the files. A certificate that has expired is taken, and logged: its renewal may be on the way.
    ///
    /// # Errors
    /// If the files are not one whole set.
    pub fn open(directory: &Path) -> Result<Self, CertificatesError> {
        let now = SystemTime::now();
        let files = Files::read(directory)?;
        let current = Arc::new(Generation::first(&files, now)?);
        files.warn_of_readable_key();
        let (changes, _) = watch::channel(current.number);
        let state = Mutex::new(State { current, failures: 0, refused: None });
        let shared = Shared { directory: directory.to_owned(), state, looks: Mutex::default(), changes };
        let certificates = Self { shared: Arc::new(shared) };
        certificates.log_age(&mut lock(&certificates.shared.looks), now);
        Ok(certificates)
    }

    /// Returns the identity of this process, which never changes.
    pub fn id(&self) -> PeerId {
        self.current().id.clone()
    }

    /// Returns the directory of the files.
    pub fn directory(&self) -> &Path {
        &self.shared.directory
    }

    /// Returns the state for metrics and health.
    pub fn health(&self) -> Health {
        let state = lock(&self.shared.state);
        let validity = state.current.validity;
        Health {
            not_before: validity.not_before,
            not_after: validity.not_after,
            generation: state.current.number,
            failures: state.failures,
            refused: state.refused.clone(),
        }
    }

    /// Follows the files: looks at them once a second, takes each whole set, and logs each that is refused. Never
    /// ends.
    pub async fn follow(&self) {
        let mut interval = tokio::time::interval(LOOK_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let certificates = self.clone();
            // A disk may hang. A look that panicked leaves the set in force.
            let _ = tokio::task::spawn_blocking(move || certificates.look(SystemTime::now())).await;
        }
    }

    /// Returns a receiver of the number of the generation in force.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }

    /// Returns the configuration of a gRPC port: TLS 1.3 with certificates of clients, and `h2`.
    pub fn mutual_server(&self) -> Arc<ServerConfig> {
        self.current().mutual_server.clone()
    }

    /// Returns the configuration of an admin port: TLS 1.3 without certificates of clients, and `http/1.1`.
    pub fn admin_server(&self) -> Arc<ServerConfig> {
        self.current().admin_server.clone()
    }

    /// Returns the configuration of connections to a parent: TLS 1.3 with the own certificate, and `h2`. Sessions are
    /// resumed within one generation.
    pub fn child(&self) -> Arc<ClientConfig> {
        self.current().child.clone()
    }

    fn current(&self) -> Arc<Generation> {
        lock(&self.shared.state).current.clone()
    }

    fn look(&self, now: SystemTime) {
        let mut looks = lock(&self.shared.looks);
        self.take_change(&mut looks, now);
        self.log_age(&mut looks, now);
    }

    fn take_change(&self, looks: &mut Looks, now: SystemTime) {
        let current = self.current();
        let files = Files::read(self.directory());
        let seen = files.as_ref().map(Files::digest).map_err(ToString::to_string);
        let is_settled = looks.last.replace(seen.clone()).as_ref() == Some(&seen);
        if seen == Ok(current.digest) {
            if looks.refused.take().is_some() {
                lock(&self.shared.state).refused = None;
                tracing::info!(directory = %self.directory().display(), "certificate files are restored");
            }
            return;
        }
        match files.and_then(|files| Ok((current.next(&files, now)?, files))) {
            Ok((next, files)) => {
                looks.refused = None;
                files.warn_of_readable_key();
                self.replace(next);
            }
            // Files are replaced one after the other: a set is refused when two looks have seen it.
            Err(error) if is_settled && looks.refused.as_ref() != Some(&seen) => {
                looks.refused = Some(seen);
                let text = error.to_string();
                tracing::warn!(
                    error = text,
                    "changed certificate files are refused, the set before is in force"
                );
                let mut state = lock(&self.shared.state);
                state.failures += 1;
                state.refused = Some(text);
            }
            Err(_) => {}
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

    /// Logs once for each generation that its end is near, and that it has come.
    fn log_age(&self, looks: &mut Looks, now: SystemTime) {
        let current = self.current();
        let left = current.validity.not_after.duration_since(now).ok();
        let lifetime =
            current.validity.not_after.duration_since(current.validity.not_before).unwrap_or_default();
        let age = match left {
            None => Age::Expired,
            Some(left) if left < lifetime / ENDING_PART => Age::Ending,
            Some(_) => Age::Fresh,
        };
        if looks.logged.replace((current.number, age)) == Some((current.number, age)) {
            return;
        }
        let (directory, id) = (self.directory().display(), &current.id);
        match age {
            Age::Fresh => {}
            Age::Ending => {
                let left_s = left.unwrap_or_default().as_secs();
                tracing::warn!(%directory, %id, left_s, "certificate expires soon: renew it");
            }
            Age::Expired => {
                tracing::error!(%directory, %id, "certificate has expired, peers refuse it: renew it");
            }
        }
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let current = self.current();
        f.debug_struct("Certificates")
            .field("directory", &self.shared.directory)
            .field("id", &current.id)
            .field("generation", &current.number)
            .finish_non_exhaustive()
    }
}

/// A poisoned lock is taken over: its data is whole after each statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
