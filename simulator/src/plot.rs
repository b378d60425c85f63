//! Pictures of a run.
