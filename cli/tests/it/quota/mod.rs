//! Exact quotas on real processes: the commands, the views of callers and operators, and crashes
//! and faults of the disk.

mod admin;
mod client_library;
mod commands;
mod model;
mod remote;
mod server;
mod shared;
mod storage;
mod surge;
