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
    written: Mutex<WrittenPolicy>,
}

/// The policy in the store.
#[derive(Debug, Default)]
struct WrittenPolicy {
    texts: Option<Arc<PolicyTexts>>,
    chunks: BTreeSet<String>,
    of_state: BTreeSet<String>,
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
            written: Mutex::default(),
        };
        let Some(state) = store.client.get(STATE).await? else {
            let opened = Opened {
                durable: DurableState::first_start(),
                loss: None,
            };
            return Ok((store, opened));
        };
        let loss = match store.read(&state.value).await {
            Ok(durable) => {
                let opened = Opened {
                    durable,
                    loss: None,
                };
                return Ok((store, opened));
            }
            Err(Unreadable::Store(error)) => return Err(error.into()),
            Err(Unreadable::Damaged(loss)) => loss,
        };
        let aside = Operation::put(UNREADABLE, state.value, None);
        store.commit([aside]).await?;
        let opened = Opened {
            durable: DurableState::lost(),
            loss: Some(format!(
                "the state in the store cannot be read: {loss}; it was kept as the key `{UNREADABLE}`"
            )),
        };
        Ok((store, opened))
    }

    async fn read(&self, value: &[u8]) -> Result<DurableState, Unreadable> {
        let (bytes, of_state) = document::read(&self.client, value).await?;
        let mut durable =
            file::decode(&bytes).map_err(|error| Unreadable::Damaged(error.to_string()))?;
        let mut written = self.written.lock().await;
        written.of_state = of_state;
        if let Some(policy) = self.client.get(POLICY).await? {
            let (bytes, chunks) = document::read(&self.client, &policy.value).await?;
            let texts: Arc<PolicyTexts> = serde_json::from_slice(&bytes)
                .map_err(|error| Unreadable::Damaged(format!("its policy: {error}")))?;
            written.chunks = chunks;
            written.texts = Some(Arc::clone(&texts));
            durable.policy = Some(texts);
        }
        Ok(durable)
    }

    /// Writes the state; it outlives this process when this returns.
    ///
    /// # Errors
    /// When the store did not take it, or another member leads. The state saved before is kept.
    pub(crate) async fn save(&self, durable: &DurableState) -> Result<(), StoreError> {
        let mut written = self.written.lock().await;
        let without_policy = DurableState {
            policy: None,
            ..durable.clone()
        };
        let bytes = file::encode(&without_policy).map_err(StoreError::Encode)?;
        let state = document::write(&self.client, bytes, &written.of_state).await?;
        let mut operations = document::deletions(&written.of_state, &state.chunks);
        operations.push(Operation::put(STATE, state.value, None));
        let mut policy_chunks = None;
        if written.texts != durable.policy {
            let bytes = serde_json::to_vec(&durable.policy)
                .map_err(|error| StoreError::Encode(error.into()))?;
            let policy = document::write(&self.client, bytes, &written.chunks).await?;
            operations.extend(document::deletions(&written.chunks, &policy.chunks));
            operations.push(Operation::put(POLICY, policy.value, None));
            policy_chunks = Some(policy.chunks);
        }
        self.commit(operations).await?;
        written.of_state = state.chunks;
        if let Some(chunks) = policy_chunks {
            written.chunks = chunks;
            written.texts.clone_from(&durable.policy);
        }
        Ok(())
    }

    /// Carries out `operations` if this controller still leads.
    async fn commit(
        &self,
        operations: impl IntoIterator<Item = Operation>,
    ) -> Result<(), StoreError> {
        let guarded = Transaction::default().when(Condition::created_at(LEADER, self.lead));
        let transaction = operations.into_iter().fold(guarded, Transaction::then);
        if self.client.transact(transaction).await?.succeeded {
            return Ok(());
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
