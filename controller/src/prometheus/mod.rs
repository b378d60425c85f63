//! Queries to Prometheus servers: limits that are asked for, and values that rollout gates compare.

pub mod answer;
pub(crate) mod queries;
