//! A tower [`Layer`](tower_layer::Layer) for HTTP clients that come back without harm: reqwest, hyper and tonic.
//! Callers that were refused wait as they were asked, return apart from others, and give up in time.
//!
//! ```
//! use std::time::Duration;
//!
//! use plimsoll_caller::CallerLayer;
//! use reqwest::{Method, Request, Response};
//! use tower::Layer;
//!
//! # async fn get(url: reqwest::Url) -> Result<Response, Box<dyn std::error::Error>> {
//! let caller = CallerLayer::default().deadline(Duration::from_secs(10)); // one for the whole process
//! let client = caller.layer(reqwest::Client::new());
//! let response = client.send(Request::new(Method::GET, url)).await?;
//! # Ok(response) }
//! ```
//!
//! [`Caller::send`] is for clients without a tower stack around. A [`Caller`] is a tower service, too, as a generated
//! client of tonic needs it. Requests with the features `reqwest` and `tonic` are those crates' own.
//!
//! Retried are refusals (429, 503, `RESOURCE_EXHAUSTED` that names a wait), 502, 504, `UNAVAILABLE` and failures of the
//! client, all of requests that may be [repeated](CallerLayer::idempotent). Never retried are a quota that is used up
//! and a body that can be read only once.

mod asked;
mod error;
mod layer;
mod request;
mod service;
mod throttle;
mod wait;

pub use error::CallError;
pub use layer::CallerLayer;
pub use request::{Incoming, Outgoing, Repeatable};
pub use service::{ATTEMPT, Caller};
