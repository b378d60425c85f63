//! Integration tests of the tower layer: real sockets, stacks of layers, and directives over the real
//! protocol.

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
mod nested;
#[cfg(test)]
mod observe;
// The scripted parent of the client's own tests.
#[cfg(test)]
#[path = "../../../tests/it/parent.rs"]
mod parent;
#[cfg(test)]
mod quotas;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod stacks;
#[cfg(test)]
mod wiring;
