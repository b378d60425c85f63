//! The state of the fleet as the controller knows it, and its aggregators that are gone for good.

pub(crate) mod acknowledge;
pub(crate) mod forget;
pub(crate) mod status;
