//! The session of a member at the store: holds its lease, registers it, tries to become the leader, and confirms the
//! lead.
//!
//! The lead is lost only by the word of the store. While the store does not answer, it is unconfirmed once it may have
//! ended there: a lease counts from the moment at which the last answered renewal was *sent*, by the own clock.

use std::time::Duration;

use plimsoll_etcd::{Client, Condition, Error, LeaseId, Operation, Transaction};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{MEMBERS, Member, Order, Part};
use crate::state::store::etcd::LEADER;

/// Between two looks of a standby for a missing leader.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A lease is renewed this many times before it would end.
const RENEWALS: u32 = 5;
/// Between two logs of one failure.
const LOGGED_EVERY: Duration = Duration::from_secs(60);
/// A member that handed the lead over leaves it to others for this long.
const RESIGNED_FOR: Duration = Duration::from_secs(10);
/// Maximum time in which a member that stops gives its lease back.
const FAREWELL: Duration = Duration::from_secs(1);

pub(crate) struct Session {
    pub(super) client: Client,
    /// The name of this member's key.
    pub(super) id: String,
    pub(super) ttl: Duration,
    /// The member as it is now, which is registered again after each change.
    pub(super) own: watch::Receiver<Member>,
    pub(super) part: watch::Sender<Part>,
    pub(super) orders: watch::Receiver<Order>,
    /// Told when the store has refused a write of this member as the leader.
    pub(super) deposed: std::sync::Arc<Notify>,
}

struct Lease {
    id: LeaseId,
    renewed: Instant,
    registered: Option<Member>,
}

// === impl Session ===

impl Session {
    /// Takes part until `stop` is cancelled. Then gives the lease back, so that another member leads immediately.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut lease = None;
        let mut stands_back_until = Instant::now();
        let mut logged: Option<(String, Instant)> = None;
        loop {
            let step = self.step(&mut lease, stands_back_until);
            let step = tokio::select! {
                () = stop.cancelled() => break,
                step = step => step,
            };
            match step {
                Ok(()) => {
                    if logged.take().is_some() {
                        tracing::info!("the store answers again");
                    }
                }
                Err(error) => {
                    let text = error.to_string();
                    let is_known = logged
                        .as_ref()
                        .is_some_and(|(known, at)| *known == text && at.elapsed() < LOGGED_EVERY);
                    if !is_known {
                        tracing::error!(%error, "the store does not answer: this controller keeps its part");
                        logged = Some((text, Instant::now()));
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep(LOOK_EVERY) => {}
                () = self.deposed.notified() => {}
                changed = self.orders.changed() => {
                    if changed.is_ok() && *self.orders.borrow_and_update() == Order::Resign {
                        stands_back_until = Instant::now() + RESIGNED_FOR;
                        self.resign().await;
                    }
                }
            }
        }
        if let Some(lease) = lease {
            // Without an answer it ends by itself.
            let _ = timeout(FAREWELL, self.client.revoke(lease.id)).await;
        }
    }

    /// Renews the lease if that is due, registers this member, and asks for the lead or confirms it.
    async fn step(
        &self,
        lease: &mut Option<Lease>,
        stands_back_until: Instant,
    ) -> Result<(), Error> {
        let renewed = self.renew(lease).await?;
        let Some(held) = lease.as_mut() else {
            return Ok(());
        };
        let own = self.own.borrow().clone();
        if held.registered.as_ref() != Some(&own) {
            let key = format!("{MEMBERS}{}", self.id);
            let put = Operation::put(key, encode(&own), Some(held.id));
            self.client
                .transact(Transaction::default().then(put))
                .await?;
            held.registered = Some(own.clone());
        }
        let confirmed_until = held.renewed + self.ttl;
        let lead = self.part.borrow().lead();
        match lead {
            None if Instant::now() >= stands_back_until => {
                self.campaign(held.id, &own, confirmed_until).await
            }
            None => self.look().await,
            Some(lead) if renewed => self.confirm(lead, confirmed_until).await,
            Some(_) => Ok(()),
        }
    }

    /// Holds a lease. Returns true if it was renewed now.
    async fn renew(&self, lease: &mut Option<Lease>) -> Result<bool, Error> {
        let sent = Instant::now();
        let Some(held) = lease else {
            let granted = self.client.grant(self.ttl.as_secs()).await?;
            *lease = Some(Lease {
                id: granted.id,
                renewed: sent,
                registered: None,
            });
            return Ok(true);
        };
        if held.renewed.elapsed() < self.ttl / RENEWALS {
            return Ok(false);
        }
        match self.client.keep_alive(held.id).await {
            Ok(_) => {
                held.renewed = sent;
                Ok(true)
            }
            Err(Error::LeaseNotFound) => {
                // The keys of this member ended with it.
                *lease = None;
                self.stand_by(None);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Becomes the leader if there is none.
    async fn campaign(
        &self,
        lease: LeaseId,
        own: &Member,
        confirmed_until: Instant,
    ) -> Result<(), Error> {
        let put = Operation::put(LEADER, encode(own), Some(lease));
        let transaction = Transaction::default()
            .when(Condition::absent(LEADER))
            .then(put)
            .or_else(Operation::get(LEADER));
        // The answer may be lost after the store has elected this member: the next look finds its own key.
        let committed = self.client.transact(transaction).await?;
        if committed.succeeded {
            self.part.send_replace(Part::Leading {
                lead: committed.revision,
                confirmed_until,
            });
            return Ok(());
        }
        let leader = committed.reads.into_iter().flatten().next();
        match leader {
            Some(key) if key.lease == Some(lease) => {
                self.part.send_replace(Part::Leading {
                    lead: key.created_revision,
                    confirmed_until,
                });
            }
            key => self.stand_by(key.and_then(|key| decode(&key.value))),
        }
        Ok(())
    }

    /// Reads the name of the leader.
    async fn look(&self) -> Result<(), Error> {
        let leader = self.client.get(LEADER).await?;
        self.stand_by(leader.and_then(|key| decode(&key.value)));
        Ok(())
    }

    /// Extends the lead, or ends it if the key of the leader is not the own one any more.
    async fn confirm(&self, lead: u64, confirmed_until: Instant) -> Result<(), Error> {
        match self.client.get(LEADER).await? {
            Some(key) if key.created_revision == lead => {
                self.part.send_replace(Part::Leading {
                    lead,
                    confirmed_until,
                });
            }
            other => self.stand_by(other.and_then(|key| decode(&key.value))),
        }
        Ok(())
    }

    /// Gives the lead back, if this member has it.
    async fn resign(&self) {
        let lead = self.part.borrow().lead();
        let Some(lead) = lead else { return };
        let transaction = Transaction::default()
            .when(Condition::created_at(LEADER, lead))
            .then(Operation::delete(LEADER));
        match self.client.transact(transaction).await {
            Ok(_) => self.stand_by(None),
            Err(error) => {
                tracing::error!(%error, "the lead is not handed over: the store does not answer")
            }
        }
    }

    fn stand_by(&self, leader: Option<Member>) {
        self.part.send_if_modified(|part| {
            let standby = Part::Standby { leader };
            if part.lead().is_some() {
                tracing::error!("the lead is lost: this controller stands by and sends nothing");
            }
            std::mem::replace(part, standby.clone()) != standby
        });
    }
}

fn encode(member: &Member) -> Vec<u8> {
    // A struct of texts and numbers.
    serde_json::to_vec(member).unwrap_or_default()
}

/// Returns the member that a key names; `None` for a value of another form.
pub(super) fn decode(value: &[u8]) -> Option<Member> {
    serde_json::from_slice(value).ok()
}
