//! The evidence of a rollout stage as it is saved.

use serde::{Deserialize, Serialize};

/// The saved stats of one entry's present stage. Latencies are not saved: they begin anew after a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedStageStats {
    /// The number of the change that began the stage.
    pub change: u64,
    /// Ticks with requests in the stage.
    pub cycles: u64,
    /// The length of a tick in milliseconds.
    pub tick_ms: u64,
    /// For each slot its ticks, and the offered, refused, would-dropped and failed requests of the canary
    /// cohort and of the control cohort.
    pub slots: Vec<(u64, [u64; 4], [u64; 4])>,
}
