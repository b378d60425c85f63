//! Integration tests of the client: real sockets, and directives over the real protocol.

#[cfg(test)]
mod allocations;
#[cfg(test)]
mod coherent;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod exports;
#[cfg(test)]
mod flood;
#[cfg(test)]
mod hot_path;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod nested;
#[cfg(test)]
mod observe;
#[cfg(test)]
mod parent;
#[cfg(test)]
mod paths;
#[cfg(test)]
mod quotas;
#[cfg(test)]
mod stacks;
#[cfg(test)]
mod tls;
