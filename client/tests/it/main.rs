//! Integration tests of the client: real sockets, and directives over the real protocol.

#[cfg(test)]
mod allocations;
#[cfg(test)]
mod exports;
#[cfg(test)]
mod flood;
#[cfg(test)]
mod hot_path;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod parent;
#[cfg(test)]
mod tls;
