//! A standby over mTLS: only a child with a certificate is told of the leader.

use plimsoll_proto::transport::Security;
use plimsoll_tls::testing::Authority;

use super::{DOMAIN, Process, aggregator, service};
use crate::scripted::{Running, Server, Standby};

#[tokio::test(flavor = "multi_thread")]
async fn standby_answers_over_mtls() {
    let authority = Authority::new(DOMAIN);
    let parent = Process::new(&authority, aggregator());
    let child = Process::new(&authority, service());
    let standby = Standby::secured(&parent.certificates).await;
    let leader = Server::secured(&parent.certificates);
    let https = format!("https://{}", standby.address);

    // Each on its own, so that its failure is seen.
    let mut plain = Running::greet(&standby.uri());
    let error = plain.disconnected().await;
    assert!(error.contains("TLS"), "{error}");
    plain.stop().await;
    let mut sole = Running::secured(&https, &child.certificates);
    let error = sole.disconnected().await;
    assert!(error.contains("does not lead"), "{error}");
    sole.stop().await;

    let security = Security::Mutual(child.certificates.clone());
    let mut running = Running::one_of(&[&https, &leader.https()], &security);
    running.applied_limit(1).await;
    running.stop().await;
}
