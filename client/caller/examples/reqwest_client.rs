//! Gets a URL and waits as refusals ask: `cargo run -p plimsoll-caller --example reqwest_client -- URL`.

use std::error::Error;
use std::time::Duration;

use plimsoll_caller::CallerLayer;
use reqwest::{Method, Request};
use tower::Layer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args()
        .nth(1)
        .ok_or("give a URL, such as http://127.0.0.1:8080/checkout")?;

    // One for the whole process: its clones share the retry budget.
    let caller = CallerLayer::default().deadline(Duration::from_secs(10));
    let client = caller.layer(reqwest::Client::new());

    let response = client.send(Request::new(Method::GET, url.parse()?)).await?;
    println!("{}: {}", response.status(), response.text().await?);
    Ok(())
}
