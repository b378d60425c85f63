//! The durable state in etcd. Every write holds only while the leader's key stands, so that a deposed controller
//! changes nothing. Chunks are written without that condition: they count once a document names them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_etcd::{Client, Condition, KeyValue, Operation, Transaction};
use plimsoll_policy::PolicyTexts;
use tokio::sync::{Mutex, Notify};

use super::document::{self, Unread};
use super::{Opened, StoreError, file};
use crate::state::DurableState;

/// The key of the leader, which the lease of the leading member holds.
pub(crate) const LEADER: &str = "leader";
/// The state without the texts of the policy, which change rarely.
const STATE: &str = "state";
/// The texts of the current policy, and of the one before.
const TEXTS: [&str; 2] = ["policy", "earlier-policy"];
/// A state that could not be read is kept here.
const UNREADABLE: &str = "unreadable";

/// The state of the fleet in etcd, for the member that was elected.
#[derive(Debug)]
pub(crate) struct EtcdStore {
    client: Client,
    /// The revision at which the key of this leader was created; `None` for [`unled`](EtcdStore::unled).
    lead: Option<u64>,
    /// Told when the store refuses a write, because another member leads.
    deposed: Arc<Notify>,
    written: Mutex<Written>,
}

/// What this process knows of the documents in the store.
#[derive(Debug, Default)]
struct Written {
    /// In the order of [`TEXTS`].
    texts: [Option<Arc<PolicyTexts>>; 2],
    /// The revision of the last write of the state, 0 without one; `None` after a write that failed: it may have been
    /// applied, or may be applied later.
    revision: Option<u64>,
    /// The keys of the chunks of each document that has some.
    chunks: BTreeMap<&'static str, BTreeSet<String>>,
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
            lead: Some(lead),
            deposed,
            written: Mutex::default(),
        };
        let opened = match store.read_state().await {
            Ok(durable) => Opened {
                durable: durable.unwrap_or_else(DurableState::first_start),
                loss: None,
            },
            Err(Unread::Store(error)) => return Err(error.into()),
            Err(damage) => {
                let state = store.client.get(STATE).await?;
                let aside = state.map(|state| Operation::put(UNREADABLE, state.value, None));
                // The policies of a lost state are lost, too.
                let aside = aside.into_iter().chain(TEXTS.map(Operation::delete));
                store.commit(None, aside).await?;
                Opened {
                    durable: DurableState::lost(),
                    loss: Some(format!(
                        "the state in the store cannot be read: {damage}; it was kept as the key `{UNREADABLE}`"
                    )),
                }
            }
        };
        Ok((store, opened))
    }

    /// The store of a fleet whose controllers are all stopped: it takes writes while none leads.
    pub(crate) fn unled(client: Client) -> Self {
        Self {
            client,
            lead: None,
            deposed: Arc::default(),
            written: Mutex::default(),
        }
    }

    /// Returns the revision at which this leader was elected; 0 for [`unled`](Self::unled).
    pub(crate) fn lead(&self) -> u64 {
        self.lead.unwrap_or_default()
    }

    /// Reads the state; `None` if there is none.
    ///
    /// # Errors
    /// When the store does not answer, or the state is damaged.
    pub(crate) async fn read_state(&self) -> Result<Option<DurableState>, Unread> {
        let Some(state) = self.read(STATE).await? else {
            return Ok(None);
        };
        let mut durable =
            file::decode(&state).map_err(|error| Unread::Content(error.to_string()))?;
        let [policy, earlier] = TEXTS.map(|key| self.read_texts(key));
        (durable.policy, durable.earlier) = (policy.await?, earlier.await?);
        self.written.lock().await.texts = texts_of(&durable);
        Ok(Some(durable))
    }

    async fn read_texts(&self, key: &'static str) -> Result<Option<Arc<PolicyTexts>>, Unread> {
        let Some(texts) = self.read(key).await? else {
            return Ok(None);
        };
        serde_json::from_slice(&texts)
            .map_err(|error| Unread::Content(format!("its policy: {error}")))
    }

    /// Reads a document; `None` if there is none.
    ///
    /// # Errors
    /// When the store does not answer, or a part of it is missing.
    pub(crate) async fn read(&self, key: &'static str) -> Result<Option<Vec<u8>>, Unread> {
        let found = self.client.get(key).await?;
        if key == STATE {
            let revision = found.as_ref().map(|state| state.modified_revision);
            self.written.lock().await.revision = Some(revision.unwrap_or_default());
        }
        let Some(found) = found else {
            return Ok(None);
        };
        let (bytes, chunks) = document::read(&self.client, &found.value).await?;
        self.written.lock().await.chunks.insert(key, chunks);
        Ok(Some(bytes))
    }

    /// Returns all entries below a key.
    ///
    /// # Errors
    /// When the store does not answer, or there are more than `limit` or too many bytes of them.
    pub(crate) async fn list(
        &self,
        prefix: &str,
        limit: u64,
    ) -> Result<Vec<KeyValue>, plimsoll_etcd::Error> {
        Ok(self.client.list(prefix, limit).await?.entries)
    }

    /// Writes the state; it outlives this process when this returns.
    ///
    /// # Errors
    /// When the store did not take it, or another member leads. The state saved before is kept.
    pub(crate) async fn save(&self, durable: &DurableState) -> Result<(), StoreError> {
        let after = self.take_revision().await?;
        let without_policy = DurableState {
            policy: None,
            earlier: None,
            ..durable.clone()
        };
        let state = file::encode(&without_policy).map_err(StoreError::Encode)?;
        let mut documents = vec![(STATE, state)];
        let texts = texts_of(durable);
        let before = self.written.lock().await.texts.clone();
        for ((key, before), now) in TEXTS.into_iter().zip(before).zip(&texts) {
            if before != *now {
                let texts = serde_json::to_vec(now);
                documents.push((
                    key,
                    texts.map_err(|error| StoreError::Encode(error.into()))?,
                ));
            }
        }
        // A write whose answer was lost may arrive after a later one.
        let guard = Condition::modified_at(STATE, after);
        let revision = self.write_after(Some(guard), documents, None).await?;
        let mut written = self.written.lock().await;
        written.revision = Some(revision);
        written.texts = texts;
        Ok(())
    }

    /// Returns the revision of the state in the store, which is unknown until the next write has succeeded.
    async fn take_revision(&self) -> Result<u64, StoreError> {
        if let Some(revision) = self.written.lock().await.revision.take() {
            return Ok(revision);
        }
        // Also reads the policy and the chunks that are there. Damage is overwritten.
        if let Err(Unread::Store(error)) = self.read_state().await {
            return Err(error.into());
        }
        let revision = self.written.lock().await.revision.take();
        Ok(revision.unwrap_or_default())
    }

    /// Writes documents and carries out `more`, together.
    ///
    /// # Errors
    /// When the store did not take them, or another member leads. The documents before are kept.
    pub(crate) async fn write(
        &self,
        documents: Vec<(&'static str, Vec<u8>)>,
        more: impl IntoIterator<Item = Operation>,
    ) -> Result<(), StoreError> {
        self.write_after(None, documents, more).await.map(|_| ())
    }

    async fn write_after(
        &self,
        guard: Option<Condition>,
        documents: Vec<(&'static str, Vec<u8>)>,
        more: impl IntoIterator<Item = Operation>,
    ) -> Result<u64, StoreError> {
        let mut written = self.written.lock().await;
        let mut operations: Vec<Operation> = more.into_iter().collect();
        let mut chunks = Vec::new();
        for (key, bytes) in documents {
            let before = written.chunks.entry(key).or_default();
            let after = document::write(&self.client, bytes, before).await?;
            operations.extend(document::deletions(before, &after.chunks));
            operations.push(Operation::put(key, after.value, None));
            chunks.push((key, after.chunks));
        }
        let revision = self.commit(guard, operations).await?;
        written.chunks.extend(chunks);
        Ok(revision)
    }

    /// Carries out `operations` if this controller still leads, and `guard` holds. Returns the revision.
    async fn commit(
        &self,
        guard: Option<Condition>,
        operations: impl IntoIterator<Item = Operation>,
    ) -> Result<u64, StoreError> {
        let leads = match self.lead {
            Some(lead) => Condition::created_at(LEADER, lead),
            None => Condition::absent(LEADER),
        };
        let guarded = Transaction::default()
            .when(leads)
            .or_else(Operation::get(LEADER));
        let guarded = guard.into_iter().fold(guarded, Transaction::when);
        let transaction = operations.into_iter().fold(guarded, Transaction::then);
        let committed = self.client.transact(transaction).await?;
        if committed.succeeded {
            return Ok(committed.revision);
        }
        let leader = committed.reads.into_iter().flatten().next();
        if leader.map(|key| key.created_revision) == self.lead {
            return Err(StoreError::Overtaken);
        }
        self.deposed.notify_one();
        Err(StoreError::Deposed)
    }
}

fn texts_of(durable: &DurableState) -> [Option<Arc<PolicyTexts>>; 2] {
    [durable.policy.clone(), durable.earlier.clone()]
}
