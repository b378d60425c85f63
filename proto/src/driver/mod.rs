//! gRPC drivers: one for the child's end of a stream and one for the parent's end, for the state machine of
//! any tier.

pub mod child;
#[cfg(feature = "server")]
pub mod parent;
