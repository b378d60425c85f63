//! The fleet's key over restarts of a controller, and its state on disks that fail.

use std::fs;
use std::path::Path;
use std::sync::{Condvar, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::state::DurableState;
use crate::*;

pub(crate) fn args(directory: &Path) -> Args {
    let policy = directory.join("policy.yaml");
    fs::write(&policy, "buckets: { b: { limit: 100, coin: coherent } }").unwrap();
    Args {
        policy,
        tenants: None,
        catalogue: None,
        state_dir: directory.join("state"),
        store: Default::default(),
        events: Default::default(),
        feed_stale: Duration::from_secs(60),
        query_every: QUERY_EVERY,
        pending_max: PENDING_MAX_DEFAULT,
        decisions_per_s_max: DECISIONS_PER_S_MAX,
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        admin: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        security: SecurityArgs::default(),
    }
}

fn coherence(args: &Args) -> (CoinKey, u64) {
    let controller = Controller::open(args).unwrap();
    let coherence = controller
        .brain()
        .with(|brain, _| brain.durable().coherence())
        .unwrap();
    (coherence.key, coherence.salt)
}

#[test]
fn key_survives_restarts_but_not_loss() {
    let directory = tempfile::tempdir().unwrap();
    let args = args(directory.path());
    let (key, salt) = coherence(&args);
    assert_eq!(salt, 1);
    assert_eq!(coherence(&args), (key, 2), "the same key, salted anew");
    assert_eq!(coherence(&args), (key, 3));

    fs::remove_file(args.state_dir.join("controller.state")).unwrap();
    let (other, _) = coherence(&args);
    assert_ne!(other, key, "a lost key is replaced by another one");
    assert_eq!(coherence(&args).0, other);
    // Another fleet, another key.
    let elsewhere = tempfile::tempdir().unwrap();
    assert_ne!(coherence(&self::args(elsewhere.path())).0, other);
}

#[test]
fn state_without_a_key_gets_one() {
    let directory = tempfile::tempdir().unwrap();
    let args = args(directory.path());
    let (store, _) = Store::open(&args.state_dir).unwrap();
    store
        .save(&DurableState {
            epoch: plimsoll_core::directive::Epoch(41),
            ..DurableState::first_start()
        })
        .unwrap();
    drop(store);
    let (key, salt) = coherence(&args);
    assert_eq!(salt, 42);
    assert_eq!(coherence(&args), (key, 43));
}

#[test]
fn offline_change_is_compared_at_start() {
    let directory = tempfile::tempdir().unwrap();
    let args = args(directory.path());
    let write = |limit: u32| {
        fs::write(
            &args.policy,
            format!("buckets: {{ b: {{ limit: {limit}, mode: enforce }} }}"),
        )
        .unwrap();
    };
    let start = || {
        let brain = Controller::open(&args).unwrap().brain();
        brain.with(|brain, _| {
            let limit = brain
                .policy()
                .bucket(&plimsoll_core::names::Bucket::new("b").unwrap())
                .unwrap()
                .limit();
            let held = brain
                .policies
                .held
                .as_ref()
                .map(|held| held.reasons.join("\n"));
            (limit.per_second().unwrap().per_second(), held)
        })
    };
    write(100);
    assert_eq!(
        start(),
        (100.0, None),
        "a first start has nothing to compare with"
    );
    write(120);
    assert_eq!(start(), (120.0, None));
    write(1_000);
    let why = "b: limit 120 -> 1000 is more than 2 times up".to_owned();
    for _ in 0..2 {
        assert_eq!(
            start(),
            (120.0, Some(why.clone())),
            "over any number of restarts"
        );
    }
    write(130);
    assert_eq!(start(), (130.0, None));
    // Without the saved policy there is nothing to compare with.
    fs::remove_file(args.state_dir.join("controller.state")).unwrap();
    write(1_000);
    assert_eq!(start(), (1_000.0, None));
}

#[test]
fn kill_of_the_files_that_a_start_reads_is_an_event() {
    use crate::tasks::events::EventKind::{KillOff, KillOn};
    let directory = tempfile::tempdir().unwrap();
    let args = args(directory.path());
    let start = |kill_switch: bool| {
        let bucket = "buckets: { b: { limit: 100 } }";
        fs::write(
            &args.policy,
            format!("kill_switch: {kill_switch}\n{bucket}\n"),
        )
        .unwrap();
        let events = Controller::open(&args).unwrap().commands.events;
        let events = events.latest(usize::MAX).into_iter();
        let kills: Vec<_> = events
            .map(|event| event.kind)
            .filter(|kind| matches!(kind, KillOn | KillOff))
            .collect();
        kills
    };
    // No saver runs here, so that each start begins a new list.
    assert_eq!(start(true), [KillOn]);
    assert_eq!(start(true), []);
    assert_eq!(start(false), [KillOff]);
    assert_eq!(start(false), []);
}

/// A disk that answers again at the end of its test: the runtime would wait for it.
#[derive(Default)]
struct Disk(Arc<(Mutex<bool>, Condvar)>);

impl Disk {
    fn hang(&self, hangs: bool) {
        *self.0.0.lock().unwrap() = hangs;
        self.0.1.notify_all();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.hang(false);
    }
}

#[tokio::test]
async fn kill_survives_a_hanging_disk() {
    let directory = tempfile::tempdir().unwrap();
    let Controller {
        commands,
        store,
        kill_log,
        ..
    } = Controller::open(&args(directory.path())).unwrap();
    let brain = commands.brain.clone();
    let disk = Disk::default();
    disk.hang(true);
    let hanging = Arc::clone(&disk.0);
    let save = move |durable: &DurableState| {
        let (hangs, changed) = &*hanging;
        drop(
            changed
                .wait_while(hangs.lock().unwrap(), |hangs| *hangs)
                .unwrap(),
        );
        store.save(durable)
    };
    let stop = CancellationToken::new();
    let saving = tokio::spawn(tasks::save::run(commands, save, kill_log, stop.clone()));
    let until = async |what: &str, wanted: fn(&Brain) -> bool| {
        let mut changes = brain.changes();
        let reached = async {
            while !brain.with(|brain, _| wanted(brain)) {
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(120), reached)
            .await
            .unwrap_or_else(|_| panic!("{what}"));
    };
    // The task listens for changes from here on.
    tokio::task::yield_now().await;
    let kill = crate::state::Command::default();
    brain
        .with(|brain, _| brain.on_kill(&plimsoll_core::kill::Scope::Fleet, kill))
        .unwrap();
    assert!(
        !brain.with(|brain, _| brain.is_in_effect()),
        "it waits for the disk at first"
    );
    brain.notify();
    until("the kill is not in effect", Brain::is_in_effect).await;
    brain.with(|brain, _| {
        let failure = brain.pending_saves.failure.as_deref();
        assert!(
            !brain.is_saved() && failure.unwrap().contains("no answer from the disk"),
            "{failure:?}"
        );
    });
    disk.hang(false);
    until("the kill is not saved", Brain::is_saved).await;
    assert_eq!(
        brain.with(|brain, _| brain.pending_saves.failure.clone()),
        None
    );
    disk.hang(true);
    stop.cancel();
    saving.await.unwrap();
    // A last save that hangs keeps the directory until the disk answers.
    drop(disk);
    let opened = async {
        loop {
            if let Ok((_, opened)) = Store::open(&directory.path().join("state")) {
                return opened;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let opened = tokio::time::timeout(Duration::from_secs(120), opened)
        .await
        .unwrap();
    assert!(opened.durable.kill.is_killed());
}

#[tokio::test]
async fn last_event_is_saved_after_the_servers_ended() {
    let directory = tempfile::tempdir().unwrap();
    let args = args(directory.path());
    let listener = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listeners = Listeners {
        grpc: listener().await,
        admin: listener().await,
    };
    let grpc = listeners.grpc.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let controller = Controller::open(&args).unwrap();
    let served = tokio::spawn(controller.serve(listeners, shutdown.clone()));
    // A peer that answers no ping keeps the server, for as long as it waits for peers.
    let mut peer = TcpStream::connect(grpc).await.unwrap();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    peer.write_all(preface).await.unwrap();
    peer.read_u8().await.unwrap();
    shutdown.cancel();
    served.await.unwrap().unwrap();
    let saved = fs::read_to_string(args.state_dir.join("events.ndjson")).unwrap();
    let last = saved.lines().last().unwrap();
    assert!(last.contains("controller_stopped"), "{last}");
}
