//! A small client of etcd, for the state that several controllers share.
//!
//! It has what a state store needs and no more: reads, guarded transactions and leases below one
//! prefix, at several endpoints, with bounds for everything that a server sends. A change whose
//! answer is lost is never sent again: the caller gets [`Error::Unknown`] and reads.
#![forbid(unsafe_code)]

mod calls;
mod connection;
mod error;
mod kv;
mod lease;
mod rpc;
mod status;
#[cfg(test)]
mod tests;
mod transaction;
// The generator sets the format.
#[rustfmt::skip]
mod wire;

pub use calls::Client;
pub use connection::{
    AddressError, ClientFiles, Credentials, ENDPOINTS_MAX, Options, PREFIX_BYTES_MAX, StoreAddress,
    TlsError, TlsFiles,
};
pub use error::Error;
pub use kv::{KeyValue, LISTING_BYTES_MAX, Listing, VALUE_BYTES_MAX};
pub use lease::{Lease, LeaseId};
pub use status::{EndpointStatus, MemberStatus};
pub use transaction::{Committed, Condition, Operation, Transaction};
