//! Tests of the whole workspace and the real binary: the structure of the code, fleets of
//! processes, and files outside Rust that must agree with the code.

#[cfg(test)]
mod chart;
#[cfg(test)]
mod fleets;
#[cfg(test)]
mod house;
#[cfg(test)]
mod members;
#[cfg(test)]
mod operators;
#[cfg(test)]
mod outages;
#[cfg(test)]
mod prometheus;
#[cfg(test)]
mod quota;
#[cfg(test)]
mod sidecar;
#[cfg(test)]
mod tenants;
#[cfg(test)]
mod tls;
