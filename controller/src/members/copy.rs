//! Copies the state of a fleet whose controllers are stopped, from a directory to a store or back.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_etcd::Client;
use tokio::task::block_in_place;

use crate::history::store::shared::SharedHistory;
use crate::history::store::{HistoryStore, Restored};
use crate::state::DurableState;
use crate::state::store::document::Unread;
use crate::state::store::etcd::{EtcdStore, LEADER};
use crate::state::store::{Store, StoreError};

/// Where a state is.
#[derive(Clone, Debug)]
pub enum StatePlace {
    /// A state directory.
    Directory(PathBuf),
    /// A store.
    Store(Client),
}

/// Why a state was not copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// There is nothing to copy.
    #[error("no state is there to copy")]
    Nothing,
    /// The state to copy is damaged.
    #[error("the state to copy cannot be read: {0}")]
    Damaged(String),
    /// The place to copy to has a state.
    #[error(
        "a state is there already, which is not replaced: copy to an empty directory, or to another prefix"
    )]
    Occupied,
    /// A controller runs.
    #[error("a controller leads with this store: stop all of them first")]
    Led,
    /// A place cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The state in a store cannot be read.
    #[error("the state to copy cannot be read: {0}")]
    Unread(#[from] Unread),
    /// The history cannot be copied; the state was not.
    #[error("the history cannot be copied: {0}")]
    History(#[from] std::io::Error),
}

/// Copies state and history, without events and the audit log, and returns the epoch. Blocks; must be called on a runtime
/// of several threads.
///
/// # Errors
/// If a controller uses either place, there is nothing to copy, or the place to copy to is not empty.
pub async fn copy(from: StatePlace, to: StatePlace) -> Result<u64, CopyError> {
    let (durable, history) = match &from {
        StatePlace::Directory(path) => of_directory(path)?,
        StatePlace::Store(client) => {
            refuse_led(client).await?;
            let store = Arc::new(EtcdStore::unled(client.clone()));
            let durable = store.read_state().await?.ok_or(CopyError::Nothing)?;
            (durable, SharedHistory::new(store).read().await?)
        }
    };
    match &to {
        StatePlace::Directory(path) => {
            let (store, opened) = Store::open(path)?;
            if opened.loss.is_some() || opened.durable != DurableState::first_start() {
                return Err(CopyError::Occupied);
            }
            let local = HistoryStore::new(path);
            block_in_place(|| {
                let minutes = history.minutes.into_iter();
                let minutes = minutes.map(|it| (it.minute, it.samples)).collect();
                local.merge(&minutes, false)?;
                local.write_closed(&history.closed)?;
                local.write_answers(&history.answers)
            })?;
            store.save(&durable)?;
        }
        StatePlace::Store(client) => {
            refuse_led(client).await?;
            let store = Arc::new(EtcdStore::unled(client.clone()));
            if store.read_state().await?.is_some() {
                return Err(CopyError::Occupied);
            }
            let shared = SharedHistory::new(Arc::clone(&store));
            for minute in &history.minutes {
                shared.write(minute).await?;
            }
            shared.write_closed(&history.closed).await?;
            shared.write_answers(&history.answers).await?;
            // Last: without it nothing was copied.
            store.save(&durable).await?;
        }
    }
    Ok(durable.epoch.0)
}

async fn refuse_led(client: &Client) -> Result<(), CopyError> {
    let leader = client.get(LEADER).await.map_err(StoreError::from)?;
    leader.map_or(Ok(()), |_| Err(CopyError::Led))
}

fn of_directory(path: &Path) -> Result<(DurableState, Restored), CopyError> {
    block_in_place(|| {
        if !path.exists() {
            return Err(CopyError::Nothing);
        }
        let (_, opened) = Store::open(path)?;
        if let Some(loss) = opened.loss {
            return Err(CopyError::Damaged(loss));
        }
        if opened.durable == DurableState::first_start() {
            return Err(CopyError::Nothing);
        }
        Ok((opened.durable, HistoryStore::new(path).open()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::store::tests::etcd::{client, elect};

    #[tokio::test(flavor = "multi_thread")]
    async fn store_with_a_leader_is_not_copied() {
        let Some(server) = plimsoll_testing::etcd::start("store_with_a_leader_is_not_copied", &[])
        else {
            return;
        };
        let client = client(&server).await;
        let (store, _) = elect(&client).await;
        store.save(&DurableState::lost()).await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let to = StatePlace::Directory(directory.path().join("state"));
        let copied = copy(StatePlace::Store(client), to).await;
        assert!(matches!(copied, Err(CopyError::Led)), "{copied:?}");
    }
}
