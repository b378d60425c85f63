//! The law of Plimsoll, pure: what is protected, what is counted, what is decided, and in which words.
//!
//! Nothing here reads a clock, draws randomness or opens anything: time and draws are arguments. That is what lets
//! the very same code run in a service, in an aggregator, in a controller and under a simulator.
//!
//! A reader may begin with [`report`] (what a child tells its parent), [`directive`] (what a parent tells a child),
//! [`law`] (how the one becomes the other) and [`policy`] (what operators write).
#![forbid(unsafe_code)]

pub mod backoff;
pub mod baseline;
pub mod bucket;
pub mod coherence;
pub mod coin;
pub mod directive;
pub mod drill;
pub mod exchange;
pub mod fairness;
pub mod hot_keys;
pub mod kill;
pub mod latency;
pub mod law;
pub mod policy;
pub mod presence;
pub mod rate;
pub mod ratio;
pub mod report;
pub mod rollout;
pub mod roster;
pub mod stable;

pub mod text;
pub mod time;
pub mod token_bucket;
pub mod trace;
pub mod verdict;
