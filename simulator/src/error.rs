//! Why a scenario cannot be run.

use std::io;
use std::path::PathBuf;

use plimsoll_core::policy::{Fault, PolicyError};

/// A scenario that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// A file could not be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The scenario, or the policy in it or beside it, is not valid: with every place.
    #[error(transparent)]
    Invalid(#[from] PolicyError),
}

impl From<Box<Fault>> for ScenarioError {
    fn from(fault: Box<Fault>) -> Self {
        Self::Invalid(fault.into())
    }
}

/// Why figures cannot be drawn.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// The file could not be written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The drawing failed.
    #[error("cannot draw: {0}")]
    Drawing(String),
}
