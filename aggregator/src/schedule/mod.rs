//! The pace of the zone: how busy the process is, how often children report, and when directives are sent.

pub(crate) mod load_meter;
pub(crate) mod push_schedule;
pub mod report_interval;
