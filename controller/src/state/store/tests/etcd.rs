//! The state in a real etcd, if one is installed.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_etcd::{Client, Condition, Operation, Options, Transaction};
use plimsoll_policy::{ONE_CLASS_TENANTS, Policy, PolicyTexts, Source};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::super::etcd::{EtcdStore, LEADER};
use super::*;

struct Etcd {
    process: Child,
    _folder: tempfile::TempDir,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts a server. Returns `None` if etcd is not installed.
async fn start() -> Option<(Etcd, Client)> {
    let folder = tempfile::tempdir().unwrap();
    let free = || {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", socket.local_addr().unwrap())
    };
    let (clients, peers) = (free(), free());
    let data = folder.path().display().to_string();
    let cluster = format!("default={peers}");
    let mut command = Command::new("etcd");
    for (flag, value) in [
        ("--data-dir", &data),
        ("--listen-client-urls", &clients),
        ("--advertise-client-urls", &clients),
        ("--listen-peer-urls", &peers),
        ("--initial-advertise-peer-urls", &peers),
        ("--initial-cluster", &cluster),
    ] {
        command.arg(flag).arg(value);
    }
    let Ok(process) = command.stderr(Stdio::null()).spawn() else {
        eprintln!("skipped: etcd is not installed");
        return None;
    };
    let etcd = Etcd {
        process,
        _folder: folder,
    };
    let address = format!("{}/test", clients.replace("http", "etcd"));
    let client = Client::connect(&address.parse().unwrap(), Options::default()).unwrap();
    for _ in 0..200 {
        if client.get(LEADER).await.is_ok() {
            return Some((etcd, client));
        }
        sleep(Duration::from_millis(50)).await;
    }
    panic!("etcd does not start");
}

async fn elect(client: &Client) -> u64 {
    let lead = Transaction::default()
        .when(Condition::absent(LEADER))
        .then(Operation::put(LEADER, b"one".as_slice(), None));
    client.transact(lead).await.unwrap().revision
}

fn texts(limit: u32) -> Option<Arc<PolicyTexts>> {
    let text = format!("buckets: {{ api: {{ limit: {limit} }} }}\n");
    let source = |name, text| Source { name, text };
    let policy = source("policy.yaml", text.as_str());
    let (policy, _) = Policy::read(policy, source("tenants.yaml", ONE_CLASS_TENANTS)).unwrap();
    Some(Arc::clone(policy.texts()))
}

/// A second handle of one leader stands for its write whose answer was lost, and which arrives late.
#[tokio::test]
async fn late_write_replaces_no_later_state() {
    let Some((_etcd, client)) = start().await else {
        return;
    };
    let lead = elect(&client).await;
    let deposed = Arc::new(Notify::new());
    let open = || EtcdStore::open(client.clone(), lead, Arc::clone(&deposed));
    let with = |epoch, limit| DurableState {
        policy: texts(limit),
        ..state(epoch)
    };
    let (store, _) = open().await.unwrap();
    store.save(&with(1, 1)).await.unwrap();
    let (late, _) = open().await.unwrap();
    store.save(&with(3, 3)).await.unwrap();
    let overtaken = late.save(&with(2, 2)).await;
    assert!(
        matches!(overtaken, Err(StoreError::Overtaken)),
        "{overtaken:?}"
    );
    let stored = open().await.unwrap().1.durable;
    assert_eq!(stored, with(3, 3));
    // It reads what the store has before it writes again: the policy that it knew is not the one there.
    late.save(&with(4, 1)).await.unwrap();
    let stored = open().await.unwrap().1.durable;
    assert_eq!(stored, with(4, 1));

    let resign = Transaction::default().then(Operation::delete(LEADER));
    client.transact(resign).await.unwrap();
    elect(&client).await;
    let refused = late.save(&with(5, 1)).await;
    assert!(matches!(refused, Err(StoreError::Deposed)), "{refused:?}");
    deposed.notified().await;
}
