//! Messages out of range, each with the error that rejects it.

mod directives;
mod reports;

use plimsoll_core::names::InvalidName;

use super::*;

fn invalid_name(field: &'static str, source: InvalidName) -> DecodeError {
    DecodeError::Name { field, source }
}

fn too_many(field: &'static str, got: usize, most: usize) -> DecodeError {
    DecodeError::TooMany { field, got, most }
}
