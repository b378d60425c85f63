//! Clients of real servers of etcd.

use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_etcd::{Client, Options, StoreAddress};
use plimsoll_testing::etcd::EtcdServer;
use plimsoll_testing::process::PATIENCE;
use tokio::time::{Instant, sleep};

/// Returns a client of a server, once it answers.
pub(crate) async fn client(server: &EtcdServer) -> Client {
    let client = connect(&[server.address], Options::default());
    ready(&client).await;
    client
}

pub(crate) fn connect(endpoints: &[SocketAddr], options: Options) -> Client {
    let scheme = if options.tls.is_some() {
        "etcds"
    } else {
        "etcd"
    };
    let endpoints: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
    let address = format!("{scheme}://{}/plimsoll", endpoints.join(","));
    Client::connect(&address.parse::<StoreAddress>().unwrap(), options).unwrap()
}

/// Waits until a store answers.
pub(crate) async fn ready(client: &Client) {
    let end = Instant::now() + PATIENCE;
    while let Err(error) = client.get("ready").await {
        assert!(Instant::now() < end, "{error}");
        sleep(Duration::from_millis(20)).await;
    }
}
