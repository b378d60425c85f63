//! The machine that a process of Plimsoll runs on: files that are read without waiting for a writer, files
//! that are replaced as a whole, and the limit of descriptors.
#![forbid(unsafe_code)]

pub mod atomic_file;
pub mod descriptors;
pub mod regular_file;
