//! A job that takes its turn: it waits for each admission instead of being refused. Run it with
//! `cargo run -p plimsoll-client --example background_job`.
//!
//! It reads `PLIMSOLL_AGGREGATOR`, `PLIMSOLL_ZONE` and `PLIMSOLL_CERTS`. Without an aggregator it admits everything.

use std::error::Error;
use std::time::Duration;

use plimsoll_client::{Limiter, Request, Verdict};

/// The rows that the job sends, one admission each.
const ROWS: usize = 20;
/// The longest time that one row waits for its turn.
const DEADLINE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The feed logs what keeps it from its aggregator, and what is wired wrongly.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let (limiter, feed) = Limiter::from_env("import").build()?;

    let writes = limiter.bucket("orders-write")?;
    let turn = Request::new(&writes, "nightly-import").within(DEADLINE);
    let mut left = 0;
    for row in 0..ROWS {
        match limiter.check_async(&turn).await {
            Verdict::Admit => send(row).await,
            // Not sent. A later run of the job begins here.
            Verdict::Refuse(refusal) => {
                println!("row {row} is left for later: {}", refusal.reason().as_str());
                left += 1;
            }
        }
    }

    // The feed sends its last report and closes its streams.
    let flushed = feed.shutdown().await;
    println!("{} rows sent, {left} left, {} decisions unreported", ROWS - left, flushed.unreported);
    Ok(())
}

/// Stands for the work of one row.
async fn send(_row: usize) {
    tokio::task::yield_now().await;
}
