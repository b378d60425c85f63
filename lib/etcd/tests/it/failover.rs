//! Endpoints that are dead or frozen, and clusters without a majority.

use std::fs;
use std::net::TcpListener;
use std::time::Duration;

use plimsoll_etcd::{Client, Error, Operation, Options, Transaction};
use tokio::time::{Instant, sleep};

use plimsoll_testing::etcd::{start, start_cluster};
use plimsoll_testing::process::free_addresses;

use crate::server::{client, connect, ready};

async fn put(client: &Client) -> Result<(), Error> {
    let transaction = Transaction::default().then(Operation::put("key", "value", None));
    client.transact(transaction).await.map(|_| ())
}

#[tokio::test]
async fn dead_endpoints_are_passed_over() {
    let Some(server) = start("dead_endpoints_are_passed_over", &[]) else {
        return;
    };
    client(&server).await;
    let [dead, dead_too] = free_addresses();
    let client = connect(&[dead, server.address, dead_too], Options::default());
    put(&client).await.unwrap();
    assert!(client.get("key").await.unwrap().is_some());
    let status = client.status().await;
    let member = status[1].member.as_ref().unwrap();
    assert_eq!(status[1].endpoint, server.address.to_string());
    assert!(member.is_leader && member.problems.is_empty());
    assert!(
        member.version.starts_with("3.") && member.database_bytes > 0,
        "{member:?}"
    );
    for dead in [&status[0], &status[2]] {
        assert!(
            matches!(dead.member, Err(Error::Unreachable { .. })),
            "{dead:?}"
        );
    }

    // An endpoint that takes connections, and is silent: a read is sent on, and a change is not.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoints = [silent.local_addr().unwrap(), server.address];
    let options = Options {
        request_timeout: Duration::from_secs(1),
        ..Options::default()
    };
    let reader = connect(&endpoints, options.clone());
    assert!(reader.get("key").await.unwrap().is_some());
    let writer = connect(&endpoints, options);
    let error = put(&writer).await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error}");
    put(&writer).await.unwrap();

    let client = connect(&[dead, dead_too], Options::default());
    let error = put(&client).await.unwrap_err();
    let Error::Unreachable { causes } = &error else {
        panic!("{error}");
    };
    let refused = "Connection refused (os error 111)";
    assert_eq!(*causes, format!("{dead}: {refused}; {dead_too}: {refused}"));
}

#[tokio::test]
async fn lost_answer_to_a_change_is_unknown() {
    let Some(server) = start("lost_answer_to_a_change_is_unknown", &[]) else {
        return;
    };
    client(&server).await;
    let options = Options {
        request_timeout: Duration::from_secs(1),
        ..Options::default()
    };
    let client = connect(&[server.address], options);
    ready(&client).await;
    server.process().signal("STOP");
    // A signal takes its time.
    let status = format!("/proc/{}/status", server.process().id());
    while !fs::read_to_string(&status).unwrap().contains("T (stopped)") {
        sleep(Duration::from_millis(5)).await;
    }
    let began = Instant::now();
    let error = put(&client).await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error}");
    let error = client.get("key").await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(began.elapsed() < Duration::from_secs(8));
    server.process().signal("CONT");
    ready(&client).await;
    put(&client).await.unwrap();
}

#[tokio::test]
async fn cluster_without_majority_gives_errors() {
    let Some(mut servers) = start_cluster("cluster_without_majority_gives_errors") else {
        return;
    };
    let addresses = [0, 1, 2].map(|i: usize| servers[i].address);
    let client = connect(&addresses, Options::default());
    ready(&client).await;
    put(&client).await.unwrap();
    let status = client.status().await;
    let leaders = status
        .iter()
        .filter(|status| status.member.as_ref().is_ok_and(|m| m.is_leader));
    assert_eq!(leaders.count(), 1);

    servers[0].stop();
    ready(&client).await;
    put(&client).await.unwrap();
    servers[1].stop();
    // The last member follows a leader until it has missed enough of its heartbeats.
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let began = Instant::now();
        let error = put(&client).await.unwrap_err();
        assert!(
            began.elapsed() < Duration::from_secs(4),
            "{:?}",
            began.elapsed()
        );
        if error == Error::NoLeader {
            break;
        }
        assert!(Instant::now() < end, "{error}");
    }
    assert_eq!(client.get("key").await, Err(Error::NoLeader));
    let last = client.status().await.remove(2).member.unwrap();
    assert!(!last.is_leader, "{last:?}");
    servers[0].start();
    ready(&client).await;
    put(&client).await.unwrap();
}
