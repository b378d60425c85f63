//! Integration tests of the admin port: a real server.

#[cfg(test)]
mod callers;
