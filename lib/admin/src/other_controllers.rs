//! The controllers other than the current one, as `/status` shows them and the log names them.

use plimsoll_core::directive::Leader;
use plimsoll_core::exchange::other_controllers::{OtherControllers, Sighting};
use plimsoll_core::quantity::MonoTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A controller other than the current one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OtherController {
    /// Its epoch.
    pub epoch: u64,
    /// Its instance; null if only the epoch is known.
    pub instance: Option<String>,
    /// The client, the aggregator or the parent that names it.
    pub through: String,
    /// True if it has the epoch of the current controller: both run on copies of one state.
    pub same_epoch: bool,
}

impl OtherController {
    /// Describes a controller that a peer names.
    pub fn new(other: Leader, through: &str, same_epoch: bool) -> Self {
        let instance = other.instance.map(|instance| format!("{instance:?}"));
        Self {
            epoch: other.epoch.0,
            instance,
            through: through.to_owned(),
            same_epoch,
        }
    }

    /// Lists the controllers that were seen lately.
    pub fn list(others: &OtherControllers, now: MonoTime) -> Vec<Self> {
        let each = others
            .iter(now)
            .map(|(peer, seen)| Self::new(seen.other, peer, seen.is_rival));
        each.collect()
    }
}

/// Logs sightings that are [due](OtherControllers::take_unlogged).
pub fn log(due: Vec<(String, Sighting)>) {
    for (through, seen) in due {
        let epoch = seen.other.epoch.0;
        let instance = seen.other.instance.map(tracing::field::debug);
        if seen.is_rival {
            tracing::error!(
                epoch,
                instance,
                through,
                "two controllers run at one epoch, as on copies of one state directory: the one with the higher instance \
                 leads. Stop one of them, and then restart the other"
            );
        } else {
            tracing::warn!(
                epoch,
                instance,
                through,
                "claimed epoch ignored: it is above the one in force. If the peer was led by a controller that is gone, it \
                 follows again once a controller has a later epoch"
            );
        }
    }
}
