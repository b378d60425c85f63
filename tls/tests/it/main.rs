//! Handshakes between real ends of a connection, with certificates of every kind.

mod ends;
mod memory;
mod refusals;
mod resumption;
