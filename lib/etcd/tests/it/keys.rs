//! Reads and guarded transactions.

use plimsoll_etcd::{Condition, Error, Operation, Transaction, VALUE_BYTES_MAX};
use plimsoll_testing::etcd::start;

use crate::server::client;

fn put(key: &'static str, value: &'static str) -> Transaction {
    Transaction::default().then(Operation::put(key, value, None))
}

#[tokio::test]
async fn transactions_are_guarded() {
    let Some(server) = start("transactions_are_guarded", &[]) else {
        return;
    };
    let client = client(&server).await;
    assert_eq!(client.get("leader").await.unwrap(), None);
    let claim = |owner: &'static str| {
        put("leader", owner)
            .when(Condition::absent("leader"))
            .or_else(Operation::get("leader"))
            .or_else(Operation::get("nothing"))
    };
    let first = client.transact(claim("a")).await.unwrap();
    assert!(first.succeeded && first.reads.is_empty());
    let second = client.transact(claim("b")).await.unwrap();
    let held = client.get("leader").await.unwrap().unwrap();
    assert_eq!(
        (second.succeeded, second.reads),
        (false, vec![Some(held.clone()), None])
    );
    assert_eq!((&*held.key, &*held.value), (&b"leader"[..], &b"a"[..]));
    assert_eq!(held.created_revision, first.revision);

    let written = client.transact(put("leader", "a2")).await.unwrap().revision;
    let cases = [
        (Condition::absent("leader"), false),
        (Condition::created_at("leader", first.revision), true),
        (Condition::created_at("leader", written), false),
        (Condition::modified_at("leader", written), true),
        (Condition::modified_at("leader", first.revision), false),
        (Condition::modified_at("nothing", 0), true),
    ];
    for (condition, holds) in cases {
        let transaction = put("state", "x").when(condition.clone());
        let committed = client.transact(transaction).await.unwrap();
        assert_eq!(committed.succeeded, holds, "{condition:?}");
    }
    let delete = Transaction::default().then(Operation::delete("leader"));
    client.transact(delete).await.unwrap();
    assert_eq!(client.get("leader").await.unwrap(), None);
}

#[tokio::test]
async fn listing_has_one_revision_and_bounds() {
    let Some(server) = start("listing_has_one_revision_and_bounds", &[]) else {
        return;
    };
    let client = client(&server).await;
    // More than a page, and pages of more than one answer may have.
    for batch in 0..3 {
        let puts = (0..100).map(|i| format!("zones/{:03}", 100 * batch + i));
        let transaction = puts.fold(Transaction::default(), |transaction, key| {
            transaction.then(Operation::put(key, "zone", None))
        });
        client.transact(transaction).await.unwrap();
    }
    let large = vec![7; VALUE_BYTES_MAX];
    for i in 0..10 {
        let transaction = Operation::put(format!("large/{i}"), large.clone(), None);
        let transaction = Transaction::default().then(transaction);
        client.transact(transaction).await.unwrap();
    }
    let zones = client.list("zones/", 300).await.unwrap();
    let keys: Vec<_> = zones
        .entries
        .iter()
        .map(|entry| entry.key.clone())
        .collect();
    let expected: Vec<String> = (0..300).map(|i| format!("zones/{i:03}")).collect();
    assert_eq!(keys, expected);
    assert_eq!(zones.revision, 14);
    let all = client.list("", 1_000).await.unwrap();
    assert_eq!(all.entries.len(), 310);
    assert_eq!(all.entries[9].value.len(), VALUE_BYTES_MAX);
    let error = client.list("zones/", 299).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "more than 299 keys of the store begin alike"
    );
    assert!(client.list("none/", 0).await.unwrap().entries.is_empty());

    let delete = Transaction::default().then(Operation::delete_prefix("zones/"));
    client.transact(delete).await.unwrap();
    assert_eq!(client.list("", 10).await.unwrap().entries.len(), 10);

    let too_large = Transaction::default()
        .then(Operation::put("a", large.clone(), None))
        .then(Operation::put("b", large.clone(), None));
    let too_many = (0..129).fold(Transaction::default(), |transaction, _| {
        transaction.then(Operation::get("a"))
    });
    let longer = Operation::put("a", vec![0; VALUE_BYTES_MAX + 1], None);
    let error = client.transact(too_large).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    let error = client.transact(too_many).await.unwrap_err();
    assert!(error.to_string().contains("too many operations"), "{error}");
    let error = client
        .transact(Transaction::default().then(longer))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "a value has 1048577 bytes, maximum 1048576"
    );
    // Its answer is larger than the client takes, so whether it was applied cannot be told.
    let reads = (0..10).fold(Transaction::default(), |transaction, i| {
        transaction.then(Operation::get(format!("large/{i}")))
    });
    let error = client.transact(reads).await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error}");
}
