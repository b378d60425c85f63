//! Health checks over mTLS, and sessions that are resumed.

use plimsoll_tls::testing::Authority;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::{DOMAIN, Process, aggregator, service};
use crate::scripted::{Running, Server, patiently};

#[tokio::test(flavor = "multi_thread")]
async fn health_service_answers_over_mtls() {
    let authority = Authority::new(DOMAIN);
    let (parent, child) = (Process::new(&authority, aggregator()), Process::new(&authority, service()));
    let server = Server::secured(&parent.certificates);
    let channel = server.channel_as(&child.certificates).await;
    for service in ["", "plimsoll.exchange.v1.Exchange"] {
        let request = HealthCheckRequest { service: service.to_owned() };
        let answer = patiently(HealthClient::new(channel.clone()).check(request)).await.unwrap();
        assert_eq!(answer.into_inner().status(), ServingStatus::Serving, "{service:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn child_that_connects_again_resumes_its_session() {
    let authority = Authority::new(DOMAIN);
    let (parent, child) = (Process::new(&authority, aggregator()), Process::new(&authority, service()));
    let mut server = Server::secured(&parent.certificates);
    for kind in ["Full", "Resumed", "Resumed"] {
        let mut running = Running::secured(&server.https(), &child.certificates);
        running.applied_limit(1).await;
        let line = server.logged("handshake is over").await;
        assert!(line.contains(kind) && line.contains("service/checkout-api"), "{line}");
        running.stop().await;
    }
}
