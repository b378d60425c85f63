//! Shared headroom: the part of a limit that no key uses now. All keys of a bucket share it, so that nothing
//! is refused that fits.
//!
//! The controller leaves each key what it uses and divides the rest between zones
//! ([`SplitChild::headroom_part`](super::SplitChild::headroom_part)). The fast loop of a zone looks at the zone's total
//! ([`divide_room`]), lets a first excess pass ([`FirstExcess`]), and learns how deep the pools of its
//! clients have to be ([`LearnedDepth`]). It grants tokens to clients that have just joined ([`Grants`]). An
//! overloaded bucket has no headroom.

mod depth;
mod excess;
mod grants;
mod room;

pub use depth::LearnedDepth;
pub use excess::FirstExcess;
pub use grants::Grants;
pub use room::{ZoneClaimant, divide_room};
