//! The client as services use it: over real sockets, with directives that came over the real wire.

#[cfg(test)]
mod allocations;
#[cfg(test)]
mod coherent;
#[cfg(test)]
mod flood;
#[cfg(test)]
mod grpc;
#[cfg(test)]
mod hot_path;
#[cfg(test)]
mod http;
#[cfg(test)]
mod parent;
