//! The client against real servers of etcd.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a failure ends the test

mod access;
mod failover;
mod generated;
mod keys;
mod server;
