//! Leases: keys that the store deletes when their owner no longer renews them.

use crate::calls::Client;
use crate::error::Error;
use crate::kv::{signed, unsigned};
use crate::wire;

/// Identifies a lease in its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(pub i64);

/// A lease, when it was granted or renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Identifies the lease.
    pub id: LeaseId,
    /// Time until the store ends the lease unless it is renewed, counted from before the answer was
    /// sent.
    pub ttl_s: u64,
}

impl Client {
    /// Grants a lease. The store may choose a longer time: etcd has a minimum of 1.5 election timeouts.
    ///
    /// # Errors
    /// If the store does not answer or refuses. After [`Error::Unknown`] a lease may exist, which ends
    /// because it is never renewed.
    pub async fn grant(&self, ttl_s: u64) -> Result<Lease, Error> {
        let request = wire::LeaseGrantRequest {
            ttl_s: signed(ttl_s),
        };
        let answer = self.call(request).await?;
        if answer.id == 0 || answer.ttl_s <= 0 {
            return Err(Error::invalid("a lease without an id or a time"));
        }
        Lease::new(answer.id, answer.ttl_s)
    }

    /// Ends a lease and deletes its keys.
    ///
    /// # Errors
    /// [`Error::LeaseNotFound`] if it has ended already, and as for transactions.
    pub async fn revoke(&self, id: LeaseId) -> Result<(), Error> {
        let request = wire::LeaseRevokeRequest { id: id.0 };
        self.call(request).await.map(|_| ())
    }

    /// Renews a lease for its whole time.
    ///
    /// # Errors
    /// [`Error::LeaseNotFound`] if it has ended. If no endpoint answers in time, the lease may have
    /// been renewed or not.
    pub async fn keep_alive(&self, id: LeaseId) -> Result<Lease, Error> {
        let answer = self.call(wire::LeaseKeepAliveRequest { id: id.0 }).await?;
        if answer.id != id.0 {
            return Err(Error::invalid("the answer for another lease"));
        }
        if answer.ttl_s <= 0 {
            return Err(Error::LeaseNotFound);
        }
        Lease::new(answer.id, answer.ttl_s)
    }
}

impl Lease {
    fn new(id: i64, ttl_s: i64) -> Result<Self, Error> {
        let ttl_s = unsigned(ttl_s)?;
        let id = LeaseId(id);
        Ok(Self { id, ttl_s })
    }
}
