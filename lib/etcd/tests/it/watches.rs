//! Leases that end, and watches that see it.

use std::time::Duration;

use plimsoll_etcd::{Error, Event, LeaseId, Operation, Options, Transaction};
use tokio::time::timeout;

use crate::server::{connect, free_addresses, ready, start};

fn put(key: &'static str, lease: Option<LeaseId>) -> Transaction {
    Transaction::default().then(Operation::put(key, "value", lease))
}

fn key(event: &Event) -> &[u8] {
    match event {
        Event::Put(entry) => &entry.key,
        Event::Deleted { key, .. } => key,
    }
}

#[tokio::test]
async fn watch_sees_lease_end() {
    let Some(server) = start("watch_sees_lease_end", &[]) else {
        return;
    };
    let client = server.client().await;
    let lease = client.grant(1).await.unwrap();
    assert!((1..=2).contains(&lease.ttl_s));
    let written = client.transact(put("up/a", Some(lease.id))).await.unwrap();
    client.transact(put("other", None)).await.unwrap();
    assert_eq!(
        client.get("up/a").await.unwrap().unwrap().lease,
        Some(lease.id)
    );
    let mut watch = client.watch("up/", written.revision);
    assert!(matches!(&watch.next().await.unwrap()[..], [Event::Put(entry)] if entry.key == "up/a"));
    // Renewed leases last.
    for _ in 0..4 {
        assert_eq!(client.keep_alive(lease.id).await.unwrap(), lease);
        assert!(
            timeout(Duration::from_secs(lease.ttl_s) / 2, watch.next())
                .await
                .is_err()
        );
    }
    let ended = watch.next().await.unwrap();
    assert!(
        matches!(&ended[..], [Event::Deleted { key, .. }] if key == "up/a"),
        "{ended:?}"
    );
    assert_eq!(client.get("up/a").await.unwrap(), None);
    assert_eq!(client.keep_alive(lease.id).await, Err(Error::LeaseNotFound));
    assert_eq!(client.revoke(lease.id).await, Err(Error::LeaseNotFound));
    let error = client.transact(put("up/a", Some(lease.id))).await;
    assert_eq!(error, Err(Error::LeaseNotFound));

    let lease = client.grant(60).await.unwrap();
    client.transact(put("up/b", Some(lease.id))).await.unwrap();
    client.revoke(lease.id).await.unwrap();
    assert_eq!(client.get("up/b").await.unwrap(), None);
}

#[tokio::test]
async fn compacted_history_is_an_error() {
    let Some(server) = start("compacted_history_is_an_error", &[]) else {
        return;
    };
    let client = server.client().await;
    for _ in 0..5 {
        client.transact(put("key", None)).await.unwrap();
    }
    server.post("/v3/kv/compaction", r#"{"revision": 4}"#);
    let mut watch = client.watch("", 2);
    assert_eq!(watch.next().await, Err(Error::Compacted { revision: 4 }));
    let events = client.watch("", 5).next().await.unwrap();
    assert_eq!(events.len(), 2);
}

#[tokio::test]
async fn watch_continues_after_restart() {
    let Some(mut server) = start("watch_continues_after_restart", &[]) else {
        return;
    };
    let [dead] = free_addresses();
    let client = connect(&[dead, server.address], Options::default());
    ready(&client).await;
    let mut watch = client.watch("", 1);
    for (key_written, stops) in [("a", false), ("b", true), ("c", true)] {
        if stops {
            server.stop();
            let error = watch.next().await.unwrap_err();
            assert!(matches!(error, Error::Unreachable { .. }), "{error}");
            server.start();
            ready(&client).await;
        }
        client.transact(put(key_written, None)).await.unwrap();
        let events = timeout(Duration::from_secs(10), watch.next())
            .await
            .unwrap()
            .unwrap();
        let keys: Vec<_> = events.iter().map(key).collect();
        assert_eq!(keys, [key_written.as_bytes()]);
    }
    // Larger events than one answer may have.
    for i in 0..12 {
        let value = vec![7; plimsoll_etcd::VALUE_BYTES_MAX];
        let large = Operation::put(format!("large/{i}"), value, None);
        client
            .transact(Transaction::default().then(large))
            .await
            .unwrap();
    }
    let mut watch = client.watch("large/", 1);
    let mut seen = Vec::new();
    while seen.len() < 12 {
        seen.extend(watch.next().await.unwrap());
    }
    assert_eq!(seen.len(), 12);
}
