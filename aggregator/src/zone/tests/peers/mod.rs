//! Children and parents that restart, lie, or break the protocol.

mod refused;
mod restart;

use super::*;
