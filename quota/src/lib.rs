//! The quota server of Plimsoll: exact token buckets behind the Redis protocol, with an embedded
//! store.
//!
//! `engine` holds the buckets in memory, in shards, and saves them through `store`. `resp`
//! translates between the Redis protocol and `operation`, `admin` serves the admin port.
#![forbid(unsafe_code)]

pub mod admin;
mod args;
mod clock;
mod engine;
mod leases;
mod operation;
pub mod resp;
mod server;
mod store;

pub use args::{ADMIN_PORT, AT_AHEAD_MAX, Args, Durability, Error, RESP_PORT};
pub use server::{Listeners, Server, run};
