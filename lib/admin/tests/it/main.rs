//! Integration tests of the admin port: a real server, and the flags that decide about trust.

#[cfg(test)]
mod callers;
#[cfg(test)]
mod security;
#[cfg(test)]
mod tls;
