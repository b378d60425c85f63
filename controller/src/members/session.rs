//! The session of a member at the store: holds its lease, registers it, tries to become the leader, and confirms the
//! lead, as [`Lead`] decides.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_etcd::{Client, Condition, Error, LeaseId, Operation, Transaction};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::lead::{Lead, Question, Renewal};
use super::{MEMBERS, Member, Part};
use crate::state::store::etcd::LEADER;

/// Between two looks of a standby for a missing leader.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Between two logs of one failure.
const LOGGED_EVERY: Duration = Duration::from_secs(60);
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
    pub(super) resign: Arc<Notify>,
    pub(super) deposed: Arc<Notify>,
}

/// What this member has at the store.
struct Held {
    lead: Lead,
    /// The record of this member, and the lease that holds it.
    registered: Option<(LeaseId, Member)>,
    /// The leader's key has a value that no controller has written.
    is_foreign: bool,
}

// === impl Session ===

impl Session {
    /// Takes part until `stop` is cancelled. Then gives the lease back, so that another member can lead without a wait.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut held = Held {
            lead: Lead::new(self.ttl),
            registered: None,
            is_foreign: false,
        };
        let mut logged: Option<(String, Instant)> = None;
        loop {
            let step = self.step(&mut held);
            let step = tokio::select! {
                () = stop.cancelled() => break,
                step = step => step,
            };
            match step {
                Ok(()) => {
                    if logged.take().is_some() {
                        tracing::info!("the store takes requests again");
                    }
                }
                Err(error) => {
                    let text = error.to_string();
                    let is_known = logged
                        .as_ref()
                        .is_some_and(|(known, at)| *known == text && at.elapsed() < LOGGED_EVERY);
                    if !is_known {
                        tracing::error!(%error, "the store takes no request of this controller, which keeps its part");
                        logged = Some((text, Instant::now()));
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep(LOOK_EVERY) => {}
                () = self.deposed.notified() => held.lead.ask(),
                () = self.resign.notified() => held.lead.resign(now()),
            }
        }
        if let Some(lease) = held.lead.lease() {
            // Without an answer it ends by itself.
            let _ = timeout(FAREWELL, self.client.revoke(lease)).await;
        }
    }

    /// Renews the lease if that is due, registers this member, and asks for the lead or confirms it.
    async fn step(&self, held: &mut Held) -> Result<(), Error> {
        let answered = self.ask(held).await;
        self.tell(&held.lead);
        answered
    }

    async fn ask(&self, held: &mut Held) -> Result<(), Error> {
        let Held {
            lead, registered, ..
        } = held;
        let sent = now();
        match lead.renewal(sent) {
            Some(Renewal::Grant) => {
                let granted = self.client.grant(self.ttl.as_secs()).await?;
                lead.on_renewed(granted.id, sent);
            }
            Some(Renewal::KeepAlive(id)) => match self.client.keep_alive(id).await {
                Ok(_) => lead.on_renewed(id, sent),
                Err(Error::LeaseNotFound) => {
                    lead.on_lease_ended();
                    return Ok(());
                }
                Err(error) => return Err(error),
            },
            None => {}
        }
        let own = self.own.borrow().clone();
        let record = lead.lease().map(|lease| (lease, own.clone()));
        if *registered != record {
            let key = format!("{MEMBERS}{}", self.id);
            let put = Operation::put(key, encode(&own), lead.lease());
            let register = Transaction::default().then(put);
            self.client.transact(register).await?;
            *registered = record;
        }
        let Some(question) = lead.question(now()) else {
            return Ok(());
        };
        let leader = match question {
            Question::Campaign(lease) => {
                let put = Operation::put(LEADER, encode(&own), Some(lease));
                let transaction = Transaction::default()
                    .when(Condition::absent(LEADER))
                    .then(put)
                    .or_else(Operation::get(LEADER));
                let committed = self.client.transact(transaction).await?;
                if committed.succeeded {
                    lead.on_elected(committed.revision);
                    return Ok(());
                }
                committed.reads.into_iter().flatten().next()
            }
            Question::Look => self.client.get(LEADER).await?,
            Question::Resign(created) => {
                let transaction = Transaction::default()
                    .when(Condition::created_at(LEADER, created))
                    .then(Operation::delete(LEADER));
                self.client.transact(transaction).await?;
                lead.on_resigned();
                return Ok(());
            }
        };
        lead.on_leader(question, leader.as_ref());
        // It may be held by no lease, and would keep every member from the lead forever.
        let is_foreign = leader.is_some_and(|key| decode(&key.value).is_none());
        if is_foreign && !held.is_foreign {
            tracing::error!(
                "no controller can lead: none has written the value of the key `{LEADER}` of the store. Delete this key below \
                 the prefix of --store"
            );
        }
        held.is_foreign = is_foreign;
        Ok(())
    }

    /// Tells the process its part.
    fn tell(&self, lead: &Lead) {
        self.part.send_if_modified(|part| {
            let (had, has) = (part.lead().is_some(), lead.part().lead().is_some());
            if had && !has && !lead.has_resigned() {
                tracing::error!("the lead is lost: this controller stands by and sends nothing");
            }
            std::mem::replace(part, lead.part().clone()) != *lead.part()
        });
    }
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}

fn encode(member: &Member) -> Vec<u8> {
    // A struct of texts and numbers.
    serde_json::to_vec(member).unwrap_or_default()
}

/// Returns the member that a key names; `None` for a value of another form.
pub(super) fn decode(value: &[u8]) -> Option<Member> {
    serde_json::from_slice(value).ok()
}
