//! A parent with several addresses: the child finds the controller that leads, and follows the lead.

use std::net::SocketAddr;

use plimsoll_proto::transport::Security;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::scripted::{ChildEvent, ParentEvent, Running, Server, Standby, check_serving, until};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);
const PLAIN: Security = Security::Plain { anywhere: false };

fn one_of(uris: &[String]) -> Running {
    let uris: Vec<&str> = uris.iter().map(String::as_str).collect();
    Running::one_of(&uris, &PLAIN)
}

/// Waits for the end of a stream. Panics if it has greeted.
async fn probed(events: &mut UnboundedReceiver<ParentEvent>) {
    until(events, |event| match event {
        ParentEvent::Closed(_) => Some(()),
        ParentEvent::Report(_, report) => panic!("a probe sent {report:?}"),
        ParentEvent::Answered(_) => None,
    })
    .await;
}

async fn renewed(child: &mut Running) {
    until(&mut child.events, |event| match event {
        ChildEvent::Renewed => Some(()),
        ChildEvent::Disconnected(error) => panic!("the stream was lost: {error}"),
        ChildEvent::Connected => panic!("a move is no new connection"),
        _ => None,
    })
    .await;
}

/// Drains the events of a parent whose child is connected elsewhere.
fn drain(server: &mut Server) {
    while server.events.try_recv().is_ok() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_is_found_among_standbys() {
    let standbys = [Standby::start().await, Standby::start().await];
    let mut leader = Server::leading(ANY, 5);
    let mut child = one_of(&[standbys[0].uri(), standbys[1].uri(), leader.uri()]);
    child.applied_limit(1).await;
    leader.greeted().await;
    child.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_hint_is_ignored() {
    let mut foreign = Server::leading(ANY, 5);
    let standby = Standby::start().await;
    standby.leader.send_replace(Some(foreign.uri()));
    let mut child = one_of(&[standby.uri()]);
    for _ in 0..3 {
        let error = child.disconnected().await;
        assert!(error.contains("does not lead"), "{error}");
    }
    assert_eq!(foreign.connections.counts().pending, 0);
    assert!(foreign.events.try_recv().is_err());
    child.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn child_follows_the_lead_after_a_death() {
    let first = Server::leading(ANY, 5);
    let standby = Standby::start().await;
    standby.leader.send_replace(Some(first.uri()));
    let mut child = one_of(&[standby.uri(), first.uri()]);
    child.applied_limit(1).await;
    first.die().await;
    child.disconnected().await;
    // The standby still names the dead leader.
    until(&mut child.events, |event| match event {
        ChildEvent::Disconnected(error) => error.contains("does not lead").then_some(()),
        _ => None,
    })
    .await;
    let mut second = Server::leading(standby.stop().await, 6);
    child.applied_limit(1).await;
    second.greeted().await;
    child.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unconfirmed_parent_is_left_for_a_later_leader() {
    let mut first = Server::leading(ANY, 5);
    let standby = Standby::start().await;
    let mut child = one_of(&[first.uri(), standby.uri()]);
    child.applied_limit(1).await;
    first.set_unconfirmed(true);
    let mut second = Server::leading(standby.stop().await, 6);
    renewed(&mut child).await;
    second.greeted().await;
    until(&mut first.events, |event| match event {
        ParentEvent::Report(_, report) => {
            assert!(!report.leaving, "a move is no farewell");
            None
        }
        ParentEvent::Closed(_) => Some(()),
        ParentEvent::Answered(_) => None,
    })
    .await;
    // It looks at the first one again, and stays.
    second.set_unconfirmed(true);
    probed(&mut first.events).await;
    probed(&mut first.events).await;
    while child.events.try_recv().is_ok() {}
    child.applied().await;
    drain(&mut second);
    child.stop().await;
    second.reported(|report| report.leaving.then_some(())).await;
}

/// Before the answer a child has no counts to report.
#[tokio::test(flavor = "multi_thread")]
async fn stop_during_a_move_awaits_the_answer() {
    let first = Server::leading(ANY, 5);
    let standby = Standby::start().await;
    let mut child = one_of(&[first.uri(), standby.uri()]);
    child.applied_limit(1).await;
    let second = Server::leading(standby.stop().await, 6);
    // The second parent opens streams, and answers no greeting while its state is locked.
    let (locked, is_locked) = std::sync::mpsc::channel();
    let (unlock, unlocked) = std::sync::mpsc::channel::<()>();
    let parent = second.parent.clone();
    let lock = std::thread::spawn(move || {
        parent.with(|_, _| {
            locked.send(()).unwrap();
            unlocked.recv().unwrap();
        });
    });
    is_locked.recv().unwrap();
    first.set_unconfirmed(true);
    until(&mut child.events, |event| {
        matches!(event, ChildEvent::Opened).then_some(())
    })
    .await;
    child.shutdown.cancel();
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    unlock.send(()).unwrap();
    lock.join().unwrap();
    let mut reports = 0;
    until(&mut child.events, |event| match event {
        ChildEvent::Reported => {
            reports += 1;
            None
        }
        ChildEvent::Applied(_) => Some(()),
        _ => None,
    })
    .await;
    assert_eq!(reports, 1, "the greeting alone");
    child.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_and_earlier_epochs_are_left_alone() {
    let parent = Server::leading(ANY, 5);
    let mut others = [Server::leading(ANY, 5), Server::leading(ANY, 4)];
    // An aggregator names no epoch.
    let mut unnamed = Server::start(9);
    let [equal, earlier] = &mut others;
    let mut child = one_of(&[parent.uri(), equal.uri(), earlier.uri(), unnamed.uri()]);
    child.applied_limit(1).await;
    parent.set_unconfirmed(true);
    probed(&mut equal.events).await;
    probed(&mut earlier.events).await;
    probed(&mut unnamed.events).await;
    while let Ok(event) = child.events.try_recv() {
        assert!(
            matches!(event, ChildEvent::Reported | ChildEvent::Applied(_)),
            "{event:?}"
        );
    }
    child.applied().await;
    child.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_is_alive() {
    let standby = Standby::start().await;
    check_serving(standby.uri()).await;
    standby.stop().await;
}
