//! What the operator chooses beside the address: patience, certificates and a user.

use std::fmt;
use std::time::Duration;

use super::TlsFiles;

/// Options of a [`crate::Client`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Maximum time for one request, over all endpoints.
    pub request_timeout: Duration,
    /// Certificates; needed for `etcds://`, and refused for `etcd://`.
    pub tls: Option<TlsFiles>,
    /// User of the store, if it asks for one.
    pub credentials: Option<Credentials>,
}

/// A user of the store. `Debug` hides the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Name of the user.
    pub user: String,
    /// Password of the user.
    pub password: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(2),
            tls: None,
            credentials: None,
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Credentials");
        shown.field("user", &self.user).finish_non_exhaustive()
    }
}
