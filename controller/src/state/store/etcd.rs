//! The durable state in etcd. Every write holds only while the leader's key stands, so that a deposed controller
//! cannot write.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_etcd::{Client, Condition, Operation, Transaction};
use plimsoll_policy::PolicyTexts;
use tokio::sync::{Mutex, Notify};

use super::document::{self, Unread};
use super::{Opened, StoreError, file};
use crate::state::DurableState;

/// The key of the leader, which the lease of the leading member holds.
pub(crate) const LEADER: &str = "leader";
/// The state without the texts of the policy, which change rarely.
const STATE: &str = "state";
const POLICY: &str = "policy";
/// A state that could not be read is kept here.
const UNREADABLE: &str = "unreadable";

/// The state of the fleet in etcd, for the member that was elected.
#[derive(Debug)]
pub(crate) struct EtcdStore {
    client: Client,
    /// The revision at which the leader's key was created.
    lead: u64,
    /// Told when the store refuses a write, because another member leads.
    deposed: Arc<Notify>,
    /// `None` after a write that failed: it may have been applied, or may be applied later.
    held: Mutex<Option<Held>>,
}

/// What the store holds, as this leader last read or wrote it.
#[derive(Debug, Default)]
struct Held {
    /// The revision of the last write of the state; 0 without one.
    revision: u64,
    of_state: BTreeSet<String>,
    texts: Option<Arc<PolicyTexts>>,
    of_policy: BTreeSet<String>,
}

// === impl EtcdStore ===

impl EtcdStore {
    /// Reads the state for the leader whose key was created at the revision `lead`. A state that cannot be read is
    /// kept, and every bucket begins in shadow.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn open(
        client: Client,
        lead: u64,
        deposed: Arc<Notify>,
    ) -> Result<(Self, Opened), StoreError> {
        let store = Self {
            client,
            lead,
            deposed,
            held: Mutex::default(),
        };
        let (opened, held) = store.read().await?;
        *store.held.lock().await = Some(held);
        Ok((store, opened))
    }

    async fn read(&self) -> Result<(Opened, Held), StoreError> {
        let Some(state) = self.client.get(STATE).await? else {
            let opened = Opened {
                durable: DurableState::first_start(),
                loss: None,
            };
            return Ok((opened, Held::default()));
        };
        let revision = state.modified_revision;
        let loss = match self.read_documents(&state.value).await {
            Ok((durable, held)) => {
                let opened = Opened {
                    durable,
                    loss: None,
                };
                return Ok((opened, Held { revision, ..held }));
            }
            Err(Unreadable::Store(error)) => return Err(error.into()),
            Err(Unreadable::Damaged(loss)) => loss,
        };
        let aside = Operation::put(UNREADABLE, state.value, None);
        self.commit(revision, [aside]).await?;
        let opened = Opened {
            durable: DurableState::lost(),
            loss: Some(format!(
                "the state in the store cannot be read: {loss}; it was kept as the key `{UNREADABLE}`"
            )),
        };
        let held = Held {
            revision,
            ..Held::default()
        };
        Ok((opened, held))
    }

    async fn read_documents(&self, value: &[u8]) -> Result<(DurableState, Held), Unreadable> {
        let (bytes, of_state) = document::read(&self.client, value).await?;
        let mut durable =
            file::decode(&bytes).map_err(|error| Unreadable::Damaged(error.to_string()))?;
        let mut held = Held {
            of_state,
            ..Held::default()
        };
        if let Some(policy) = self.client.get(POLICY).await? {
            let (bytes, chunks) = document::read(&self.client, &policy.value).await?;
            let texts: Arc<PolicyTexts> = serde_json::from_slice(&bytes)
                .map_err(|error| Unreadable::Damaged(format!("its policy: {error}")))?;
            held.of_policy = chunks;
            held.texts = Some(Arc::clone(&texts));
            durable.policy = Some(texts);
        }
        Ok((durable, held))
    }

    /// Writes the state; it outlives this process when this returns.
    ///
    /// # Errors
    /// When the store did not take it, or another member leads. The state saved before is kept.
    pub(crate) async fn save(&self, durable: &DurableState) -> Result<(), StoreError> {
        let mut known = self.held.lock().await;
        let held = match known.take() {
            Some(held) => held,
            None => self.read().await?.1,
        };
        let without_policy = DurableState {
            policy: None,
            ..durable.clone()
        };
        let bytes = file::encode(&without_policy).map_err(StoreError::Encode)?;
        let state = document::write(&self.client, bytes, &held.of_state).await?;
        let mut operations = document::deletions(&held.of_state, &state.chunks);
        operations.push(Operation::put(STATE, state.value, None));
        let mut of_policy = None;
        if held.texts != durable.policy {
            let bytes = serde_json::to_vec(&durable.policy)
                .map_err(|error| StoreError::Encode(error.into()))?;
            let policy = document::write(&self.client, bytes, &held.of_policy).await?;
            operations.extend(document::deletions(&held.of_policy, &policy.chunks));
            operations.push(Operation::put(POLICY, policy.value, None));
            of_policy = Some(policy.chunks);
        }
        *known = Some(Held {
            revision: self.commit(held.revision, operations).await?,
            of_state: state.chunks,
            texts: durable.policy.clone(),
            of_policy: of_policy.unwrap_or(held.of_policy),
        });
        Ok(())
    }

    /// Carries out `operations` if this controller still leads, and the state is that of the revision `after`: a write
    /// whose answer was lost may arrive after a later one. Returns the revision.
    async fn commit(
        &self,
        after: u64,
        operations: impl IntoIterator<Item = Operation>,
    ) -> Result<u64, StoreError> {
        let guarded = Transaction::default()
            .when(Condition::created_at(LEADER, self.lead))
            .when(Condition::modified_at(STATE, after))
            .or_else(Operation::get(LEADER));
        let transaction = operations.into_iter().fold(guarded, Transaction::then);
        let committed = self.client.transact(transaction).await?;
        if committed.succeeded {
            return Ok(committed.revision);
        }
        let leader = committed.reads.into_iter().flatten().next();
        if leader.is_some_and(|key| key.created_revision == self.lead) {
            return Err(StoreError::Overtaken);
        }
        self.deposed.notify_one();
        Err(StoreError::Deposed)
    }
}

enum Unreadable {
    Store(plimsoll_etcd::Error),
    Damaged(String),
}

impl From<plimsoll_etcd::Error> for Unreadable {
    fn from(error: plimsoll_etcd::Error) -> Self {
        Self::Store(error)
    }
}

impl From<Unread> for Unreadable {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Store(error) => Self::Store(error),
            damaged => Self::Damaged(damaged.to_string()),
        }
    }
}
