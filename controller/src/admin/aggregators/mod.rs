//! Aggregators on the admin port: their status, and how operators forget one.

pub mod routes;
mod status;

pub use self::status::AggregatorStatus;
