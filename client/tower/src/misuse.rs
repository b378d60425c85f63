//! Misuses of the layer that do not compile. Each differs in one expression from an example in the
//! documentation of the same item.
//!
//! A layer needs rules that have been checked:
//! ```compile_fail
//! # use plimsoll_tower::{PlimsollLayer, Rule};
//! let layer = PlimsollLayer::new([Rule::bucket("orders").path("/orders")]);
//! ```
//! A refusal is answered with a response:
//! ```compile_fail
//! # use plimsoll_tower::{PlimsollLayer, Refused, Rules};
//! # fn layers(rules: Rules) {
//! let layer = PlimsollLayer::new(rules).refuse_with(|refused: &Refused<'_>| refused.reason().as_str());
//! # }
//! ```
