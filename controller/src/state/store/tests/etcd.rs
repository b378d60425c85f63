//! The store on a real server of etcd: takeovers, large documents, damage and deposed controllers.

use plimsoll_etcd::{Client, Operation, Options, StoreAddress, Transaction};
use plimsoll_policy::PolicyTexts;
use plimsoll_policy::learning::{Minute, Sample};
use plimsoll_testing::etcd::EtcdServer;
use tokio::sync::Notify;
use tokio::time::{Duration, sleep};

use super::super::etcd::{EtcdStore, LEADER};
use super::*;
use crate::history::store::shared::SharedHistory;
use crate::history::{ClosedDays, MinuteSamples};

pub(crate) async fn client(server: &EtcdServer) -> Client {
    let address: StoreAddress = format!("etcd://{}/p", server.address).parse().unwrap();
    let client = Client::connect(&address, Options::default()).unwrap();
    while client.get(LEADER).await.is_err() {
        sleep(Duration::from_millis(20)).await;
    }
    client
}

async fn put(client: &Client, key: &'static str, value: &'static str) {
    let put = Operation::put(key, value, None);
    client
        .transact(Transaction::default().then(put))
        .await
        .unwrap();
}

/// Makes another leader, and opens the store for it.
pub(crate) async fn elect(client: &Client) -> (Arc<EtcdStore>, Opened) {
    let delete = Transaction::default().then(Operation::delete(LEADER));
    client.transact(delete).await.unwrap();
    put(client, LEADER, "someone").await;
    let lead = client.get(LEADER).await.unwrap().unwrap().created_revision;
    let opened = EtcdStore::open(client.clone(), lead, Arc::new(Notify::new())).await;
    let (store, opened) = opened.unwrap();
    (Arc::new(store), opened)
}

fn with_policy(epoch: u64, bytes: usize) -> DurableState {
    let text: String = (0..bytes / 8)
        .map(|number| format!("{number:08}"))
        .collect();
    let texts = format!(r#"{{"policy": "{text}", "tenants": ""}}"#);
    DurableState {
        policy: Some(Arc::new(
            serde_json::from_str::<PolicyTexts>(&texts).unwrap(),
        )),
        ..state(epoch)
    }
}

#[tokio::test]
async fn only_the_leader_writes_and_the_next_one_reads() {
    let test = "only_the_leader_writes_and_the_next_one_reads";
    let Some(server) = plimsoll_testing::etcd::start(test, &[]) else {
        return;
    };
    let client = client(&server).await;
    let (first, opened) = elect(&client).await;
    assert_eq!((opened.durable, opened.loss), (state(0), None));
    let chunks = async || client.list("chunks/", 100).await.unwrap().entries.len();
    // A policy of four chunks gives way to one of three, and to one without.
    for (bytes, count) in [(1_800_000, 4), (1_300_000, 3), (1_000, 0)] {
        first.save(&with_policy(7, bytes)).await.unwrap();
        assert_eq!(chunks().await, count);
        let read = EtcdStore::unled(client.clone()).read_state().await;
        assert_eq!(read.unwrap(), Some(with_policy(7, bytes)));
    }
    let (second, opened) = elect(&client).await;
    assert_eq!(opened.durable, with_policy(7, 1_000));
    second.save(&with_policy(8, 1_000)).await.unwrap();
    let refused = first.save(&state(9)).await.unwrap_err();
    assert!(matches!(refused, StoreError::Deposed), "{refused}");

    // A damaged state is kept, and every bucket begins in shadow.
    put(&client, "state", "foreign").await;
    let (third, opened) = elect(&client).await;
    assert!(opened.durable.lost);
    let loss = opened.loss.unwrap();
    assert!(
        loss.contains("its header is damaged") && loss.contains("`unreadable`"),
        "{loss}"
    );
    let kept = client.get("unreadable").await.unwrap().unwrap();
    assert_eq!(kept.value, "foreign");
    third.save(&state(1)).await.unwrap();
    assert_eq!(elect(&client).await.1.durable, state(1));
}

/// A second handle of one leader stands for its write whose answer was lost, and which arrives late.
#[tokio::test]
async fn late_write_replaces_no_later_state() {
    let test = "late_write_replaces_no_later_state";
    let Some(server) = plimsoll_testing::etcd::start(test, &[]) else {
        return;
    };
    let client = client(&server).await;
    let (store, _) = elect(&client).await;
    store.save(&with_policy(1, 8)).await.unwrap();
    let lead = client.get(LEADER).await.unwrap().unwrap().created_revision;
    let late = EtcdStore::open(client.clone(), lead, Arc::default()).await;
    let late = late.unwrap().0;
    store.save(&with_policy(3, 80)).await.unwrap();
    let overtaken = late.save(&with_policy(2, 16)).await.unwrap_err();
    assert!(matches!(overtaken, StoreError::Overtaken), "{overtaken}");
    assert_eq!(store.read_state().await.unwrap(), Some(with_policy(3, 80)));
    // It reads what the store has before it writes again: the policy that it knew is not the one there.
    late.save(&with_policy(4, 8)).await.unwrap();
    assert_eq!(store.read_state().await.unwrap(), Some(with_policy(4, 8)));
}

#[tokio::test]
async fn next_leader_goes_on_learning() {
    let Some(server) = plimsoll_testing::etcd::start("next_leader_goes_on_learning", &[]) else {
        return;
    };
    let client = client(&server).await;
    let minute = |number| {
        let sample = Sample {
            offered: plimsoll_core::quantity::Rate::new(5.0).unwrap(),
            clean: true,
        };
        let bucket = plimsoll_core::names::Bucket::new("api").unwrap();
        MinuteSamples {
            minute: Minute(number),
            samples: [(bucket, sample)].into(),
        }
    };
    let history = SharedHistory::new(elect(&client).await.0);
    // The last minute of a day, and the first ones of the next.
    let minutes = [1_439, 1_440, 1_441].map(minute);
    for minute in &minutes {
        history.write(minute).await.unwrap();
    }
    let next = SharedHistory::new(elect(&client).await.0);
    assert_eq!(next.read().await.unwrap().minutes, minutes);
    assert!(
        history.write(&minutes[0]).await.is_err(),
        "a deposed leader learns nothing"
    );

    let bucket = plimsoll_core::names::Bucket::new("api").unwrap();
    let closed: ClosedDays = serde_json::from_value(
        serde_json::json!({ bucket.as_str(): { "open": 1, "peaks": [], "limit": null } }),
    )
    .unwrap();
    next.write_closed(&closed).await.unwrap();
    let restored = SharedHistory::new(elect(&client).await.0)
        .read()
        .await
        .unwrap();
    assert_eq!((restored.closed, restored.losses), (closed, Vec::new()));
    assert_eq!(restored.minutes, minutes[1..]);
}
