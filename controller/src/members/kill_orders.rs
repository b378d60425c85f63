//! Kill orders that a standby has taken: each is a key of its own in the store, which the leader carries out and deletes
//! once the kill is saved.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_admin::access::AdminCaller;
use plimsoll_admin::kill_api::KillOn;
use plimsoll_core::kill::Scope;
use plimsoll_core::names::Text;
use plimsoll_etcd::{Client, Condition, Error, KeyValue, Operation, Transaction};
use serde::{Deserialize, Serialize};
use tokio::time::{MissedTickBehavior, interval};

use crate::admin::{Commands, in_effect};
use crate::audit::{Actor, Entry};
use crate::brain::Brain;
use crate::state::Command;
use crate::state::store::etcd::EtcdStore;
use crate::tasks::kill_log::describe;
use crate::tasks::unix_s;

const ORDERS: &str = "kills/";
/// Between two looks of the leader.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Maximum number of orders that are carried out at one look. Others wait for the next.
const ORDERS_MAX: usize = 100;
/// Maximum number of orders in the store. With more of them none is read.
const STORED_MAX: u64 = 10_000;

/// A kill order in the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StoredOrder {
    pub(super) order: KillOn,
    pub(super) by: Option<Text>,
    /// The time of the order in seconds since 1970, by the clock of the standby.
    pub(super) since_s: i64,
}

/// Writes an order, which outlives this process when this returns. Its key is new: nothing is replaced.
///
/// # Errors
/// When the store does not take it.
pub(super) async fn append(
    client: &Client,
    caller: &AdminCaller,
    order: KillOn,
) -> Result<Command, Error> {
    let (by, since_s) = (caller.by(order.by.clone()), unix_s());
    let command = Command::ordered(&order, by.clone(), since_s);
    let stored = serde_json::to_vec(&StoredOrder { order, by, since_s });
    let key = format!(
        "{ORDERS}{since_s:012}-{:016x}",
        getrandom::u64().unwrap_or_default()
    );
    let put = Operation::put(key.clone(), stored.unwrap_or_default(), None);
    let append = Transaction::default()
        .when(Condition::absent(key))
        .then(put);
    client.transact(append).await?;
    Ok(command)
}

/// Carries out the orders in the store, forever.
pub(crate) async fn follow(store: Arc<EtcdStore>, commands: Commands) {
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        // The session logs a store that does not answer.
        let Ok(mut orders) = store.list(ORDERS, STORED_MAX).await else {
            continue;
        };
        let stored = orders.iter().map(|key| key.created_revision).collect();
        commands
            .brain
            .with(|brain, _| brain.retain_stored_kills(&stored));
        orders.truncate(ORDERS_MAX);
        for key in &orders {
            carry_out(key, &commands);
        }
        if orders.is_empty() || !in_effect(&commands.brain).await {
            continue;
        }
        let deletes = orders.into_iter().map(|key| Operation::delete(key.key));
        // An order that stays is not carried out again.
        let _ = store.write(Vec::new(), deletes).await;
    }
}

fn carry_out(key: &KeyValue, Commands { brain, audit, .. }: &Commands) {
    let stored: StoredOrder = match serde_json::from_slice(&key.value) {
        Ok(stored) => stored,
        Err(error) => {
            tracing::error!(%error, "kill order in the store refused: no member has written it");
            return;
        }
    };
    let Some((before, after)) = brain.with(|brain, _| kill(brain, key.created_revision, &stored))
    else {
        return;
    };
    brain.notify();
    let StoredOrder { order, by, .. } = stored;
    let scope = Scope::from(order.bucket);
    let by = by.map_or_else(|| "unknown".to_owned(), |by| by.to_string());
    audit.note(
        Actor::controller("standby", by),
        Entry {
            what: format!("kill on {scope}"),
            before,
            after,
            why: order.reason.to_string(),
        },
    );
}

/// Carries out the order that was created at this revision, once. Returns the kill switch before and after; `None` if it
/// was carried out earlier, or there is no room for its bucket.
pub(super) fn kill(
    brain: &mut Brain,
    created: u64,
    StoredOrder { order, by, since_s }: &StoredOrder,
) -> Option<(String, String)> {
    let scope = Scope::from(order.bucket.clone());
    let before = describe(brain.durable(), &scope);
    let command = Command::ordered(order, by.clone(), *since_s);
    let is_killed = brain.on_stored_kill(created, &scope, command);
    let is_killed = is_killed.unwrap_or_else(|error| {
        tracing::error!(%scope, %error, "kill order that a standby has taken not carried out");
        false
    });
    is_killed.then(|| (before, describe(brain.durable(), &scope)))
}

#[cfg(test)]
mod tests {
    use plimsoll_testing::process::PATIENCE;
    use tokio::time::timeout;

    use super::*;
    use crate::Controller;
    use crate::state::store::tests::etcd::{client, elect};

    #[tokio::test]
    async fn orders_beyond_one_look_keep_none_waiting() {
        let test = "orders_beyond_one_look_keep_none_waiting";
        let Some(server) = plimsoll_testing::etcd::start(test, &[]) else {
            return;
        };
        let client = client(&server).await;
        let (store, _) = elect(&client).await;
        let order = serde_json::json!({ "order": { "reason": "x" }, "by": null, "since_s": 1 });
        let orders = (0..=ORDERS_MAX).map(|number| {
            let key = format!("{ORDERS}{number:03}");
            Operation::put(key, order.to_string(), None)
        });
        let orders = orders.fold(Transaction::default(), Transaction::then);
        client.transact(orders).await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let args = crate::tasks::tests::args(directory.path());
        let controller = Controller::open(&args).unwrap();
        let (brain, commands) = (controller.brain(), controller.commands.clone());
        let mut changes = brain.changes();
        let following = tokio::spawn(follow(store, commands));
        let killed = async {
            while !brain.with(|brain, _| brain.kills().fleet().is_killed()) {
                changes.changed().await.unwrap();
            }
        };
        timeout(PATIENCE, killed).await.unwrap();
        following.abort();
    }
}
