//! Tests of the whole workspace and the real binary: the structure of the code, fleets of
//! processes, and files outside Rust that must agree with the code.

#[cfg(test)]
mod alerts;
#[cfg(test)]
mod audit;
#[cfg(test)]
mod certs;
#[cfg(test)]
mod chart;
#[cfg(test)]
mod chart_quota;
#[cfg(test)]
mod chart_sidecar;
#[cfg(test)]
mod chart_trust;
#[cfg(test)]
mod conflict;
#[cfg(test)]
mod extra_gates;
#[cfg(test)]
#[allow(dead_code)] // the measuring program uses the rest
mod fleet;
#[cfg(test)]
mod goodput;
#[cfg(test)]
mod guardrails;
#[cfg(test)]
mod history;
#[cfg(test)]
mod house;
#[cfg(test)]
mod kill;
#[cfg(test)]
mod liveness;
#[cfg(test)]
mod lost_state;
#[cfg(test)]
#[cfg(test)]
mod operator;
#[cfg(test)]
mod pipes;
#[cfg(test)]
#[allow(dead_code)] // the measuring program uses the rest
mod process;
#[cfg(test)]
mod processes;
#[cfg(test)]
#[path = "../../../controller/src/prometheus/tests/real.rs"]
mod prometheus;
#[cfg(test)]
#[allow(dead_code)] // the measuring program uses the rest
mod quota;
#[cfg(test)]
mod rollout;
#[cfg(test)]
mod sidecar;
#[cfg(test)]
mod sockets;
#[cfg(test)]
mod stacked;
#[cfg(test)]
mod tenants;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod trust;
#[cfg(test)]
mod turns;
