//! Queries to Prometheus servers: limits that a policy takes from a query, and values for the extra gates of
//! a rollout.

pub mod answer;
mod http_client;
mod query;
pub(crate) mod query_task;
#[cfg(test)]
mod tests;

pub use http_client::http_client_builder;
