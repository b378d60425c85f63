//! Tests of the binary as a whole, which need its command line.

mod docs;
