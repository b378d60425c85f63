//! Streams with a renewed certificate: another one continues each, and nothing is lost or delayed.

use std::time::Duration;

use plimsoll_tls::testing::{Authority, Validity};
use tokio::time::Instant;

use super::{DOMAIN, Process, aggregator, service};
use crate::scripted::{ChildEvent, ParentEvent, Running, Server, until};

#[tokio::test(flavor = "multi_thread")]
async fn renewed_certificate_continues_the_stream() {
    let authority = Authority::new(DOMAIN);
    let parent = Process::new(&authority, aggregator());
    // So near its end that the stream is renewed immediately.
    let child = Process::valid(
        &authority,
        service(),
        Validity::lasting(Duration::from_secs(9)),
    );
    let follower = child.certificates.clone();
    let following = tokio::spawn(async move { follower.follow().await });
    let mut server = Server::secured(&parent.certificates);
    let mut running = Running::secured(&server.https(), &child.certificates);
    running.applied_limit(1).await;
    authority.write(child.directory.path(), service(), Validity::default());
    until(&mut running.events, |event| match event {
        ChildEvent::Renewed => Some(()),
        ChildEvent::Disconnected(error) => panic!("the stream was lost: {error}"),
        ChildEvent::Connected => panic!("renewal is no new connection"),
        ChildEvent::Opened
        | ChildEvent::Reported
        | ChildEvent::Applied(_)
        | ChildEvent::Rejected(_) => None,
    })
    .await;
    // The old certificate ends, and the stream continues.
    let ended = Instant::now() + Duration::from_secs(9);
    while Instant::now() < ended {
        running.applied().await;
    }
    assert!(
        server.rejections.try_recv().is_err(),
        "the renewal broke a rule"
    );
    let mut streams = Vec::new();
    while let Ok(event) = server.events.try_recv() {
        let ParentEvent::Report(stream, report) = event else {
            continue;
        };
        if streams.last() != Some(&stream) {
            assert!(
                report.greeting.identity.is_some() && !streams.contains(&stream),
                "streams do not alternate"
            );
            streams.push(stream);
        }
    }
    assert_eq!(streams.len(), 2, "the first stream and its continuation");
    following.abort();
    running.stop().await;
}
