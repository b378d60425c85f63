//! Asks for the health of a gRPC server and waits as refusals ask:
//! `cargo run -p plimsoll-caller --example tonic_client -- http://127.0.0.1:8080`.

use std::error::Error;
use std::time::Duration;

use plimsoll_caller::CallerLayer;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::Layer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::args()
        .nth(1)
        .ok_or("give a server, such as http://127.0.0.1:8080")?;

    // All calls of gRPC are POSTs, so say which may be carried out twice.
    let caller = CallerLayer::default()
        .deadline(Duration::from_secs(10))
        .idempotent(|_, path| path == "/grpc.health.v1.Health/Check");
    let channel = Endpoint::from_shared(server)?.connect_lazy();
    let mut client = HealthClient::new(caller.layer(channel));

    let answer = client.check(HealthCheckRequest::default()).await?;
    println!("{:?}", answer.into_inner().status());
    Ok(())
}
