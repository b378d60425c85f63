//! What only the whole workspace and the real binary can show: the rules of the house, and that files outside Rust
//! agree with the code.

#[cfg(test)]
mod books;
#[cfg(test)]
mod chart;
#[cfg(test)]
mod extra_gates;
#[cfg(test)]
mod fleet;
#[cfg(test)]
mod goodput;
#[cfg(test)]
mod history;
#[cfg(test)]
mod house;
#[cfg(test)]
mod kill;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod process;
#[cfg(test)]
mod processes;
#[cfg(test)]
#[path = "../../../controller/src/prometheus/queries/tests/real.rs"]
mod prometheus;
#[cfg(test)]
mod rollout;
#[cfg(test)]
mod several;
#[cfg(test)]
mod stacked;
#[cfg(test)]
mod streams;
