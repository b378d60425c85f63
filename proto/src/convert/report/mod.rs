//! Conversions of reports. Counts travel as deltas; a report larger than a message is split into parts.

mod decode;
mod delta;
mod encode;
mod evidence;

pub use decode::ReportDecoder;
pub use encode::ReportEncoder;
