//! Errors of reading a scenario and of drawing a run.

use std::io;
use std::path::PathBuf;

use plimsoll_policy::{Fault, PolicyError};
use plotters::drawing::DrawingAreaErrorKind;

/// A scenario that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// A file could not be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The scenario, or the policy in it or beside it, is not valid; the error lists every fault with its
    /// place.
    #[error(transparent)]
    Invalid(#[from] PolicyError),
}

impl From<Box<Fault>> for ScenarioError {
    fn from(fault: Box<Fault>) -> Self {
        Self::Invalid(fault.into())
    }
}

/// A run that cannot be drawn.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// The file could not be written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The drawing failed.
    #[error("cannot draw: {0}")]
    Drawing(#[from] DrawingAreaErrorKind<io::Error>),
}
