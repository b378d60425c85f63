//! Streams from the greeting to the last report, and reconnection after the death of the parent.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::directive::{BucketDirective, Epoch};
use plimsoll_core::exchange::sessions::HEARTBEAT;
use plimsoll_core::names::{Bucket, Key, KeyId, Tenant};
use plimsoll_core::report::{Counts, KeyDefinition, Report, Tallies, Tally};

use crate::scripted::{
    ChildEvent, ParentEvent, Running, Server, check_serving, directive, mute, patiently, until,
};
use plimsoll_proto::KEYS_PER_PART_MAX;

#[tokio::test(flavor = "multi_thread")]
async fn greeting_is_answered_before_the_first_heartbeat() {
    let mut server = Server::start(9);
    let mut child = Running::greet(&server.uri());
    let first = child.applied().await;
    assert_eq!((first.seq, first.echo.covered), (1, 1));
    assert_eq!(first.buckets, [directive(1, 0)]);
    let waited = until(&mut server.events, |event| match event {
        ParentEvent::Answered(waited) => Some(waited),
        ParentEvent::Report(..) | ParentEvent::Closed(_) => None,
    });
    assert!(waited.await < HEARTBEAT / 2);
    child.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn directives_arrive_in_order() {
    let mut server = Server::start(9);
    // The child's own interval is an hour; the first directives shorten it.
    let mut child = Running::start(&server.uri(), Report::default(), Duration::from_secs(3_600));
    child.applied_limit(1).await;
    for limit in 2..20 {
        server.post(&directive(limit, 0));
        child.applied_limit(limit).await;
    }
    let mut expected = 1..=10;
    server
        .reported(|report| {
            assert_eq!(Some(report.seq), expected.next());
            assert_eq!(report.greeting.identity.is_some(), report.seq == 1);
            expected.is_empty().then_some(())
        })
        .await;
    child.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_messages_arrive_complete() {
    let mut server = Server::start(9);
    let name = |number: usize| format!("{number:0>128}");
    let definition = |number| KeyDefinition {
        key: Key {
            bucket: Bucket::new(&name(0)).unwrap(),
            tenant: Tenant::new(&name(number)).unwrap(),
        },
        base: Counts::ZERO,
        sent: Counts::ZERO,
        continues: false,
    };
    let definitions: BTreeMap<KeyId, KeyDefinition> =
        (0..).map(KeyId).zip((0..10_000).map(definition)).collect();
    let tally = Tally {
        counts: Counts {
            offered: 5,
            dropped: 2,
            would_dropped: 0,
            ..Counts::ZERO
        },
        late: Counts::ZERO,
    };
    let tallies: Tallies = definitions.keys().map(|id| (*id, tally)).collect();
    server
        .parent
        .with(|parent, _| parent.post(&directive(2, 5_000)));

    let greeting = Report {
        definitions,
        tallies,
        ..Report::default()
    };
    let mut child = Running::start(&server.uri(), greeting.clone(), Duration::from_millis(20));
    assert_eq!(child.applied().await.buckets, [directive(2, 5_000)]);
    // The keys of each part arrive with it.
    let mut parts = Vec::new();
    while parts.last().is_none_or(|part: &Report| part.more) {
        let part = server.reported(|report| Some(report).filter(|report| report.seq == 2));
        parts.push(part.await);
    }
    let most = parts
        .iter()
        .map(|part| part.definitions.len().max(part.tallies.len()))
        .max();
    assert!(
        parts.len() > 10 && most <= Some(KEYS_PER_PART_MAX),
        "{} parts, {most:?}",
        parts.len()
    );
    let definitions = parts
        .iter()
        .flat_map(|part| part.definitions.clone())
        .collect();
    let tallies = parts.iter().flat_map(|part| part.tallies.iter()).collect();
    assert_eq!(
        (greeting.definitions, greeting.tallies),
        (definitions, tallies)
    );
    child.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_directives_are_rejected_midstream() {
    let server = Server::start(9);
    let mut child = Running::greet(&server.uri());
    child.applied_limit(1).await;
    server.parent.with(|parent, _| parent.epoch = Epoch(4));
    server.post(&directive(2, 0));
    let error = until(&mut child.events, |event| match event {
        ChildEvent::Rejected(error) => Some(error),
        ChildEvent::Disconnected(error) => panic!("the stream ended: {error}"),
        _ => None,
    })
    .await;
    assert!(error.contains("older"), "{error}");
    server.parent.with(|parent, _| parent.epoch = Epoch(6));
    server.post(&directive(3, 0));
    let next = child.applied().await;
    let changed = BucketDirective {
        whole: false,
        ..directive(3, 0)
    };
    assert_eq!(
        (next.lead.epoch(), next.buckets),
        (Some(Epoch(6)), vec![changed])
    );
    child.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn child_reconnects_when_its_parent_restarts() {
    let server = Server::start(9);
    let mut child = Running::greet(&server.uri());
    child.applied_limit(1).await;
    let address = server.die().await;
    child.disconnected().await;

    let mut server = Server::start_at(address, 9);
    server.post(&directive(2, 0));
    let first = child.applied().await;
    assert_eq!(
        (first.seq, first.echo.covered),
        (1, 1),
        "the stream starts anew"
    );
    assert_eq!(first.buckets, [directive(2, 0)]);
    server
        .reported(|report| report.greeting.identity.map(|_| assert_eq!(report.seq, 1)))
        .await;
    child.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parent_shutdown_ends_streams_with_status() {
    let mut server = Server::start(9);
    let mut child = Running::greet(&server.uri());
    child.applied_limit(1).await;
    // A stream without a greeting.
    let mut silent = server.stream().await;
    server.closing.cancel();
    assert!(child.disconnected().await.contains("this parent stops"));
    let status = patiently(silent.directives.message()).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    server.served().await;
    child.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leaving_child_sends_a_last_report() {
    let mut server = Server::start(9);
    let mut child = Running::greet(&server.uri());
    child.applied_limit(1).await;
    child.stop().await;
    let stream = until(&mut server.events, |event| match event {
        ParentEvent::Report(stream, report) => report.leaving.then_some(stream),
        ParentEvent::Answered(_) | ParentEvent::Closed(_) => None,
    })
    .await;
    until(&mut server.events, |event| match event {
        ParentEvent::Closed(closed) => (closed == stream).then_some(()),
        ParentEvent::Answered(_) | ParentEvent::Report(..) => None,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn child_shutdown_never_awaits_its_parent() {
    let listener = mute().await;
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let mut child = Running::greet(&uri);
    let (_mute, _) = patiently(listener.accept()).await.unwrap();
    until(&mut child.events, |event| {
        matches!(event, ChildEvent::Reported).then_some(())
    })
    .await;
    child.shutdown.cancel();
    patiently(child.task).await.unwrap();
    // A child that waited for the silence timeout would have emitted an event.
    assert!(child.events.recv().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_served_on_the_same_port() {
    let server = Server::start(9);
    check_serving(server.uri()).await;
}
