//! The store on a real server of etcd: takeovers, large documents, damage, a full database and deposed controllers.

use plimsoll_etcd::{Client, Error, Operation, Options, StoreAddress, Transaction};
use plimsoll_policy::PolicyTexts;
use plimsoll_policy::learning::{Minute, Sample};
use plimsoll_testing::etcd::EtcdServer;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Duration, sleep};
use xxhash_rust::xxh3::xxh3_64;

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
    // Text that compression leaves nearly as large.
    let text: String = (0..bytes / 16)
        .map(|number| format!("{:016x}", xxh3_64(&number.to_le_bytes())))
        .collect();
    let texts = format!(r#"{{"policy": "{text}", "tenants": ""}}"#);
    DurableState {
        policy: Some(Arc::new(
            serde_json::from_str::<PolicyTexts>(&texts).unwrap(),
        )),
        earlier: serde_json::from_str(r#"{"policy": "", "tenants": ""}"#).unwrap(),
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

#[tokio::test]
async fn damaged_parts_are_a_loss() {
    let Some(server) = plimsoll_testing::etcd::start("damaged_parts_are_a_loss", &[]) else {
        return;
    };
    let client = client(&server).await;
    let missing = "is missing or damaged";
    for (damaged, value, reason) in [
        (
            "state",
            "plimsoll-state 2 xxh3 0\n",
            "its format is version 2",
        ),
        ("policy", "foreign", "its policy: expected ident"),
        (
            "policy",
            "plimsoll-chunks 1\nforeign\n",
            "its list of chunks is damaged",
        ),
        ("policy", "plimsoll-chunks 1\nchunks/1\n", missing),
        ("chunks/", "", missing),
        ("chunks/", "foreign", missing),
    ] {
        let (store, _) = elect(&client).await;
        store.save(&with_policy(7, 1_300_000)).await.unwrap();
        let whole = client.get("state").await.unwrap().unwrap().value;
        let parts = client.list(damaged, 10).await.unwrap().entries;
        let damages = parts.into_iter().map(|part| match value {
            "" => Operation::delete(part.key),
            value => Operation::put(part.key, value, None),
        });
        let damages = damages.fold(Transaction::default(), Transaction::then);
        client.transact(damages).await.unwrap();
        let (next, opened) = elect(&client).await;
        let loss = opened.loss.unwrap_or_default();
        assert!(opened.durable.lost && loss.contains(reason), "{loss}");
        let kept = client.get("unreadable").await.unwrap().unwrap().value;
        assert!(kept == whole || damaged == "state");
        next.save(&with_policy(8, 1_300_000)).await.unwrap();
        assert_eq!(elect(&client).await.1.durable, with_policy(8, 1_300_000));
    }
}

/// A compaction takes the history, and never the state.
#[tokio::test]
async fn full_store_saves_after_compaction() {
    let test = "full_store_saves_after_compaction";
    let quota = ["--quota-backend-bytes", "4000000"];
    let Some(server) = plimsoll_testing::etcd::start(test, &quota) else {
        return;
    };
    let client = client(&server).await;
    let (store, _) = elect(&client).await;
    let mut refused = None;
    // The server compares the size of its file, which it writes every 100 ms.
    for epoch in 1..200 {
        refused = store
            .save(&with_policy(epoch, 400_000 + 8 * epoch as usize))
            .await
            .err();
        if refused.is_some() {
            break;
        }
    }
    let refused = refused.unwrap();
    assert!(
        matches!(refused, StoreError::Etcd(Error::NoSpace)),
        "{refused}"
    );
    server.compact();
    server.ask("/v3/maintenance/defragment", &json!({}));
    let alarms = server.ask("/v3/maintenance/alarm", &json!({}));
    for alarm in alarms["alarms"].as_array().unwrap() {
        let (of, alarm) = (&alarm["memberID"], &alarm["alarm"]);
        let disarm = json!({ "action": "DEACTIVATE", "memberID": of, "alarm": alarm });
        server.ask("/v3/maintenance/alarm", &disarm);
    }
    store.save(&with_policy(1_000, 8)).await.unwrap();
    assert_eq!(elect(&client).await.1.durable, with_policy(1_000, 8));
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
        json!({ bucket.as_str(): { "open": 1, "peaks": [], "limit": null } }),
    )
    .unwrap();
    next.write_closed(&closed).await.unwrap();
    let restored = SharedHistory::new(elect(&client).await.0)
        .read()
        .await
        .unwrap();
    assert_eq!((restored.closed, restored.losses), (closed, Vec::new()));
    assert_eq!(restored.minutes, minutes[1..]);

    // Values that no controller has written cost themselves only.
    put(&client, "history/closed", "foreign").await;
    put(&client, "history/minutes/000001/x", "foreign").await;
    let damaged = SharedHistory::new(elect(&client).await.0);
    let damaged = damaged.read().await.unwrap();
    assert_eq!(damaged.minutes, minutes[1..]);
    let losses = damaged.losses.join("\n");
    for loss in [
        "history/closed of the store: ",
        "the minute history/minutes/000001/x of the store is damaged",
    ] {
        assert!(losses.contains(loss), "{losses}");
    }
}
