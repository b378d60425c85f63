//! Scripted faults and their ends.

use serde::Deserialize;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    /// True if the controller keeps running and only its links are cut.
    pub(crate) keep_state: bool,
    /// Number of the failing zone or client; 0 for the controller.
    pub(crate) target: u32,
    pub(crate) at_s: f64,
    /// `None` for [`FaultKind::ZoneDead`] only.
    pub(crate) until_s: Option<f64>,
    /// Span after the end for children that lost their parent to reconnect, from and to, in seconds;
    /// not used after crashes of clients, stalls and pauses.
    pub(crate) reconnect_s: (f64, f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FaultKind {
    /// The controller's process dies, and the next one starts from the saved state. With `keep_state` it
    /// keeps running, and the links of its children are cut.
    ControllerDown,
    /// The link between one aggregator and its parent is cut.
    ZonePartition,
    /// A zone's aggregator dies and is replaced at the fault's end.
    ZoneCrash,
    /// A zone's aggregator and clients die for good.
    ZoneDead,
    /// A client's process dies and is replaced at the fault's end.
    ClientCrash,
    /// The link between one client and its aggregator is cut.
    ClientPartition,
    /// The callers of one client wait, and send all due requests at the fault's end.
    ClientStall,
    /// The process of one client pauses, and at the fault's end finds the messages that arrived
    /// meanwhile. Its callers wait.
    ClientPause,
    /// The process of one aggregator pauses. After 3 s its peers close their streams.
    ZonePause,
    /// The controller's process pauses, as in a [`FaultKind::ZonePause`].
    ControllerPause,
}

impl Fault {
    /// Returns true if the load of a client in `zone` is lost at `t`, because the client's process
    /// does not run.
    pub(crate) fn takes_load(&self, client: u32, zone: u32, t: f64) -> bool {
        let concerned = match self.kind {
            FaultKind::ZoneDead => self.target == zone,
            FaultKind::ClientCrash => self.target == client,
            _ => false,
        };
        concerned && self.holds_at(t)
    }

    /// Returns true if the callers of a client wait at `t`.
    pub(crate) fn stalls(&self, client: u32, t: f64) -> bool {
        let stalls = self.kind == FaultKind::ClientStall && self.target == client;
        let pauses = self.kind == FaultKind::ClientPause && self.target == client;
        (stalls || pauses) && self.holds_at(t)
    }

    fn holds_at(&self, t: f64) -> bool {
        t >= self.at_s && self.until_s.is_none_or(|until| t < until)
    }
}
