//! Handshakes between real ends of a connection, with certificates of every kind.

#[cfg(test)]
mod ends;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod resumption;
