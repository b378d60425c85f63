//! What happened: events for people on call, and the audit log as a proof.

pub(crate) mod audit;
pub(crate) mod events;
