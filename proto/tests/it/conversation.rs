//! A conversation from the greeting to the farewell, and how it goes on when the parent dies in between.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::bucket::{Bucket, Key, KeyId, Tenant};
use plimsoll_core::directive::{BucketDirective, Epoch};
use plimsoll_core::report::{Counts, KeyDefinition, Report, Tallies, Tally};
use plimsoll_core::roster::HEARTBEAT;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::scripted::{ChildEvent, ParentEvent, Running, Server, directive, mute, patiently, until};

#[tokio::test(flavor = "multi_thread")]
async fn the_first_state_answers_the_greeting_at_once() {
    let mut server = Server::start(9);
    let mut child = Running::greet(&server.uri());
    let first = child.told().await;
    assert_eq!((first.seq, first.echo.covered), (1, 1));
    assert_eq!(first.buckets, [directive(1, 0)]);
    let waited = until(&mut server.events, |event| match event {
        ParentEvent::Told(waited) => Some(waited),
        ParentEvent::Report(..) | ParentEvent::Closed(_) => None,
    });
    assert!(waited.await < HEARTBEAT / 2);
    child.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_arrive_in_order_and_reports_at_the_interval_the_parent_asks_for() {
    let mut server = Server::start(9);
    // The child would wait an hour; the first state asks for less.
    let mut child = Running::start(&server.uri(), Report::default(), Duration::from_secs(3_600));
    child.told_limit(1).await;
    for limit in 2..20 {
        server.post(&directive(limit, 0));
        child.told_limit(limit).await;
    }
    let mut due = 1..=10;
    until(&mut server.events, |event| {
        if let ParentEvent::Report(_, report) = event {
            assert_eq!(Some(report.seq), due.next());
            assert_eq!(report.identity.is_some(), report.seq == 1);
        }
        due.is_empty().then_some(())
    })
    .await;
    child.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_larger_than_a_message_travels_in_parts_and_arrives_whole() {
    let mut server = Server::start(9);
    let name = |number: usize| format!("{number:0>128}");
    let definition = |number| KeyDefinition {
        key: Key { bucket: Bucket::new(&name(0)).unwrap(), tenant: Tenant::new(&name(number)).unwrap() },
        base: Counts::ZERO,
        sent: Counts::ZERO,
        continues: false,
    };
    let definitions: BTreeMap<KeyId, KeyDefinition> =
        (0..).map(KeyId).zip((0..10_000).map(definition)).collect();
    let tally = Tally {
        counts: Counts { offered: 5, dropped: 2, would_dropped: 0, ..Counts::ZERO },
        late: Counts::ZERO,
    };
    let tallies: Tallies = definitions.keys().map(|id| (*id, tally)).collect();
    server.parent.with(|parent, _| parent.post(&directive(2, 5_000)));

    let greeting = Report { definitions, tallies, ..Report::default() };
    let mut child = Running::start(&server.uri(), greeting.clone(), Duration::from_millis(20));
    assert_eq!(child.told().await.buckets, [directive(2, 5_000)]);
    let heard = until(&mut server.events, |event| match event {
        ParentEvent::Report(_, report) => Some(report),
        ParentEvent::Told(_) | ParentEvent::Closed(_) => None,
    })
    .await;
    assert_eq!(
        (heard.seq, &heard.definitions, &heard.tallies),
        (1, &greeting.definitions, &greeting.tallies)
    );
    child.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_old_is_refused_and_the_conversation_goes_on() {
    let server = Server::start(9);
    let mut child = Running::greet(&server.uri());
    child.told_limit(1).await;
    server.parent.with(|parent, _| parent.epoch = Epoch(4));
    server.post(&directive(2, 0));
    let why = until(&mut child.events, |event| match event {
        ChildEvent::Refused(why) => Some(why),
        ChildEvent::Disconnected(why) => panic!("the stream ended: {why}"),
        _ => None,
    })
    .await;
    assert!(why.contains("older"), "{why}");
    server.parent.with(|parent, _| parent.epoch = Epoch(6));
    server.post(&directive(3, 0));
    let next = child.told().await;
    let changed = BucketDirective { whole: false, ..directive(3, 0) };
    assert_eq!((next.epoch, next.buckets), (Some(Epoch(6)), vec![changed]));
    child.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_comes_back_when_its_parent_does() {
    let server = Server::start(9);
    let mut child = Running::greet(&server.uri());
    child.told_limit(1).await;
    let address = server.die().await;
    child.disconnected().await;

    let mut server = Server::start_at(address, 9);
    server.post(&directive(2, 0));
    let first = child.told().await;
    assert_eq!((first.seq, first.echo.covered), (1, 1), "a stream of its own");
    assert_eq!(first.buckets, [directive(2, 0)]);
    until(&mut server.events, |event| match event {
        ParentEvent::Report(_, report) => report.identity.map(|_| assert_eq!(report.seq, 1)),
        ParentEvent::Told(_) | ParentEvent::Closed(_) => None,
    })
    .await;
    child.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_that_stops_says_so_and_waits_for_nobody() {
    let mut server = Server::start(9);
    let mut child = Running::greet(&server.uri());
    child.told_limit(1).await;
    // One who has not said yet who it is.
    let mut silent = server.stream().await;
    server.closing.cancel();
    assert!(child.disconnected().await.contains("this parent stops"));
    let status = patiently(silent.directives.message()).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    server.served().await;
    child.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_stops_says_farewell() {
    let mut server = Server::start(9);
    let mut child = Running::greet(&server.uri());
    child.told_limit(1).await;
    child.stop().await;
    let stream = until(&mut server.events, |event| match event {
        ParentEvent::Report(stream, report) => report.leaving.then_some(stream),
        ParentEvent::Told(_) | ParentEvent::Closed(_) => None,
    })
    .await;
    until(&mut server.events, |event| match event {
        ParentEvent::Closed(closed) => (closed == stream).then_some(()),
        ParentEvent::Told(_) | ParentEvent::Report(..) => None,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_stops_at_once_also_while_its_parent_does_not_answer() {
    let listener = mute().await;
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let mut child = Running::greet(&uri);
    let (_mute, _) = patiently(listener.accept()).await.unwrap();
    until(&mut child.events, |event| matches!(event, ChildEvent::Opened).then_some(())).await;
    child.shutdown.cancel();
    patiently(child.task).await.unwrap();
    // Had it gone on until the parent counts as silent, it would have said so.
    assert!(child.events.recv().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_served_beside_the_conversation() {
    let server = Server::start(9);
    let channel = plimsoll_proto::transport::endpoint(&server.uri()).unwrap().connect().await.unwrap();
    for service in ["", "plimsoll.exchange.v1.Exchange"] {
        let request = HealthCheckRequest { service: service.to_owned() };
        let answer = patiently(HealthClient::new(channel.clone()).check(request)).await.unwrap();
        assert_eq!(answer.into_inner().status(), ServingStatus::Serving, "{service:?}");
    }
}
