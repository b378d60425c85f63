//! Addresses that are accepted and refused.
