//! Children and parents that restart, lie, or break the protocol.

mod epochs;
mod plans;
mod refused;
mod restart;
mod room;

use super::*;
