//! Loom models of what threads share without locks, run under every interleaving of their reads and writes.
//!
//! `cargo test -p plimsoll-client --no-default-features --features loom --lib loom`

mod loom_interner;
mod loom_state;
