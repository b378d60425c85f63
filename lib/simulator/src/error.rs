//! Errors of reading a scenario and of drawing a run.

use std::io;
use std::path::PathBuf;

use plimsoll_policy::{PolicyError, PolicyFault};
use plotters::drawing::DrawingAreaErrorKind;

/// Scenario that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// A file could not be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the failure.
        source: io::Error,
    },
    /// The scenario, or its policy, is not valid; the error lists faults with their places: the first one of the scenario, or
    /// all of its policy.
    #[error(transparent)]
    Invalid(#[from] PolicyError),
}

impl From<Box<PolicyFault>> for ScenarioError {
    fn from(fault: Box<PolicyFault>) -> Self {
        Self::Invalid(fault.into())
    }
}

/// Run that cannot be drawn.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// The file could not be written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the failure.
        source: io::Error,
    },
    /// The drawing failed.
    #[error("cannot draw: {0}")]
    Drawing(#[from] DrawingAreaErrorKind<io::Error>),
}
