//! A sidecar as a process runs it: from its arguments over all its ports to its end.

#[cfg(test)]
mod start;
#[cfg(test)]
mod whole;
